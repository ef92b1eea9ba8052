"""Branches of a trial that continue with another batch size: the training behind branched predictions.

A trunk is trained at one batch size and its states are kept at some steps. From such a state any number of branches
goes on with a factor of the batch size and of the learning rate, each in an order of examples of its own. Branches of
one number read the same examples in the same order whatever their batch size, so that they can be compared in pairs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.plan import Study
from batchscale.spec.space import convert_half_lives
from batchscale.training.compilation import use_compilation_cache
from batchscale.training.programs import Programs
from batchscale.training.settings import EngineSettings
from batchscale.training.state import NOT_DIVERGED, TrialState, stream_keys
from batchscale.workloads.workload import Workload

CHUNK_STEPS = 500
"""The most steps between two calls of ``should_stop``."""

STEPS_SUFFIX = "_steps"
"""Metaparameters with this ending are lengths in steps, which shrink as the batch grows."""


@dataclass(frozen=True)
class Branching:
    """The branches to train from a state.

    Attributes:
        factor: The batch size, as a multiple of the trunk's.
        rate_factor: The learning rate, likewise.
        steps: The steps after the state at which to measure, growing; step 0 is the state itself.
        orders: The numbers of the branches, one order of examples each.
    """

    factor: int
    rate_factor: float
    steps: tuple[int, ...]
    orders: tuple[int, ...]


class BranchTrainer:
    """Trains trunks and branches of one workload; programs are compiled once per batch size."""

    def __init__(
        self,
        workload: Workload,
        make_study: Callable[[int], Study],
        evaluation: EvaluationPlan,
        settings: EngineSettings,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        use_compilation_cache()
        self._workload, self._make_study, self._evaluation = workload, make_study, evaluation
        self._settings, self._should_stop = settings, should_stop
        self._compiled: tuple[tuple[int, int], Programs] | None = None

    def train_trunk(
        self, batch_size: int, parameters: Mapping[str, float], seed: int, steps: Sequence[int]
    ) -> list[TrialState]:
        """Return the states of a trial at these steps, growing; fewer if it diverges before.

        Raises:
            KeyboardInterrupt: ``should_stop`` returned True.
        """
        programs = self._make_programs(batch_size, 1)
        tokens = self._workload.dataset.tokens_per_example or 1
        values = {**_defaults(self._workload), **convert_half_lives(parameters, batch_size * tokens)}
        state = programs.init(seed, {name: values[name] for name in programs.names})
        population, states = programs.populate(state, 1), []
        for step in steps:
            population = self._advance(programs, population, step)
            if int(np.asarray(population.diverged_at)[0]) != NOT_DIVERGED:
                break
            states.append(jax.tree.map(lambda leaf: np.array(np.asarray(leaf)[0]), population))
        return states

    def train_branches(
        self, state: TrialState, batch_size: int, branching: Branching
    ) -> list[list[Mapping[str, float] | None]]:
        """Return the metrics of each branch, by order and then by step; None from where it diverged.

        Raises:
            KeyboardInterrupt: ``should_stop`` returned True.
        """
        programs = self._make_programs(batch_size * branching.factor, len(branching.orders))
        members = [_leave(state, branching, order) for order in branching.orders]
        population: TrialState = programs.devices.replicate(
            jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *members)
        )
        start = int(np.asarray(members[0].step))
        slots = range(len(members))
        measured: list[list[Mapping[str, float] | None]] = [[] for _ in slots]
        for step in branching.steps:
            population = self._advance(programs, population, start + step)
            metrics, diverged = programs.evaluate(population, list(slots)), np.asarray(population.diverged_at)
            for slot in slots:
                row = {name: float(values[slot][0]) for name, values in metrics.items()}
                measured[slot].append(row if diverged[slot] == NOT_DIVERGED else None)
        return measured

    def _make_programs(self, batch_size: int, slots: int) -> Programs:
        """Return the programs of a batch size; those of the last one are kept."""
        if self._compiled is None or self._compiled[0] != (batch_size, slots):
            settings = replace(self._settings, population=slots)
            programs = Programs(self._workload, self._make_study(batch_size), self._evaluation, settings)
            self._compiled = (batch_size, slots), programs
        return self._compiled[1]

    def _advance(self, programs: Programs, population: TrialState, until: int) -> TrialState:
        """Return the population at a step; members that diverge stay where they did."""
        steps = np.asarray(population.step)
        left = until - int(steps.max())
        while left > 0:
            if self._should_stop():
                raise KeyboardInterrupt
            chunk = min(left, CHUNK_STEPS)
            population = programs.advance(population, np.full(len(steps), until, np.int32), chunk)
            left -= chunk
        return population


def _defaults(workload: Workload) -> dict[str, float]:
    return {name: value for name, value in workload.defaults.items() if value is not None}


def _leave(state: TrialState, branching: Branching, order: int) -> TrialState:
    """Return the state of a branch before its first step; what counts in steps of the schedule is shortened."""
    _, order_key, noise = stream_keys(jnp.uint32(order))
    k = branching.factor

    def is_schedule(node: object) -> bool:
        return isinstance(node, optax.ScaleByScheduleState)

    def shorten(node: Any) -> Any:
        return optax.ScaleByScheduleState(jnp.int32(node.count) // k) if is_schedule(node) else node

    values = {
        name: jnp.float32(value) / k if name.endswith(STEPS_SUFFIX) else value
        for name, value in state.metaparameters.items()
    }
    values["learning_rate"] = jnp.float32(values["learning_rate"]) * branching.rate_factor
    opt_state = jax.tree.map(shorten, state.opt_state, is_leaf=is_schedule)
    return state._replace(order_key=order_key, noise_key=noise, opt_state=opt_state, metaparameters=values)
