"""The engine of a study: advances its trials to their requested steps, and evaluates them on the way.

Owns the order of events around the compiled programs: enter, evaluate, advance, leave. Does not decide which trials
run, or for how long.
"""

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.errors import SpecError, suggest_names
from batchscale.records.metadata.trial import Hardware
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.goal import Goal
from batchscale.spec.gradient_noise import EXAMPLES_COLUMN
from batchscale.spec.horizon_free import HALF_LIFE
from batchscale.spec.plan import Study
from batchscale.spec.space import convert_half_lives
from batchscale.study.trial import Activity, Row, TrialProgress, TrialTask
from batchscale.training.averages import select_average
from batchscale.training.compilation import Stopwatch, use_compilation_cache
from batchscale.training.devices import describe_hardware
from batchscale.training.hosts import HostGroup, SingleHost
from batchscale.training.measured_loop import MOST_STOPS, make_chunk
from batchscale.training.population import Population, Trial
from batchscale.training.programs import Programs
from batchscale.training.settings import EngineSettings
from batchscale.training.state import TrialState
from batchscale.training.state_store import SharedStateStore, StateStore, open_store
from batchscale.workloads.tunables import NEUTRAL
from batchscale.workloads.workload import Workload

__all__ = ["EngineSettings", "StudyEngine", "TrialProgress", "TrialTask"]

CHUNK_S = 1.0
"""The longest that the device runs before ``should_stop`` is called again."""

MAX_PARKED_BYTES = 2 * 2**30
"""The limit for the states of trials without a slot in memory; further ones go to the state store."""


def _never() -> bool:
    return False


@dataclass
class _Running:
    """A task in a slot."""

    task: TrialTask
    trial: Trial
    done: bool = False


