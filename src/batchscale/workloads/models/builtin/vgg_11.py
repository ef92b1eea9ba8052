"""VGG-11: model A of Simonyan and Zisserman (2014)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.models.declaration import LABELS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.vgg_11 import Vgg11
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    height, width, channels = shape.inputs
    return model_of(
        model,
        lambda dtype, rngs: Vgg11(
            (height, width, channels),
            sizes["width"],
            sizes["units"],
            shape.num_outputs,
            rate=sizes["dropout"],
            dtype=dtype,
            rngs=rngs,
        ),
    )


VGG_11 = ModelDeclaration(
    "vgg_11",
    LABELS,
    {"width": 64, "units": 4096, "dropout": 0.5},
    _build,
    {"width": 4, "units": 32},
    schedule="linear",
    min_side=32,
    label="VGG-11",
)
