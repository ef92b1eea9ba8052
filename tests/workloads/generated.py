"""Small generated data sets at the true shapes of named ones, for tests that need a workload but no files."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.workloads.datasets.declaration import dataset_info
from batchscale.workloads.tasks import Task
from batchscale.workloads.tunables import NEUTRAL
from batchscale.workloads.workload import ArraySplit, Dataset

cheap_jit = functools.partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)
"""A ``jit`` that compiles in half the time: for programs that run once."""

LENGTH = 6
SMALL_SIDE = 32
FEW_OUTPUTS = 12


def generate_dataset(name, count=8, seed=0, max_side=SMALL_SIDE):
    """Random examples of the task and (up to ``max_side``) the shape of a data set; few classes and sub-words."""
    info = dataset_info(name, {})
    random = np.random.default_rng(seed)
    outputs = min(info.num_outputs or FEW_OUTPUTS, FEW_OUTPUTS)
    if info.task is Task.LANGUAGE:
        tokens = random.integers(0, outputs, size=(count, LENGTH + 1)).astype(np.int32)
        lengths = random.integers(2, LENGTH + 1, size=count)
        arrays = {
            "inputs": tokens[:, :-1],
            "labels": tokens[:, 1:],
            "mask": (np.arange(LENGTH) < lengths[:, None]).astype(np.float32),
        }
        shape, dtype = (LENGTH,), jnp.int32
    else:
        shape = (*(min(side, max_side) for side in info.input_shape[:-1]), info.input_shape[-1])
        dtype = jnp.float32
        several = info.task is Task.MULTILABEL
        labels = random.integers(0, 2, (count, outputs)) if several else random.integers(0, outputs, count)
        arrays = {"inputs": random.normal(size=(count, *shape)).astype(np.float32), "labels": labels.astype(np.int32)}
    split = ArraySplit(arrays)
    return Dataset(name, {"train": split, "val": split, "test": split}, dict, shape, dtype, outputs)


def complete_metaparameters(defaults, values):
    """A trial's own values and the defaults of the rest; what does nothing stays out, as in training."""
    given = {name: value for name, value in defaults.items() if value is not None and name not in NEUTRAL}
    return {**given, **values}
