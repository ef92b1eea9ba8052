"""Models by name: what they declare (no jax), and, one file per architecture, the modules themselves."""

from batchscale.workloads.models.declaration import ModelDeclaration, Shape, check_fit
from batchscale.workloads.models.table import MODELS, find_model, model_names

__all__ = ["MODELS", "ModelDeclaration", "Shape", "check_fit", "find_model", "model_names"]
