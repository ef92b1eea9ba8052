"""FC-1024 on pixels from -0.5 to 0.5: a model of one's own on the built-in MNIST, for fc_1024_centred.toml.

docs/reproduction.md shows what the other pixels change. (For a built-in model, `pixel_range` does the same.)
"""

import math

import jax
from flax import nnx

import batchscale

UNITS, PIXELS, CLASSES = 1024, 28 * 28, 10


class Centred(nnx.Module):
    """FC-1024 behind a shift of the pixels; weights normal, with the variances of the built-in model."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        hidden, output = (nnx.initializers.normal(math.sqrt(variance)) for variance in (2 / PIXELS, 1 / UNITS))
        self.hidden = nnx.Linear(PIXELS, UNITS, kernel_init=hidden, rngs=rngs)
        self.output = nnx.Linear(UNITS, CLASSES, kernel_init=output, rngs=rngs)
        self.dropout = nnx.Dropout(0.4, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """The logits."""
        pixels = images.reshape(images.shape[0], -1) - 0.5
        return self.output(self.dropout(nnx.relu(self.hidden(pixels))))


batchscale.register_workload("mnist/fc_1024_centred", model=Centred, task="classification")
