"""The compiled training loop with measurements: a call trains every slot from stop to stop and evaluates it there.

Between two calls Python reads a few numbers. A call of the plain loop and one of the evaluation for every measurement
cost several times what training and measuring a small network takes (decision 0249).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.spec.durations import MAX_STEPS
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.training.devices import Devices
from batchscale.training.evaluation import make_measure
from batchscale.training.loop import StepConfig, is_alive, make_train
from batchscale.training.state import NOT_DIVERGED, TrialState, take_member
from batchscale.workloads.workload import Workload

MOST_STOPS = 64
"""The most measurements of a trial in one call."""


class Chunk(NamedTuple):
    """The work of one call: at most ``num_steps`` steps, each slot to its ``until``, measured at its ``stops``.

    Stops ascend from the slot's present step on; the rest of its row is ``MAX_STEPS``. A slot with ``until`` 0 is
    empty. ``target`` is the value of the goal's metric beyond which a measurement ends the call. ``batch_size`` is used
    by a program of several batch sizes only.
    """

    until: Any
    stops: Any
    batch_size: Any
    target: Any
    num_steps: Any


class ChunkResult(NamedTuple):
    """The number of steps of a call, three rows (step, divergence, measured stops) of all slots, and the measurements.

    ``values`` has axes metric, slot and stop.
    """

    num_steps: Any
    slots: Any
    values: Any


MeasuredAdvance = Callable[[TrialState, Chunk, Any, Any], tuple[TrialState, ChunkResult]]
"""(population, chunk, training data, evaluation data) → population, result; the population is consumed."""


def make_chunk(
    until: Sequence[int], stops: Sequence[Sequence[int]], num_steps: int, study: Study, goal: Goal | None
) -> Chunk:
    """Return the chunk for slots with these last steps and stops; a goal ends it too."""
    table = np.full((len(until), MOST_STOPS + 1), MAX_STEPS, np.int32)
    for row, steps in zip(table, stops, strict=True):
        row[: len(steps)] = steps
    worst = np.inf if study.goal.maximize else -np.inf
    target = np.float32(worst) if goal is None else _round_away(goal.value, worst)
    return Chunk(
        np.asarray(until, np.int32), table, np.int32(min(study.batch_size, MAX_STEPS)), target, np.int32(num_steps)
    )


def _round_away(value: float, worst: float) -> np.float32:
    """Return the float32 beyond which exactly those float32 values lie that lie beyond ``value``."""
    with np.errstate(over="ignore"):
        nearest = np.float32(value)
    is_past = float(nearest) < value if worst < 0 else float(nearest) > value
    return np.nextafter(nearest, np.float32(-worst)) if is_past else nearest


def make_measured_advance(
    workload: Workload, config: StepConfig, slots: int, devices: Devices, goal: Goal, several_sizes: bool
) -> MeasuredAdvance:
    """Return the compiled program of a chunk, for one batch size or for every multiple of the microbatch.

    It ends before its last step as soon as a trial has reached its own last step or the goal, or has diverged.
    """
    measure = make_measure(workload, devices)

    def measure_due(population: TrialState, due: jax.Array, counts: jax.Array, rows: Any, sets: Any) -> Any:
        def fill(slot: jax.Array | int, rows: Any) -> Any:
            new = measure(take_member(population, jnp.int32(slot)), sets)
            return {name: rows[name].at[slot, counts[slot]].set(new[name][0]) for name in rows}

        if slots == 1:
            return jax.lax.cond(due[0], lambda rows: fill(0, rows), lambda rows: rows, rows)
        order = jnp.argsort(~due, stable=True)
        return jax.lax.fori_loop(jnp.int32(0), due.sum(), lambda i, rows: fill(order[i], rows), rows)

    def advance(population: TrialState, chunk: Chunk, data: Any, sets: Any) -> tuple[TrialState, ChunkResult]:
        every = jnp.arange(slots)
        sized = replace(config, batch_size=jnp.asarray(chunk.batch_size)) if several_sizes else config
        train = make_train(workload, sized, slots)

        def to_next_stop(carry: Any) -> Any:
            _, left, counts, population, rows = carry
            stop = jnp.asarray(chunk.stops)[every, counts]
            distance = jnp.where(is_alive(population, chunk.until), stop - population.step, left)
            steps = jnp.clip(distance.min(), 0, left)
            population = train(population, chunk.until, data, steps)
            due = (population.step == stop) & (population.diverged_at == NOT_DIVERGED)
            rows = measure_due(population, due, counts, rows, sets)
            ended = ~is_alive(population, chunk.until)
            if goal.metric in rows:
                value = rows[goal.metric][every, counts]
                ended |= due & (value > chunk.target if goal.maximize else value < chunk.target)
            left = left - steps
            going = (left > 0) & ~jnp.any(ended & (chunk.until > 0))
            return going, left, counts + due, population, rows

        names = sorted(jax.eval_shape(measure, take_member(population, jnp.int32(0)), sets))
        rows = {name: jnp.full(chunk.stops.shape, jnp.nan, jnp.float32) for name in names}
        start = jnp.bool_(True), jnp.asarray(chunk.num_steps), jnp.zeros(slots, jnp.int32), population, rows
        _, left, counts, population, rows = jax.lax.while_loop(lambda carry: carry[0], to_next_stop, start)
        report = jnp.stack([population.step, population.diverged_at, counts])
        return population, ChunkResult(chunk.num_steps - left, report, jnp.stack([rows[name] for name in names]))

    return jax.jit(advance, donate_argnums=0)
