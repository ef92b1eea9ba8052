"""ResNet-50 with ghost batch normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.space import ParameterConfig, ParameterType
from batchscale.workloads.models.declaration import LABELS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


_SMOOTHING = ParameterConfig("label_smoothing", ParameterType.DISCRETE, feasible_points=(0.0, 0.01, 0.1))


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.resnet_50 import Norms, ResNet50
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    norms = Norms(sizes["ghost_batch_size"], sizes["statistics_decay"])
    channels, outputs = shape.inputs[-1], shape.num_outputs
    return model_of(
        model,
        lambda dtype, rngs: ResNet50(
            channels, sizes["width"], sizes["blocks"], outputs, norms=norms, dtype=dtype, rngs=rngs
        ),
        microbatch_multiple=sizes["ghost_batch_size"],
    )


RESNET_50 = ModelDeclaration(
    "resnet_50",
    LABELS,
    {"width": 64, "blocks": (3, 4, 6, 3), "ghost_batch_size": 32, "statistics_decay": 0.9},
    _build,
    {"width": 4, "blocks": (1, 1)},
    schedule="linear",
    min_side=8,
    ranges=(_SMOOTHING,),
    label="ResNet-50",
)
