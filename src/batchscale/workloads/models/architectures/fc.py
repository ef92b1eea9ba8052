"""Fully connected networks: FC of the paper (ReLU, dropout on hidden layers), ``mlp`` and ``linear``."""

import jax
from flax import nnx

from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.layers.initializers import before_output, before_relu
from batchscale.workloads.models.layers.linear import Linear
from batchscale.workloads.random_bits import dropout


class Fc(nnx.Module):
    """Hidden layers of these widths with ReLU and dropout, and an output layer."""

    def __init__(
        self, num_inputs: int, widths: tuple[int, ...], num_outputs: int, *, rate: float, dtype: DType, rngs: nnx.Rngs
    ) -> None:
        sizes = [num_inputs, *widths]
        self.hidden = nnx.List(
            Linear(size, width, dtype=dtype, kernel_init=before_relu(), rngs=rngs)
            for size, width in zip(sizes, widths, strict=False)
        )
        self.output = Linear(sizes[-1], num_outputs, dtype=dtype, kernel_init=before_output(), rngs=rngs)
        self.rate = rate

    def __call__(self, inputs: jax.Array, *, train: bool, key: jax.Array) -> jax.Array:
        """Return the logits; images are flattened."""
        values = inputs.reshape(inputs.shape[0], -1)
        for index, layer in enumerate(self.hidden):
            values = dropout(nnx.relu(layer(values)), self.rate, train=train, key=key, stream=index)
        return self.output(values)
