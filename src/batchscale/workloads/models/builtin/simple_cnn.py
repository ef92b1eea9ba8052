"""Simple CNN of the paper in three sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.models.declaration import LABELS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.simple_cnn import SimpleCnn
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    height, width, channels = shape.inputs
    return model_of(
        model,
        lambda dtype, rngs: SimpleCnn(
            (height, width, channels),
            sizes["filters"],
            sizes["units"],
            shape.num_outputs,
            rate=sizes["dropout"],
            dtype=dtype,
            rngs=rngs,
        ),
    )


def _declare(size: str, label: str, filters: tuple[int, int], units: int) -> ModelDeclaration:
    options: Options = {"filters": filters, "units": units, "dropout": 0.4}
    tiny: Options = {"filters": (4, 4), "units": 8}
    return ModelDeclaration(f"simple_cnn_{size}", LABELS, options, _build, tiny, min_side=4, label=label)


BASE = _declare("base", "Simple CNN", (32, 64), 1024)
NARROW = _declare("narrow", "Simple CNN Narrow", (16, 32), 512)
WIDE = _declare("wide", "Simple CNN Wide", (64, 128), 2048)
