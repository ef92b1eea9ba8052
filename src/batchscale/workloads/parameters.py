"""How many parameters a model has, from shapes alone: no memory, no data."""

import math

import jax

from batchscale.workloads.models.build import Shape, build_model
from batchscale.workloads.models.facts import ModelFacts


def count_parameters(model: ModelFacts, shape: Shape) -> int:
    """The number of parameters of a model for data of this shape."""
    if model.architecture == "quadratic":
        return shape.num_outputs
    params, _ = jax.eval_shape(build_model(model, shape).init, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
