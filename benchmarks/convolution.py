"""Training steps of a CNN in a compiled loop on one CPU thread: XLA's own convolution, ours, and whole patches.

Run: python benchmarks/convolution.py [simple_cnn_base|resnet_8] [batch size]
"""

import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import jax
import jax.numpy as jnp

from batchscale.workloads.models.declaration import Shape, find_model
from batchscale.workloads.models.layers import conv

SHAPES = {"simple_cnn_base": (28, 28, 1), "resnet_8": (32, 32, 3)}
STEPS, REPEATS = 4, 4


def convolve_by_patches(images, kernel, stride, padding):
    """One matrix product of whole patches with the kernel."""
    height, width, channels, outputs = kernel.shape
    (top, bottom, rows), (left, right, columns) = (
        conv._extent(side, length, stride, padding)
        for side, length in zip(images.shape[1:3], (height, width), strict=True)
    )
    images = jnp.pad(images, ((0, 0), (top, bottom), (left, right), (0, 0)))
    patches = [
        images[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(height)
        for j in range(width)
    ]
    flat = jnp.concatenate(patches, axis=-1).reshape(-1, height * width * channels)
    return (flat @ kernel.reshape(-1, outputs)).reshape(images.shape[0], rows, columns, outputs)


def measure(name, form, batch_size):
    """Examples per CPU second, and CPU seconds to compile."""
    conv.convolve_by_rows = form
    model = find_model(name, {}).for_data(Shape(SHAPES[name], 10))
    params, state = jax.jit(model.init)(jax.random.key(0))
    data = jax.random.normal(jax.random.key(1), (STEPS, batch_size, *SHAPES[name]))

    def step(params, inputs):
        def loss(params):
            return jnp.mean(jnp.square(model.apply(params, state, inputs, train=True, key=jax.random.key(0))[0]))

        return jax.tree.map(lambda value, change: value - 0.01 * change, params, jax.grad(loss)(params)), None

    start = time.process_time()
    run = jax.jit(lambda params: jax.lax.scan(step, params, data)[0]).lower(params).compile()
    compiling = time.process_time() - start
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        jax.block_until_ready(run(params))
        times.append(time.process_time() - start)
    return batch_size * STEPS / min(times), compiling


def main():
    """Print one line per form."""
    name = sys.argv[1] if len(sys.argv) > 1 else "simple_cnn_base"
    batch_size = int(sys.argv[2]) if len(sys.argv) > 2 else 32
    forms = {"native": conv.convolve_natively, "rows": conv.convolve_by_rows, "patches": convolve_by_patches}
    for label, form in forms.items():
        speed, compiling = measure(name, form, batch_size)
        print(f"{name} batch {batch_size} {label:8s} {speed:8.0f} examples per CPU s, compiled in {compiling:.1f} s")


if __name__ == "__main__":
    main()
