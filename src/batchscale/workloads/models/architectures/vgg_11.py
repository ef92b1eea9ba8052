"""VGG-11: model A of Simonyan and Zisserman (2014).

Parameters start as its authors recommend, after Glorot and Bengio (2010). It has no normalization, and its images keep
their full range of colours: values that keep the size of a signal through every ReLU would start it with logits in the
hundreds, from which no learning rate recovers (docs/decisions/0088).
"""

import jax
from flax import nnx

from batchscale.workloads.models.layers.conv import Conv, DType, max_pool
from batchscale.workloads.models.layers.initializers import between
from batchscale.workloads.models.layers.linear import Linear
from batchscale.workloads.random_bits import dropout

_STAGES = ((1,), (2,), (4, 4), (8, 8), (8, 8))
"""The filters of each convolution in units of the width; every stage ends in max-pooling."""


class Vgg11(nnx.Module):
    """Eight 3×3 convolutions in five stages, and three fully connected layers with dropout between them."""

    def __init__(
        self,
        image: tuple[int, int, int],
        width: int,
        units: int,
        num_outputs: int,
        *,
        rate: float,
        dtype: DType,
        rngs: nnx.Rngs,
    ) -> None:
        height, wide, inputs = image
        stages = []
        for stage in _STAGES:
            convs = []
            for factor in stage:
                convs.append(Conv(inputs, factor * width, 3, dtype=dtype, kernel_init=between, rngs=rngs))
                inputs = factor * width
            stages.append(nnx.List(convs))
        self.stages = nnx.List(stages)
        pooled = (height >> len(stages)) * (wide >> len(stages)) * inputs
        self.hidden = nnx.List(
            Linear(size, units, dtype=dtype, kernel_init=between, rngs=rngs) for size in (pooled, units)
        )
        self.output = Linear(units, num_outputs, dtype=dtype, kernel_init=between, rngs=rngs)
        self.rate = rate

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits."""
        values = inputs
        for stage in self.stages:
            for conv in stage:
                values = nnx.relu(conv(values))
            values = max_pool(values)
        values = values.reshape(values.shape[0], -1)
        for index, layer in enumerate(self.hidden):
            values = dropout(nnx.relu(layer(values)), self.rate, train=train, key=key, stream=index)
        return self.output(values)
