"""From a model's facts and the shape of the data to the model; one function per architecture."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.facts import ModelFacts
from batchscale.workloads.models.fc import Fc
from batchscale.workloads.models.nnx_model import make_model
from batchscale.workloads.workload import Model


@dataclass(frozen=True)
class Shape:
    """What the data asks of a model: the shape of one example and the number of outputs."""

    inputs: tuple[int, ...]
    num_outputs: int


Make = Callable[[Mapping[str, Any], Shape, Any, nnx.Rngs], nnx.Module]


def _fc(options: Mapping[str, Any], shape: Shape, dtype: Any, rngs: nnx.Rngs) -> nnx.Module:
    return Fc(math.prod(shape.inputs), options["widths"], shape.num_outputs, options["dropout"], dtype, rngs=rngs)


ARCHITECTURES: Mapping[str, Make] = {"fc": _fc}


def build_model(facts: ModelFacts, shape: Shape) -> Model:
    """The model of these facts for data of this shape."""
    make = ARCHITECTURES[facts.architecture]
    dtype = jnp.dtype(str(facts.options["precision"]))
    multiple = facts.options.get("ghost_batch_size", 1)
    assert isinstance(multiple, int)
    return make_model(facts.name, lambda rngs: make(facts.options, shape, dtype, rngs), multiple)
