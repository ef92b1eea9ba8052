"""From a model's facts and the shape of the data to the model; one function per architecture."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import nnx

from batchscale.workloads.models.architectures.fc import Fc
from batchscale.workloads.models.architectures.lstm import Lstm
from batchscale.workloads.models.architectures.resnet_8 import ResNet8
from batchscale.workloads.models.architectures.resnet_50 import Norms, ResNet50
from batchscale.workloads.models.architectures.simple_cnn import SimpleCnn
from batchscale.workloads.models.architectures.transformer import Transformer
from batchscale.workloads.models.architectures.vgg_11 import Vgg11
from batchscale.workloads.models.facts import PRECISIONS, ModelFacts
from batchscale.workloads.models.layers.conv import DType
from batchscale.workloads.models.nnx_model import Keys, make_model
from batchscale.workloads.workload import Model

Sizes = Mapping[str, Any]  # the model's options: names and kinds are checked where the facts are made


@dataclass(frozen=True)
class Shape:
    """What the data asks of a model: the shape of one example and the number of outputs."""

    inputs: tuple[int, ...]
    num_outputs: int


Make = Callable[[Sizes, Shape, DType, nnx.Rngs], nnx.Module]


def _fc(sizes: Sizes, shape: Shape, dtype: DType, rngs: nnx.Rngs) -> nnx.Module:
    num_inputs = math.prod(shape.inputs)
    return Fc(num_inputs, sizes["widths"], shape.num_outputs, rate=sizes["dropout"], dtype=dtype, rngs=rngs)


def _simple_cnn(sizes: Sizes, shape: Shape, dtype: DType, rngs: nnx.Rngs) -> nnx.Module:
    return SimpleCnn(
        _image(shape),
        sizes["filters"],
        sizes["units"],
        shape.num_outputs,
        rate=sizes["dropout"],
        dtype=dtype,
        rngs=rngs,
    )


def _resnet_8(sizes: Sizes, shape: Shape, dtype: DType, rngs: nnx.Rngs) -> nnx.Module:
    return ResNet8(shape.inputs[-1], sizes["width"], sizes["blocks"], shape.num_outputs, dtype=dtype, rngs=rngs)


def _resnet_50(sizes: Sizes, shape: Shape, dtype: DType, rngs: nnx.Rngs) -> nnx.Module:
    norms = Norms(sizes["ghost_batch_size"], sizes["statistics_decay"])
    channels, outputs = shape.inputs[-1], shape.num_outputs
    return ResNet50(channels, sizes["width"], sizes["blocks"], outputs, norms=norms, dtype=dtype, rngs=rngs)


def _vgg_11(sizes: Sizes, shape: Shape, dtype: DType, rngs: nnx.Rngs) -> nnx.Module:
    return Vgg11(
        _image(shape),
        sizes["width"],
        sizes["units"],
        shape.num_outputs,
        rate=sizes["dropout"],
        dtype=dtype,
        rngs=rngs,
    )


def _lstm(sizes: Sizes, shape: Shape, dtype: DType, rngs: nnx.Rngs) -> nnx.Module:
    embedding, hidden, projection = sizes["embedding"], sizes["hidden"], sizes["projection"]
    return Lstm(shape.num_outputs, embedding, hidden, projection, dtype=dtype, rngs=rngs)


def _transformer(sizes: Sizes, shape: Shape, dtype: DType, rngs: nnx.Rngs) -> nnx.Module:
    return Transformer(
        shape.num_outputs,
        sizes["width"],
        sizes["heads"],
        sizes["filter_width"],
        sizes["layers"],
        rate=sizes["dropout"],
        dtype=dtype,
        rngs=rngs,
    )


ARCHITECTURES: Mapping[str, Make] = {
    "fc": _fc,
    "simple_cnn": _simple_cnn,
    "resnet_8": _resnet_8,
    "resnet_50": _resnet_50,
    "vgg_11": _vgg_11,
    "lstm": _lstm,
    "transformer": _transformer,
}


def build_model(facts: ModelFacts, shape: Shape) -> Model:
    """The model of these facts for data of this shape.

    With precision bfloat16 the layers compute in it while parameters stay float32; with float32 they follow the type
    of the parameters and inputs they are given.
    """
    make = ARCHITECTURES[facts.architecture]
    precision = str(facts.options["precision"])
    dtype = None if precision == PRECISIONS[0] else jnp.dtype(precision)
    multiple = facts.options.get("ghost_batch_size", 1)
    assert isinstance(multiple, int)
    return make_model(facts.name, lambda rngs: make(facts.options, shape, dtype, rngs), multiple, Keys)


def _image(shape: Shape) -> tuple[int, int, int]:
    height, width, channels = shape.inputs
    return height, width, channels
