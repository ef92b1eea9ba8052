"""Simple CNN: two convolutions with max-pooling, one fully connected hidden layer."""

import jax
from flax import nnx

from batchscale.workloads.models.layers.conv import Conv, DType, max_pool
from batchscale.workloads.models.layers.initializers import before_output, before_relu
from batchscale.workloads.models.layers.linear import Linear
from batchscale.workloads.random_bits import dropout


class SimpleCnn(nnx.Module):
    """5×5 filters, "same" padding, ReLU; 2×2 max-pooling; dropout on the hidden layer."""

    def __init__(
        self,
        image: tuple[int, int, int],
        filters: tuple[int, ...],
        units: int,
        num_outputs: int,
        *,
        rate: float,
        dtype: DType,
        rngs: nnx.Rngs,
    ) -> None:
        height, width, channels = image
        sizes = [channels, *filters]
        self.convs = nnx.List(
            Conv(size, count, 5, dtype=dtype, rngs=rngs) for size, count in zip(sizes, filters, strict=False)
        )
        pooled = (height >> len(filters)) * (width >> len(filters)) * sizes[-1]
        self.hidden = Linear(pooled, units, dtype=dtype, kernel_init=before_relu(), rngs=rngs)
        self.output = Linear(units, num_outputs, dtype=dtype, kernel_init=before_output(), rngs=rngs)
        self.rate = rate

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits."""
        values = inputs
        for conv in self.convs:
            values = max_pool(nnx.relu(conv(values)))
        hidden = nnx.relu(self.hidden(values.reshape(values.shape[0], -1)))
        return self.output(dropout(hidden, self.rate, train=train, key=key, stream=0))