class StudyEngine:
    """Trains the trials of one study.

    States stay in memory between calls, so that the next call continues where the last one ended. All randomness comes
    from the task's seed: a trial without a state is computed from step 0 with the same result.
    """

    def __init__(
        self,
        workload: Workload,
        study: Study,
        evaluation: EvaluationPlan,
        settings: EngineSettings | None = None,
        hosts: HostGroup | None = None,
    ) -> None:
        self._settings = settings or EngineSettings()
        self._hosts: HostGroup = hosts or SingleHost()
        use_compilation_cache()
        self._workload = workload
        self._study = study
        self._programs = Programs(workload, study, evaluation, self._settings)
        self._evaluation_steps = study.evaluation_steps
        self._is_evaluated = frozenset(study.evaluation_steps).__contains__
        self._population = self._make_population()
        self._stopwatch = Stopwatch(study.batch_size)
        self._on_activity: Callable[[Activity, int], None] = lambda _activity, _step: None
        self._compiled: set[Activity] = set()

    def _make_population(self) -> Population:
        settings, devices = self._settings, self._programs.devices
        store: StateStore | None = None
        if settings.checkpoint_dir is not None and self._hosts.is_chief:
            store = open_store(settings.checkpoint_dir, settings.max_finished_bytes)
        if devices.num_hosts > 1:
            store = SharedStateStore(store, self._hosts)
        return Population(self._programs.shared, self.population_size, store, MAX_PARKED_BYTES)

    @property
    def population_size(self) -> int:
        """The best number of tasks per call: the number of slots."""
        return self._programs.slots

    @property
    def idle_devices(self) -> int:
        """The number of devices without a part of the batch, which is too small or has too few ghost batches."""
        return self._programs.devices.num_devices - self._programs.busy_devices

    @property
    def hardware(self) -> Hardware:
        """The hardware that trains."""
        devices = self._programs.devices
        return describe_hardware(devices.num_devices, devices.num_hosts)

    def advance(
        self, tasks: Sequence[TrialTask], should_stop: Callable[[], bool] = _never, goal: Goal | None = None
    ) -> list[TrialProgress]:
        """Train every task to its ``until_step``, to its divergence, or to its first measurement of the goal.

        Args:
            tasks: any number; more than ``population_size`` take turns in the slots.
            should_stop: called between chunks; once it returns True, states are saved and the call returns early.
            goal: a task ends at its first evaluation that reaches it.

        Returns:
            The progress of every task, in their order.
        """
        self._check(tasks)
        self._stopwatch.start()
        waiting = deque(tasks)
        running: dict[int, _Running] = {}
        finished: dict[int, _Running] = {}
        saved_at = time.monotonic()
        while waiting or running:
            self._fill(waiting, running)
            self._evaluate_due(running, goal)
            for trial_id in [key for key, entry in running.items() if entry.done]:
                finished[trial_id] = running.pop(trial_id)
            if self._hosts.any("stop", should_stop()):
                break
            if running and not any(entry.done for entry in running.values()):
                if self._programs.measures_inside:
                    self._run_measured_chunk(running, goal)
                else:
                    self._run_chunk(running)
            if time.monotonic() - saved_at > self._settings.checkpoint_interval_s:
                self._save(running)
                saved_at = time.monotonic()
        self._save(running)
        entries = finished | running
        return [self._progress(task, entries.get(task.trial_id)) for task in tasks]

    def listen(self, listener: Callable[[Activity, int], None]) -> None:
        """Call ``listener`` with every activity of the engine and the step of its foremost trial from now on."""
        self._on_activity = listener

    def save(self, trial_id: int, ending: bool = False) -> None:  # noqa: ARG002 - the interface has it
        """Store the state of a trial that is in memory; without a checkpoint folder, do nothing."""
        if self._population.holds(trial_id):
            self._population.save(trial_id)

    def state(self, trial_id: int) -> TrialState:
        """Return the state of a trial in memory, on the host."""
        return self._population.member(trial_id)

    def finish(self, trial_id: int, step: int) -> None:
        """Drop a trial that ended at this step from memory; its last state is stored if there is room for it."""
        self._population.finish(trial_id, step)

    def discard(self, trial_id: int) -> None:
        """Drop the state, measurements and stored states of a trial."""
        self._population.discard(trial_id)

    def _check(self, tasks: Sequence[TrialTask]) -> None:
        ids = [task.trial_id for task in tasks]
        if len(set(ids)) != len(ids):
            raise SpecError(f"A call to the engine must name each trial once. Found trial ids {ids}.")
        for task in tasks:
            self._metaparameters(task.parameters)

    def _metaparameters(self, parameters: Mapping[str, float]) -> dict[str, float]:
        defaults = self._workload.defaults
        averages = self._study.half_lives
        if parameters.get(HALF_LIFE, None) not in (None, *averages):
            raise SpecError(f"{HALF_LIFE} must be one of {list(averages)}. Found {parameters[HALF_LIFE]:g}.")
        parameters = {name: value for name, value in parameters.items() if name != HALF_LIFE}
        tokens_per_step = self._study.batch_size * (
            self._study.tokens_per_example or self._workload.dataset.tokens_per_example or 1
        )
        parameters = convert_half_lives(parameters, tokens_per_step)
        for name in parameters:
            if name not in defaults:
                raise SpecError(
                    f"Workload {self._workload.name} has no metaparameter '{name}'; {suggest_names(name, defaults)}"
                )
        for name in set(parameters) - set(self._programs.names):
            if parameters[name] != NEUTRAL[name]:
                raise SpecError(
                    f"Metaparameter '{name}' must be searched or fixed by the study to be used. Found "
                    f"{parameters[name]:g} for a study without it."
                )
        values = {name: parameters.get(name, defaults[name]) for name in self._programs.names}
        metaparameters = {name: float(value) for name, value in values.items() if value is not None}
        missing = sorted(set(values) - set(metaparameters))
        if missing:
            raise SpecError(
                f"Workload {self._workload.name}: metaparameter '{missing[0]}' has no default; give it a value."
            )
        return metaparameters

    def _identity(self, task: TrialTask) -> str:
        values = ",".join(f"{name}={value!r}" for name, value in self._metaparameters(task.parameters).items())
        study = self._study
        averages = f"|{study.half_lives},{task.parameters.get(HALF_LIFE)}" if study.half_lives else ""
        branches = f"|{study.branches!r}" if study.branches else ""
        return f"{self._workload.name}|{study.batch_size}|{task.seed}|{values}{averages}{branches}"

    def _fill(self, waiting: deque[TrialTask], running: dict[int, _Running]) -> None:
        """Move tasks into slots while there are any."""
        while waiting and len(running) < self.population_size:
            task = waiting.popleft()
            trial = self._find(task)
            running[task.trial_id] = _Running(task, trial)
            self._population.place(task.trial_id, set(running))

    def _find(self, task: TrialTask) -> Trial:
        identity = self._identity(task)
        trial = self._population.find(task.trial_id, identity)
        if trial is not None and self._can_answer(trial, task):
            return trial
        trial = Trial(task.trial_id, identity)
        with self._stopwatch.compiling():
            state = self._programs.init(task.seed, self._metaparameters(task.parameters))
        self._population.start(trial, state)
        return trial

    def _can_answer(self, trial: Trial, task: TrialTask) -> bool:
        """Return True if a trial has every measurement of the task from the steps it has trained."""
        position = trial.step if trial.diverged_at is None else trial.diverged_at  # measured on the way, if at all
        branches = self._study.branches

        def is_past(step: int) -> bool:
            if branches is None or trial.branch_end is not None:
                return step < (trial.branch_end or position)
            return branches.start(step) < position

        return all(step in trial.rows for step in self._evaluation_steps if task.from_step < step and is_past(step))

    def _evaluate_due(self, running: dict[int, _Running], goal: Goal | None) -> None:
        trials = [entry.trial for entry in running.values()]
        due = [trial for trial in trials if trial.diverged_at is None and self._is_due(trial)]
        if due:
            self._report(Activity.EVALUATING, running)
            with self._stopwatch.evaluating(len(due)):
                if self._programs.measures_inside:
                    stops = {self._population.slot_of(trial.trial_id): [trial.step] for trial in due}
                    self._train_and_measure(running, {}, stops, 0, None)
                    self._add_noise(due)
                else:
                    self._evaluate(due, running)
        for entry in running.values():
            entry.done = _is_done(entry, goal)

    def _evaluate(self, due: Sequence[Trial], running: dict[int, _Running]) -> None:
        """Measure trials by the program that evaluates alone."""
        slots = [self._population.slot_of(trial.trial_id) for trial in due]
        values = self._programs.evaluate(self._population.state, slots)
        for place, (slot, trial) in enumerate(zip(slots, due, strict=True)):
            of_trial = {name: array[place] for name, array in values.items()}
            half_life = running[trial.trial_id].task.parameters.get(HALF_LIFE)
            number = None if half_life is None else self._study.half_lives.index(half_life)
            noise = self._programs.measure_noise(self._population.state, slot, trial.step)
            trial.rows[trial.step] = select_average(of_trial, self._study.goal, number) | noise

    def _is_due(self, trial: Trial) -> bool:
        """Return True if a trial must be measured now; with branches, at the start and at the end of each."""
        at_end = self._study.branches is None or trial.step == 0 or trial.step == trial.branch_end
        return at_end and self._is_evaluated(trial.step) and trial.step not in trial.rows

    def _next_stop(self, entry: _Running) -> int:
        """Return the step to train a trial to; one that stands where a branch begins or has ended leaves or joins."""
        trial, task, branches = entry.trial, entry.task, self._study.branches
        if trial.branch_end is not None and trial.step < trial.branch_end:
            return min(trial.branch_end, task.until_step)
        measured = trial.step if branches is None else max([task.from_step, *trial.rows])
        stop = next((step for step in self._evaluation_steps if step > measured), task.until_step)
        if branches is not None:
            start, end = branches.start(stop), stop
            if trial.branch_end is not None:
                self._population.join(trial)
            if trial.step == start:
                self._population.fork(trial, start, end)
            stop = end if trial.step == start else start
        return min(stop, task.until_step)

    def _run_chunk(self, running: dict[int, _Running]) -> None:
        """Advance all running trials by the same number of steps: to the nearest stop of any of them, or less."""
        until = np.zeros(self.population_size, np.int32)
        steps_left = []
        for entry in running.values():
            stop = self._next_stop(entry)
            until[self._population.slot_of(entry.trial.trial_id)] = stop
            steps_left.append(stop - entry.trial.step)
        self._report(Activity.TRAINING, running)
        num_steps = self._hosts.chief_value("steps", self._stopwatch.bound(min(steps_left), CHUNK_S))
        with self._stopwatch.stepping(num_steps, len(running)):
            state = self._programs.advance(self._population.state, until, num_steps)
            self._population.state = state
        steps, diverged = np.asarray(state.step), np.asarray(state.diverged_at)
        for entry in running.values():
            slot = self._population.slot_of(entry.trial.trial_id)
            entry.trial.update(int(steps[slot]), int(diverged[slot]))

    def _run_measured_chunk(self, running: dict[int, _Running], goal: Goal | None) -> None:
        """Advance all running trials through several of their evaluations, as many as take about a second."""
        most = self._stopwatch.bound_evaluations(MOST_STOPS, CHUNK_S)
        if goal is not None and (goal.metric, goal.maximize) != (self._study.goal.metric, self._study.goal.maximize):
            most = min(most, 1)  # the program watches the study's own metric
        until: dict[int, int] = {}
        stops: dict[int, Sequence[int]] = {}
        longest = 0
        for entry in running.values():
            slot, step, last = self._population.slot_of(entry.trial.trial_id), entry.trial.step, entry.task.until_step
            first = bisect_right(self._evaluation_steps, step)
            ahead = [stop for stop in self._evaluation_steps[first : first + max(1, most)] if stop <= last]
            noise = next((place for place, stop in enumerate(ahead, 1) if self._programs.has_noise(stop)), None)
            stops[slot] = ahead[:noise][:most]
            until[slot] = ahead[:noise][-1] if noise or len(ahead) == max(1, most) else last
            longest = max(longest, until[slot] - step)
        num_steps = self._stopwatch.bound(longest, CHUNK_S)
        self._report(Activity.TRAINING, running)
        with self._stopwatch.stepping(num_steps, len(running)) as work:
            work.steps, work.evaluations = self._train_and_measure(running, until, stops, num_steps, goal)
        with self._stopwatch.compiling():
            self._add_noise([entry.trial for entry in running.values()])

    def _add_noise(self, trials: Sequence[Trial]) -> None:
        """Measure the gradient noise of trials whose other measurements of this step are new."""
        for trial in trials:
            row = dict(trial.rows.get(trial.step, {}))
            if self._programs.has_noise(trial.step) and np.isnan(row.get(EXAMPLES_COLUMN, 0.0)):
                slot = self._population.slot_of(trial.trial_id)
                trial.rows[trial.step] = row | self._programs.measure_noise(self._population.state, slot, trial.step)

    def _train_and_measure(
        self,
        running: dict[int, _Running],
        until: Mapping[int, int],
        stops: Mapping[int, Sequence[int]],
        num_steps: int,
        goal: Goal | None,
    ) -> tuple[int, int]:
        """Run a chunk with these last steps and stops by slot; return the numbers of its steps and evaluations."""
        slots = range(self.population_size)
        chunk = make_chunk(
            [until.get(slot, 0) for slot in slots],
            [stops.get(slot, ()) for slot in slots],
            num_steps,
            self._study,
            goal,
        )
        self._population.state, result = self._programs.train_and_measure(self._population.state, chunk)
        (steps, diverged, counts), empty_noise = result.slots.tolist(), self._programs.empty_noise
        metrics = self._programs.metrics
        for entry in running.values():
            slot = self._population.slot_of(entry.trial.trial_id)
            entry.trial.update(steps[slot], diverged[slot])
            for number, stop in enumerate(stops.get(slot, ())[: counts[slot]]):
                values = zip(metrics, result.values[:, slot, number].tolist(), strict=True)
                entry.trial.rows[stop] = dict(values) | empty_noise
        return int(result.num_steps), sum(counts)

    def _report(self, activity: Activity, running: dict[int, _Running]) -> None:
        """Report an activity; the first time, its program is compiled."""
        reported = activity if activity in self._compiled else Activity.COMPILING
        self._compiled |= {Activity.TRAINING, Activity.EVALUATING} if self._programs.measures_inside else {activity}
        self._on_activity(reported, max(entry.trial.step for entry in running.values()))

    def _save(self, running: dict[int, _Running]) -> None:
        for trial_id in running:
            self._population.save(trial_id)

    def _progress(self, task: TrialTask, entry: _Running | None) -> TrialProgress:
        if entry is None:
            return TrialProgress(task.trial_id, (), max(0, task.from_step), None, {})
        trial = entry.trial
        rows: list[Row] = [
            (step, values)
            for step, values in sorted(trial.rows.items())
            if step > task.from_step and self._is_evaluated(step)
        ]
        # a trunk that diverges is behind the branches that were measured
        diverged_at = trial.diverged_at and max(trial.diverged_at, 1 + max([task.from_step, *trial.rows]))
        return TrialProgress(task.trial_id, tuple(rows), trial.step, diverged_at, self._stopwatch.report())


def _is_done(entry: _Running, goal: Goal | None) -> bool:
    trial = entry.trial
    until = entry.task.until_step
    if trial.diverged_at is not None or trial.step >= until or until in trial.rows:
        return True
    return goal is not None and any(
        goal.is_reached_by(values.get(goal.metric, float("nan"))) for values in trial.rows.values()
    )
