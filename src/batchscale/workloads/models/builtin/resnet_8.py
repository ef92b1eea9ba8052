"""ResNet-8 without batch normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.workloads.models.declaration import LABELS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.resnet_8 import ResNet8
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    channels, outputs = shape.inputs[-1], shape.num_outputs
    return model_of(
        model,
        lambda dtype, rngs: ResNet8(channels, sizes["width"], sizes["blocks"], outputs, dtype=dtype, rngs=rngs),
    )


RESNET_8 = ModelDeclaration(
    "resnet_8",
    LABELS,
    {"width": 16, "blocks": 1},
    _build,
    {"width": 4},
    schedule="linear",
    min_side=4,
    label="ResNet-8",
)
