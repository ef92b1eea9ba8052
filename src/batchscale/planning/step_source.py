"""Step times of one machine that were not measured: from a fitted model, from an estimate, or from both."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.errors import one_line
from batchscale.planning.estimate import StepEstimate
from batchscale.planning.step_form import FloatArray, Layout
from batchscale.planning.step_model import ESTIMATED, EXTRAPOLATED, StepModel

MEMORY_COLUMNS: Mapping[str, type[pl.DataType]] = {
    "micro_batch": pl.Int64,  # examples of a device in one pass; null: not known
    "accumulation": pl.Int64,  # passes of a step
    "sharding": pl.String,  # none, optimizer, gradients or parameters
    "recompute": pl.Boolean,  # true: the forward pass is computed again to save memory
}


@dataclass(frozen=True)
class StepSource:
    """The origins of a device's step times that were not measured: a fitted model, an estimate, or both."""

    device: str
    model: StepModel | None
    estimate: StepEstimate | None

    def predict(self, at: Layout) -> tuple[FloatArray, FloatArray, list[str]]:
        """Return step times, half widths of their intervals in logarithms, and their kinds.

        The model wins wherever it has a time with an interval, or interpolates; the estimate fills the rest.
        """
        missing = np.full(len(at), math.nan)
        times, widths = (missing, missing) if self.model is None else self.model.predict(at)
        kinds = [EXTRAPOLATED] * len(at) if self.model is None else self.model.kinds(at)
        if self.estimate is None:
            return times, widths, kinds
        guessed = np.isnan(times) | (np.isnan(widths) & (np.array(kinds, dtype=object) == EXTRAPOLATED))
        estimated, estimated_widths = self.estimate.predict(at)
        kinds = [ESTIMATED if guess else kind for guess, kind in zip(guessed, kinds, strict=True)]
        return np.where(guessed, estimated, times), np.where(guessed, estimated_widths, widths), kinds

    def memory_columns(self, at: Layout) -> list[pl.Series]:
        """Return ``MEMORY_COLUMNS`` of configurations; null if the need of memory is not known."""
        if self.estimate is None or self.estimate.work.memory is None:
            return [pl.Series(name, [None] * len(at), kind) for name, kind in MEMORY_COLUMNS.items()]
        least = self.estimate.least(at)
        passes = np.where(np.isfinite(least.passes), least.passes, np.nan)
        return [
            pl.Series("micro_batch", np.ceil(at.share / passes), nan_to_null=True),
            pl.Series("accumulation", passes, nan_to_null=True),
            pl.Series("sharding", least.sharding),
            pl.Series("recompute", least.recompute),
        ]

    def why_missing(self, at: Layout) -> str:
        """Return why configurations have no step time."""
        if self.estimate is None:
            tier = "several hosts" if (at.hosts > 1).any() else "this share of a batch"
            return f"nothing was timed on {one_line(self.device)} with {tier}"
        fewest = self.estimate.fewest_devices
        needed = "no number of them holds it" if fewest is None else f"at least {fewest:,} are needed"
        return f"a step does not fit into the memory of {one_line(self.device)}, or its links are not known; {needed}"
