"""LSTM with a projection, as a language model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.models.declaration import TOKENS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.lstm import Lstm
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    embedding, hidden, projection = sizes["embedding"], sizes["hidden"], sizes["projection"]
    return model_of(
        model,
        lambda dtype, rngs: Lstm(shape.num_outputs, embedding, hidden, projection, dtype=dtype, rngs=rngs),
    )


LSTM = ModelDeclaration(
    "lstm",
    TOKENS,
    {"embedding": 1024, "hidden": 2048, "projection": 512},
    _build,
    {"embedding": 8, "hidden": 8, "projection": 4},
    label="LSTM",
)
