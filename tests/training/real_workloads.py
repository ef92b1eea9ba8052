"""Tiny versions of the real models on random data."""

from dataclasses import replace

import numpy as np
from flax import nnx

from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.models.architectures.resnet_50 import GhostNorm
from batchscale.workloads.models.nnx_model import make_model
from batchscale.workloads.registry import get_workload
from batchscale.workloads.workload import ArraySplit, Dataset

NAMES = ("fc_8", "ghost_fc")
SLOW_NAMES = ("simple_cnn_base", "resnet_50", "transformer_base", "gpt_100k")
GHOST_BATCH_SIZE = 4


class GhostFc(nnx.Module):
    """One hidden layer with ghost batch normalization: what is special about ResNet, without its compile time."""

    def __init__(self, rngs):
        self.first = nnx.Linear(64, 8, use_bias=False, rngs=rngs)  # a norm undoes biases
        self.last = nnx.Linear(8, 10, rngs=rngs)
        self.norm = GhostNorm(8, GHOST_BATCH_SIZE, 0.9)

    def __call__(self, inputs, *, train, key):
        hidden = self.first(inputs.reshape(inputs.shape[0], -1))
        return self.last(nnx.relu(self.norm(hidden, train=train)))


def _images(rng, count):
    labels = rng.integers(0, 10, count).astype(np.int32)
    inputs = (rng.normal(size=(count, 8, 8, 1)) + labels[:, None, None, None] / 5).astype(np.float32)
    return ArraySplit({"inputs": inputs, "labels": labels})


def _sentences(rng, count):
    words = rng.integers(0, 11, (count, 6)).astype(np.int32)
    mask = (np.arange(6) < rng.integers(2, 7, (count, 1))).astype(np.float32)
    return ArraySplit({"inputs": words, "labels": np.roll(words, -1, axis=1), "mask": mask})


def make_tiny(model: str):
    """The workload of a model at its tiny size, with Nesterov momentum."""
    rng = np.random.default_rng(0)
    language = model.startswith(("transformer", "lstm", "gpt"))
    make = _sentences if language else _images
    dataset = Dataset(
        "random",
        {"train": make(rng, 30), "val": make(rng, 12)},
        lambda batch: batch,
        (6,) if language else (8, 8, 1),
        np.int32 if language else np.float32,
        11 if language else 10,
    )
    if model == "ghost_fc":
        return replace(make_tiny("fc_8"), model=make_model(model, GhostFc, GHOST_BATCH_SIZE))
    options = {"tiny": True} | ({"ghost_batch_size": GHOST_BATCH_SIZE} if model == "resnet_50" else {})
    name = WorkloadName("lm1b" if language else "mnist", model, "nesterov_momentum")
    return get_workload(WorkloadSpec(name, model_options=options, schedule="constant"), dataset=dataset)
