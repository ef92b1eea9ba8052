"""The compiled programs of a study with the data they run on: init, advance with or without measurements, evaluate."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
from numpy.typing import NDArray

from batchscale.errors import SpecError
from batchscale.spec.durations import MAX_STEPS, EvaluationPlan
from batchscale.spec.plan import Study
from batchscale.training.devices import split_batch
from batchscale.training.gradient_noise import NoiseProgram, choose_kinds
from batchscale.training.loop import Advance, StepConfig, make_advance
from batchscale.training.measured_loop import Chunk, ChunkResult, make_chunk
from batchscale.training.settings import EngineSettings
from batchscale.training.shared_programs import share_programs
from batchscale.training.sizes import (
    SMALL_MICROBATCH,
    choice_key,
    choose_microbatch,
    choose_population,
    is_small,
    load_or_choose,
    measure_advance,
    memory_bytes,
    microbatch_bytes,
)
from batchscale.training.state import NOT_DIVERGED, TrialState
from batchscale.training.training_data import (
    HostFeed,
    read_positions,
)
from batchscale.workloads.workload import ArraySplit, Dataset, SampledSplit, Workload


class Programs:
    """The programs of a study, compiled once for all metaparameters, seeds and step budgets of its trials."""

    def __init__(self, workload: Workload, study: Study, plan: EvaluationPlan, settings: EngineSettings) -> None:
        self._workload, self._study, self._settings = workload, study, settings
        self.shared = shared = share_programs(workload, study, plan, settings)
        self.devices, self.names, self.template = shared.devices, shared.names, shared.template
        self._require_examples(workload.dataset)
        plain = not (study.half_lives or study.branches or shared.fed)
        self.measures_inside = plain and shared.sets.all_on_device and not (self.devices.several or self.devices.exact)
        self._timed: dict[int, Any] = {}  # by slots: a program that was timed is not made again
        # exact sums are those of a trial alone: mapped over a population, products are taken in other ways
        self.slots = 1 if self.devices.exact else settings.population or self._choose_slots(study)
        self._config = self._configure(study.batch_size, self.slots)
        self._feed = None
        if shared.fed is not None:
            self._feed = HostFeed(shared.fed, study.batch_size, self.slots, self.devices, self._config.shards)
        self._trainer = self._make_trainer(self.slots)
        self._timed.clear()
        self._evaluate = shared.evaluate_program(self.slots)
        self._noise: NoiseProgram | None = None
        if plan.gradient_noise:
            kinds = choose_kinds(plan.gradient_noise, workload, self.template.opt_state)
            microbatch = self._config.microbatch
            self._noise = NoiseProgram(workload, study, kinds, microbatch, self.devices, shared.data, shared.fed)

    def _require_examples(self, dataset: Dataset) -> None:
        if self.devices.several and isinstance(dataset.splits["train"], SampledSplit):
            raise SpecError(
                f"A batch must be stored examples to be spread over devices. Data set '{dataset.name}' samples a batch "
                "as a whole; train it on one device, without exact sums."
            )

    @property
    def metrics(self) -> list[str]:
        """The metrics in the order of the values of a chunk."""
        return sorted(
            f"{split}/{metric.name}" for split in self.shared.sets.on_device for metric in self._workload.metrics
        )

    @property
    def busy_devices(self) -> int:
        """The number of devices that have a part of every batch; a small batch does not use all of them."""
        return 1 if self._config.shards is None else self._config.shards.num_busy

    def init(self, seed: int, metaparameters: Mapping[str, float]) -> TrialState:
        """Return the state of a trial before its first step."""
        return self.shared.init(seed, metaparameters)

    def populate(self, state: TrialState, slots: int) -> TrialState:
        """Return a population of copies of a state."""
        population: TrialState = self.devices.replicate(
            jax.tree.map(lambda leaf: np.stack([np.asarray(leaf)] * slots), state)
        )
        return population

    def advance(self, population: TrialState, until: NDArray[np.int32], num_steps: int) -> TrialState:
        """Return the population some steps later, when the device has finished; the argument is consumed."""
        if self._feed is None:
            population = self._advance(population, until, self.shared.data, np.int32(num_steps))
        while self._feed is not None and num_steps > 0:
            steps = min(num_steps, self._feed.block_steps)
            alive = (np.asarray(population.step) < until) & (np.asarray(population.diverged_at) == NOT_DIVERGED)
            positions = read_positions(population, alive.tolist(), self._config.num_examples or 1)
            block = self._feed.take(positions, steps)
            population = self._advance(population, until, block, np.int32(steps))
            num_steps -= steps
        population.step.block_until_ready()
        return population

    def train_and_measure(self, population: TrialState, chunk: Chunk) -> tuple[TrialState, ChunkResult]:
        """Return the population after a chunk, and its result on the host; the argument is consumed."""
        population, result = self._trainer(population, chunk, self.shared.data, self.shared.sets.on_device)
        return population, ChunkResult(*map(np.asarray, result))

    def evaluate(self, population: TrialState, slots: Sequence[int]) -> dict[str, NDArray[np.float32]]:
        """Return the metrics of the trials in these slots, in this order, and along a second axis of their averages."""
        due = np.zeros(self.slots, np.int32)
        due[: len(slots)] = slots
        metrics: dict[str, NDArray[np.float32]] = {}
        sets = self.shared.sets
        if sets.on_device:
            values = self._evaluate(population, due, np.int32(len(slots)), sets.on_device)
            metrics = {name: np.asarray(value) for name, value in values.items()}
        return metrics | sets.evaluate_streamed(population, slots)

    def _make_trainer(self, slots: int) -> Any:
        """Return the program that trains: the loop with measurements, or the plain one."""
        if slots not in self._timed:
            config = self._configure(self._study.batch_size, slots)
            if self.measures_inside:
                program: Any = self.shared.measured_advance(
                    config, slots, self._study.goal, self._several_sizes(config)
                )
            else:
                program = make_advance(self._workload, config, slots, self.devices)
            self._timed[slots] = program
        return self._timed[slots]

    def _several_sizes(self, config: StepConfig) -> bool:
        """Return True if larger batches of a small model are trained by the same program, in small microbatches."""
        stored = isinstance(self._workload.dataset.splits["train"], ArraySplit)
        return stored and config.microbatch == SMALL_MICROBATCH and self._study.batch_size % SMALL_MICROBATCH == 0

    @cached_property
    def _advance(self) -> Advance:
        if not self.measures_inside:
            return cast(Advance, self._trainer)
        return make_advance(self._workload, self._config, self.slots, self.devices)

    @property
    def empty_noise(self) -> dict[str, float]:
        """The columns of gradient noise where it is not measured; none if it never is."""
        return {} if self._noise is None else dict.fromkeys(self._noise.names, math.nan)

    def has_noise(self, step: int) -> bool:
        """Return True if the gradient noise is measured at a step."""
        return self._noise is not None and self._noise.is_measured(step)

    def measure_noise(self, population: TrialState, slot: int, step: int) -> dict[str, float]:
        """Return the columns of gradient noise of the trial in a slot; nothing if they are not measured."""
        return {} if self._noise is None else self._noise.measure(population, slot, step)

    def _configure(self, batch_size: int, slots: int) -> StepConfig:
        parameter_bytes = sum(int(leaf.nbytes) for leaf in jax.tree.leaves(self.template.params))
        available = microbatch_bytes(slots, parameter_bytes)
        multiple = self._workload.model.microbatch_multiple
        fixed = self._settings.microbatch
        shards = None
        if self.devices.several:
            shards = split_batch(batch_size, self.devices.num_devices, multiple, self.devices.exact)
        if not _can_be_split(self._workload.dataset, batch_size):
            if fixed is not None and fixed < batch_size:
                raise SpecError(
                    "A batch must be rows of examples to be split into microbatches. Data set "
                    f"'{self._workload.dataset.name}' samples a batch as a whole. Found microbatch {fixed}; leave it "
                    "out."
                )
            microbatch = batch_size
        elif fixed is None:
            at_once = batch_size if shards is None else shards.size
            microbatch = choose_microbatch(at_once, multiple, self.shared.example_bytes, available)
            if is_small(parameter_bytes) and SMALL_MICROBATCH % multiple == 0:
                microbatch = min(microbatch, SMALL_MICROBATCH)
        elif fixed < batch_size and fixed % multiple:
            raise SpecError(
                f"microbatch must be a multiple of the ghost batch size {multiple} of model "
                f"'{self._workload.model.name}', so that batch statistics stay unchanged. Found {fixed}."
            )
        else:
            microbatch = min(fixed, batch_size)
        num_examples = self._workload.dataset.num_train_examples
        fed, study = self.shared.fed is not None, self._study
        return StepConfig(batch_size, microbatch, num_examples, shards, fed, study.half_lives, study.branches)

    def _choose_slots(self, study: Study) -> int:
        """Return the measured population size, which may be stored; sets that are fed are trained one by one."""
        if self.shared.fed is not None or self.devices.num_hosts > 1:  # hosts would measure different times
            return 1
        template = jax.tree.map(np.asarray, self.template)
        member_bytes = 3 * sum(leaf.nbytes for leaf in jax.tree.leaves(template))

        def measure(slots: int) -> float:
            program = self._make_trainer(slots)
            population = self.populate(template, slots)
            until = np.full(slots, MAX_STEPS, np.int32)

            def advance(num_steps: int) -> None:
                nonlocal population
                if self.measures_inside:
                    chunk = make_chunk(until.tolist(), [()] * slots, num_steps, study, None)
                    population, _ = program(population, chunk, self.shared.data, self.shared.sets.on_device)
                else:
                    population = program(population, until, self.shared.data, np.int32(num_steps))
                population.step.block_until_ready()

            return measure_advance(advance, study.trial_steps) / slots

        most = min(study.trials, max(1, memory_bytes() // member_bytes))
        facts: list[object] = [study.workload, study.batch_size, study.trial_steps, self._workload.model.precision]
        if self.devices.several:
            facts += [self.devices.num_devices, self.devices.exact]
        key = choice_key(template, *facts)
        accelerator = jax.default_backend() != "cpu"
        return load_or_choose(key, lambda: choose_population(measure, study.trial_steps, most, accelerator)).population


def _can_be_split(dataset: Dataset, batch_size: int) -> bool:
    """True if a batch has a row for each example; sampled data may stand for a whole batch in one row."""
    train = dataset.splits["train"]
    if not isinstance(train, SampledSplit):
        return True
    batch = jax.eval_shape(lambda key: train.sample(key, batch_size), jax.random.key(0))
    return all(leaf.shape[:1] == (batch_size,) for leaf in batch.values())
