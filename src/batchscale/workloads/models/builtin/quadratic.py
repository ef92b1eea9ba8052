"""The noisy quadratic model: its parameters are its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.noisy_quadratic import parse_problem
from batchscale.workloads.models.declaration import ModelDeclaration, Shape
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model


def _build(model: ModelDeclaration, shape: Shape) -> Model:
    from batchscale.workloads.models.architectures.quadratic import quadratic_model
    from batchscale.workloads.models.nnx_model import in_precision

    return in_precision(quadratic_model(parse_problem(shape.dataset_options)), model.sizes["precision"])


QUADRATIC = ModelDeclaration("quadratic", (Task.QUADRATIC,), {}, _build)
