"""The noisy quadratic model as data: a batch is one draw of the noise in the gradient of ``batch_size`` examples."""

from pathlib import Path

import jax
import jax.numpy as jnp

from batchscale.spec import Options
from batchscale.workloads.noisy_quadratic import parse_problem
from batchscale.workloads.workload import Batch, Dataset, SampledSplit


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """The noisy quadratic model without files: ``data_dir`` is not looked at.

    ``inputs`` is the noise of the batch's mean gradient, one row of variance c/B. ``labels`` is empty in meaning;
    ``num_examples`` says how many examples the row stands for.
    """
    del data_dir
    problem = parse_problem(options)
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
