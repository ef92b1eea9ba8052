"""VGG-11: model A of Simonyan and Zisserman (2014)."""

import jax
from flax import nnx

from batchscale.workloads.models.layers.conv import Conv, DType, max_pool
from batchscale.workloads.models.layers.dropout import dropout
from batchscale.workloads.models.layers.initializers import before_output, before_relu
from batchscale.workloads.models.layers.linear import Linear

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
                convs.append(Conv(inputs, factor * width, 3, dtype=dtype, rngs=rngs))
                inputs = factor * width
            stages.append(nnx.List(convs))
        self.stages = nnx.List(stages)
        pooled = (height >> len(stages)) * (wide >> len(stages)) * inputs
        self.hidden = nnx.List(
            Linear(size, units, dtype=dtype, kernel_init=before_relu(), rngs=rngs) for size in (pooled, units)
        )
        self.output = Linear(units, num_outputs, dtype=dtype, kernel_init=before_output(), rngs=rngs)
        self.rate = rate

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """The logits."""
        values = inputs
        for stage in self.stages:
            for conv in stage:
                values = nnx.relu(conv(values))
            values = max_pool(values)
        values = values.reshape(values.shape[0], -1)
        for index, layer in enumerate(self.hidden):
            values = dropout(nnx.relu(layer(values)), self.rate, train=train, key=key, stream=index)
        return self.output(values)
