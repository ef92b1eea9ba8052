"""What a step of each DDSP size costs: loss and gradient, compiled before, of processor time and by the clock.

    python benchmarks/ddsp_step.py             (on all cores, for the clock; nothing else may run)
    PJRT_NPROC=1 python benchmarks/ddsp_step.py        (with one thread)

The least of some repetitions counts. Processor time is changed little by a busy machine, the clock's much.
"""

import argparse
import time

import jax
import numpy as np

from batchscale.instruments.sound.features import FRAMES_PER_S, HOP
from batchscale.instruments.synthesis.spectral_loss import spectral_loss
from batchscale.workloads.models.declaration import Shape, find_model

SIZES = {"ddsp_tiny": (8, 1.0), "ddsp_small": (8, 1.0), "ddsp": (2, 4.0)}


def measure(name: str, batch_size: int, seconds: float, repetitions: int = 7) -> tuple[int, float, float]:
    """The number of parameters, and the seconds of one gradient: of processor time, and by the clock."""
    frames = round(seconds * FRAMES_PER_S)
    model = find_model(name, {}).for_data(Shape((frames, 2), frames * HOP))
    params, state = jax.jit(model.init)(jax.random.key(0))
    inputs = np.stack([np.full((batch_size, frames), 440.0), np.full((batch_size, frames), -20.0)], -1)
    inputs = inputs.astype(np.float32)
    target = (0.1 * np.random.default_rng(0).normal(size=(batch_size, frames * HOP))).astype(np.float32)

    @jax.jit
    def slope(params):
        def loss(params):
            sound = model.apply(params, state, inputs, train=True, key=jax.random.key(1))[0]
            return spectral_loss(sound, target).mean()

        return jax.value_and_grad(loss)(params)

    jax.block_until_ready(slope(params))
    used, clock = [], []
    for _ in range(repetitions):
        began, looked = time.process_time(), time.perf_counter()
        jax.block_until_ready(slope(params))
        used.append(time.process_time() - began)
        clock.append(time.perf_counter() - looked)
    return sum(leaf.size for leaf in jax.tree.leaves(params)), min(used), min(clock)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", default=list(SIZES))
    print("| model | parameters | batch size | seconds of sound | processor seconds a step | seconds by the clock |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in parser.parse_args().sizes:
        batch_size, seconds = SIZES[name]
        count, used, clock = measure(name, batch_size, seconds)
        print(f"| `{name}` | {count:,} | {batch_size} | {seconds:g} | {used:.2f} | {clock:.2f} |", flush=True)


if __name__ == "__main__":
    main()
