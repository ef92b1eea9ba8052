"""The noisy quadratic model as data: a batch is one draw of the noise in the gradient of ``batch_size`` examples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.noisy_quadratic import NoisyQuadratic, parse_problem
from batchscale.spec.experiment import Options
from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.workload import Batch, Dataset


def _parse(name: str, options: Options) -> NoisyQuadratic:
    del name
    return parse_problem(options)


def _info(name: str, problem: NoisyQuadratic) -> DatasetInfo:
    return DatasetInfo(name, Task.QUADRATIC, None, problem.dimension, (problem.dimension,))


def _load(name: str, problem: NoisyQuadratic, data_dir: Path | None) -> Dataset:
    """Sampled data: ``inputs`` is the noise of the batch's mean gradient, one row of variance c/B.

    ``labels`` is empty in meaning; ``num_examples`` says how many examples the row stands for.
    """
    import jax
    import jax.numpy as jnp

    from batchscale.workloads.workload import Dataset, SampledSplit

    del data_dir
    deviations = jnp.asarray(problem.noise_variances**0.5, jnp.float32)

    def sample(key: jax.Array, batch_size: int) -> Batch:
        noise = jax.random.normal(key, (1, problem.dimension)) * deviations / batch_size**0.5
        return {
            "inputs": noise,
            "labels": jnp.zeros(1, jnp.int32),
            "num_examples": jnp.full(1, batch_size, jnp.float32),
        }

    split = SampledSplit(sample)
    return Dataset(name, {"train": split, "val": split}, dict, (problem.dimension,), jnp.float32, problem.dimension)


NOISY_QUADRATIC = DatasetDeclaration(
    "noisy_quadratic", _parse, _info, _load, without_files="sampled, needs no files", label="Noisy Quadratic"
)
