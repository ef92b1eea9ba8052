"""Optimizers by name: metaparameters with defaults and ranges, and the update rules. Rules import jax when called."""

from batchscale.workloads.declarations import Table
from batchscale.workloads.optimizers.declaration import OptimizerDeclaration, make_range

OPTIMIZERS = Table(OptimizerDeclaration, "batchscale.workloads.optimizers.builtin", "optimizer")

__all__ = ["OPTIMIZERS", "OptimizerDeclaration", "make_range"]
