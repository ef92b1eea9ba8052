"""Fully connected networks: FC of the paper with any widths, ``mlp`` and ``linear``."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.models.declaration import LABELS, ModelDeclaration, Shape

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


_NAME = re.compile(r"fc((?:_[1-9][0-9]{0,5}){1,32})")


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.fc import Fc
    from batchscale.workloads.models.nnx_model import model_of

    sizes = model.sizes
    inputs, outputs = math.prod(shape.inputs), shape.num_outputs
    return model_of(
        model, lambda dtype, rngs: Fc(inputs, sizes["widths"], outputs, rate=sizes["dropout"], dtype=dtype, rngs=rngs)
    )


def _of_widths(name: str) -> ModelDeclaration | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    widths = tuple(int(width) for width in match[1][1:].split("_"))
    options: Options = {"widths": widths, "dropout": 0.4}
    label = "-".join(["FC", *map(str, widths)])
    return ModelDeclaration(name, LABELS, options, _build, {"widths": (8,) * len(widths)}, label=label)


LINEAR = ModelDeclaration("linear", LABELS, {"widths": (), "dropout": 0.0}, _build)
MLP = ModelDeclaration("mlp", LABELS, {"widths": (64, 64), "dropout": 0.0}, _build, {"widths": (8,)})
FC = ModelDeclaration("fc_WIDTH_WIDTH_…", LABELS, {}, _build, member=_of_widths)
