"""Confirmed points: the best trials of each search, trained again with new seeds.

The fewest steps of a hundred trials are partly luck: the winner's seed suited it. A confirmation trains the same
metaparameters with new seeds, so that its median has no such luck, and its spread is that of one training.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array
from batchscale.analysis.noise import FLOOR, Noise, NoiseSource
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.quantiles import student_quantile
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA
from batchscale.spec.goal import Goal

FEWEST_SEEDS = 3
"""With fewer new seeds a median says no more than the search."""


@dataclass(frozen=True, eq=False)
class Confirmation:
    """A trial that was trained again: ``log_steps`` by seed, growing; infinite where the goal was not reached."""

    batch_size: int
    trial_id: int
    log_steps: Array

    @property
    def seeds(self) -> int:
        """The number of new seeds."""
        return len(self.log_steps)

    @property
    def reached(self) -> int:
        """The number of new seeds that reached the goal."""
        return int(np.isfinite(self.log_steps).sum())

    @property
    def median(self) -> float:
        """The median of log steps; infinite if no more than half reached the goal."""
        middle = self.log_steps[(self.seeds - 1) // 2 : self.seeds // 2 + 1]
        return float(middle.mean())

    @property
    def steps(self) -> int:
        """The median steps to result, whole."""
        return max(1, round(math.exp(self.median)))

    @property
    def squares(self) -> tuple[float, int]:
        """The sum of squares of log steps around their mean, and its degrees of freedom; of the seeds that reached."""
        reached = self.log_steps[np.isfinite(self.log_steps)]
        return float(((reached - reached.mean()) ** 2).sum()) if len(reached) else 0.0, max(len(reached) - 1, 0)


def find_confirmations(records: Records, goal: Goal) -> dict[int, Confirmation]:
    """Return, by batch size, the confirmed trial of the fewest median steps.

    Sizes without a trial that most new seeds brought to the goal have none, nor have sizes with too few seeds.
    """
    confirming = trial_outcomes(records, goal, confirmations=True)
    if confirming.is_empty():
        return {}
    links = records.trials.select("batch_size", "trial_id", pl.col(METADATA).struct.field("confirms"))
    joined = confirming.join(links, on=["batch_size", "trial_id"])
    best: dict[int, Confirmation] = {}
    for (size, trial_id), group in sorted(joined.group_by("batch_size", "confirms"), key=lambda item: item[0]):
        reached = pl.when(pl.col("outcome") == Outcome.REACHED.value).then(pl.col("steps_to_goal"))
        steps = group.select(reached.cast(pl.Float64).fill_null(math.inf)).to_series().to_numpy()
        confirmation = Confirmation(int(size), int(trial_id), np.sort(np.log(np.maximum(steps, 1.0))))
        if confirmation.seeds < FEWEST_SEEDS or not math.isfinite(confirmation.median):
            continue
        if size not in best or confirmation.median < best[size].median:
            best[size] = confirmation
    return best


def use_confirmations(results: pl.DataFrame, records: Records, goal: Goal) -> pl.DataFrame:
    """Return results with the trial and the median steps of each confirmation, if every reached size has one.

    Otherwise they stay as they are: a curve of both kinds would bend where they meet.
    """
    confirmed = find_confirmations(records, goal)
    reached = results.drop_nulls("steps")["batch_size"]
    if not confirmed or not all(size in confirmed for size in reached):
        return results
    rows = [(size, confirmed[size].steps, confirmed[size].trial_id) for size in reached]
    columns = ["batch_size", "steps", "trial_id"]
    points = pl.DataFrame(rows, schema={name: results.schema[name] for name in columns}, orient="row")
    return results.update(points, on="batch_size")


def confirmed_noise(confirmations: Sequence[Confirmation]) -> Noise:
    """Return the noise of the medians, from the spread over seeds, pooled over batch sizes."""
    squares, freedoms = zip(*(confirmation.squares for confirmation in confirmations), strict=True)
    freedom = float(sum(freedoms))
    spread = max(sum(squares) / max(freedom, 1.0), FLOOR**2)
    # A median of n normal values varies by about π/2 times the mean's variance.
    counts = np.array([float(confirmation.reached) for confirmation in confirmations])
    return Noise(NoiseSource.SEEDS, np.maximum(math.pi / 2 * spread / counts, FLOOR**2), max(freedom, 1.0))


def confirmed_intervals(confirmations: Sequence[Confirmation], level: float) -> list[tuple[float, float]]:
    """Return Student's interval of each median, from the pooled spread over seeds."""
    noise = confirmed_noise(confirmations)
    reach = student_quantile(noise.freedom, (1 + level) / 2) * np.sqrt(noise.variances)
    centres = [confirmation.median for confirmation in confirmations]
    return [(math.exp(c - r), math.exp(c + r)) for c, r in zip(centres, reach.tolist(), strict=True)]
