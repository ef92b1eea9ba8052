"""A curve of the atlas: its workload, goal and source, its runs, and the row of the table that its analysis gives."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from batchscale.analysis.curve_analysis import Analysis, analyze_points

METADATA_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "curve": pl.String,  # the identifier
    "source": pl.String,  # a key of SOURCES
    "label": pl.String,  # model on data set (optimizer), as in titles
    "kind": pl.String,  # of model, one of KINDS
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,  # empty: not stated
    "goal": pl.String,
    "variant": pl.String,  # figure, benchmark versions, share: which of the source's curves
    "unit": pl.String,  # of the amounts of the runs, one of UNITS
    "batch_unit": pl.String,  # the things that a batch size counts
    "sequence": pl.Int64,  # tokens of such a thing, null if none or not stated
    "parameters": pl.Int64,
    "examples": pl.Int64,  # of the training set
    "resolution": pl.Float64,  # amount between two evaluations, null if not stated
    "note": pl.String,  # what to know about this curve alone
}
SUMMARY_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "main": pl.Boolean,  # the workload's curve in charts and short lists
    "sizes": pl.Int64,
    "runs": pl.Int64,
    "smallest": pl.Int64,
    "largest": pl.Int64,
    "family": pl.String,
    "b_crit": pl.Float64,
    "b_crit_low": pl.Float64,
    "b_crit_high": pl.Float64,
    "b_opt": pl.Float64,
    "b_opt_low": pl.Float64,
    "b_opt_high": pl.Float64,
    "perfect_scaling_end": pl.Int64,
    "max_useful_batch_size": pl.Int64,
    "max_useful_reached": pl.Boolean,
    "cheapest_batch_size": pl.Int64,
    "steps_at_cheapest": pl.Float64,  # null where steps are known up to a factor only
    "used": pl.Float64,  # fewest examples to result, in units of the batch; null likewise
    "misfit": pl.Float64,
}
CURVES_SCHEMA: Mapping[str, type[pl.DataType]] = {**METADATA_SCHEMA, **SUMMARY_SCHEMA}
RUNS_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "curve": pl.String,
    "batch_size": pl.Int64,
    "amount": pl.Float64,  # in the curve's unit; null for a run that did not reach the goal
}
UNITS = ("steps", "relative steps", "epochs", "samples", "tokens")
KINDS = (
    "fully connected",
    "convolutional",
    "transformer",
    "language model",
    "recurrent",
    "detection",
    "segmentation",
    "diffusion",
    "recommendation",
    "graph",
    "audio",
    "quadratic",
    "other",
)
FEWEST_SIZES = 3
_RELATIVE = 1e6  # steps of unknown scale are analysed in millions: far from the least of one step


@dataclass(frozen=True)
class AtlasCurve:
    """A curve with its runs: (batch size, amount in ``unit``), the amount None where the goal was not reached."""

    curve: str
    source: str
    label: str
    kind: str
    dataset: str
    model: str
    optimizer: str
    goal: str
    runs: Sequence[tuple[int, float | None]]
    unit: str = "steps"
    variant: str = ""
    batch_unit: str = "examples"
    sequence: int | None = None
    parameters: int | None = None
    examples: int | None = None
    resolution: float | None = None
    note: str = ""

    @property
    def is_absolute(self) -> bool:
        """True if the amounts can be turned into steps, not only up to a factor."""
        return self.unit in ("steps", "samples") or (
            {"epochs": self.examples, "tokens": self.sequence}.get(self.unit) is not None
        )

    @property
    def num_sizes(self) -> int:
        """The number of batch sizes that reached the goal."""
        return len({size for size, amount in self.runs if amount is not None})

    def metadata(self) -> dict[str, Any]:
        """Return the row of the table without its analysis."""
        return {name: getattr(self, name) for name in METADATA_SCHEMA}

    def steps(self) -> pl.DataFrame:
        """Return the runs as rows of ``batch_size`` and ``steps``, and ``spacing`` where the resolution is stated."""
        rows = [(size, self._steps(size, amount), self._steps(size, self.resolution)) for size, amount in self.runs]
        schema = {"batch_size": pl.Int64, "steps": pl.Float64, "spacing": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _steps(self, size: int, amount: float | None) -> float | None:
        if amount is None:
            return None
        if self.unit in ("steps", "relative steps"):
            return amount if self.unit == "steps" else amount * _RELATIVE
        if self.unit == "samples":
            return amount / size
        scale = {"epochs": self.examples, "tokens": self.sequence and 1 / self.sequence}[self.unit]
        return amount * (scale or _RELATIVE) / size

    def analyze(self) -> Analysis:
        """Return the analysis of the runs."""
        return analyze_points(self.steps())


def summary_row(curve: AtlasCurve, answer: Analysis) -> dict[str, Any]:
    """Return the columns of ``SUMMARY_SCHEMA`` of an analysed curve, without ``main``."""
    summary = answer.summary
    row: dict[str, Any] = dict.fromkeys(SUMMARY_SCHEMA)
    row |= {"sizes": curve.num_sizes, "runs": sum(amount is not None for _, amount in curve.runs)}
    if summary is None:
        return row
    critical, optimal, regimes = summary.critical, summary.optimal.batch_size, summary.regimes
    steps = summary.point(regimes.cheapest).steps.value
    return row | {
        "smallest": summary.smallest,
        "largest": summary.largest,
        "family": None if summary.fit is None else summary.fit.best.family.value,
        "b_crit": _finite(critical.value),
        "b_crit_low": _finite(critical.low),
        "b_crit_high": _finite(critical.high),
        "b_opt": _finite(optimal.value),
        "b_opt_low": _finite(optimal.low),
        "b_opt_high": _finite(optimal.high),
        "perfect_scaling_end": regimes.perfect_end,
        "max_useful_batch_size": regimes.max_useful_batch_size,
        "max_useful_reached": regimes.max_useful_reached,
        "cheapest_batch_size": regimes.cheapest,
        "steps_at_cheapest": _finite(steps) if curve.is_absolute else None,
        "used": _finite(steps and steps * regimes.cheapest) if curve.is_absolute else None,
        "misfit": None if summary.misfit is None else _finite(summary.misfit.error),
    }


def model_kind(model: str) -> str:
    """Return the kind of a model by its name; ``other`` where the name does not tell.

    >>> model_kind("fc_1024"), model_kind("transformer_base"), model_kind("resnet_8"), model_kind("mine")
    ('fully connected', 'language model', 'convolutional', 'other')
    """
    name = model.lower()
    prefixes = {
        "fully connected": ("fc", "mlp", "linear", "softmax"),
        "convolutional": ("simple_cnn", "resnet", "vgg", "cnn", "convnet", "densenet", "wide_resnet", "mobilenet"),
        "language model": ("transformer", "gpt", "llama", "olmo", "qwen", "nanochat", "mistral"),
        "transformer": ("bert", "vit", "roberta", "t5"),
        "recurrent": ("lstm", "gru", "rnn", "deepspeech"),
        "quadratic": ("quadratic",),
        "audio": ("ddsp",),
        "diffusion": ("diffusion", "flux", "sd_"),
    }
    for kind, starts in prefixes.items():
        if name.startswith(starts):
            return kind
    return "other"


def _finite(value: float | None) -> float | None:
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None
