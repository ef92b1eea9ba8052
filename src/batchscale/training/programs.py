"""The compiled programs of a study with the data they run on: init, advance, evaluate."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.spec import EvaluationPlan, Study
from batchscale.training.evaluation import EvaluationData, make_evaluate, pack
from batchscale.training.loop import make_advance
from batchscale.training.placement import evaluated_counts, make_probe, place_training_data, read_sample, split_seed
from batchscale.training.progress import EngineSettings
from batchscale.training.state import TrialState, init_trial
from batchscale.training.step import StepConfig
from batchscale.workloads.workload import Workload

EVALUATION_BATCH = 1024


class Programs:
    """What a study compiles: once, whatever its trials' metaparameters, seeds and step budgets."""

    def __init__(self, workload: Workload, study: Study, plan: EvaluationPlan, settings: EngineSettings) -> None:
        self.slots = settings.population or 1
        dataset = workload.dataset
        config = StepConfig(
            study.batch_size,
            settings.microbatch or study.batch_size,
            dataset.num_train_examples,
            settings.precision,
        )
        self._data = place_training_data(dataset)
        self._probe = make_probe(dataset)
        self._init = jax.jit(
            lambda seed, metaparameters, probe: init_trial(
                workload, seed, metaparameters, probe, settings.divergence_factor
            )
        )
        self._advance = make_advance(workload, config, self.slots)
        self._evaluate = make_evaluate(workload, self.slots, settings.precision)
        self._evaluation_data: dict[str, EvaluationData] = {
            split: pack(read_sample(dataset.splits[split], count, split_seed(split)), EVALUATION_BATCH)
            for split, count in evaluated_counts(dataset, plan).items()
        }

    def init(self, seed: int, metaparameters: Mapping[str, float]) -> TrialState:
        """The state of a trial before its first step."""
        values = {name: jnp.float32(value) for name, value in metaparameters.items()}
        state: TrialState = self._init(jnp.uint32(seed % 2**32), values, self._probe)
        return state

    def advance(self, population: TrialState, until: NDArray[np.int32], num_steps: int) -> TrialState:
        """The population some steps later; what was given is consumed."""
        return self._advance(population, jnp.asarray(until), self._data, jnp.int32(num_steps))

    def evaluate(self, population: TrialState, slots: Sequence[int]) -> dict[str, NDArray[np.float32]]:
        """The metrics of the trials in these slots, in this order."""
        due = np.zeros(self.slots, np.int32)
        due[: len(slots)] = slots
        found = self._evaluate(population, jnp.asarray(due), jnp.int32(len(slots)), self._evaluation_data)
        return {name: np.asarray(values) for name, values in found.items()}
