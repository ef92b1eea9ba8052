"""The JSON objects of analyses: plain dicts with null where a number is missing or not finite."""

import math
from dataclasses import asdict
from typing import Any

from batchscale.analysis.answer import make_answer
from batchscale.analysis.curve_analysis import ANALYSIS_SCHEMA, Analysis
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.least_squares import FamilyFit
from batchscale.analysis.regimes import Regimes
from batchscale.analysis.sentences import answer_sentences, curve_sentences
from batchscale.analysis.summary import CurveSummary
from batchscale.analysis.units import SizeUnit

VERSION = 2  # of the objects that analyze, fit, suggest and compare print; 1 had no such key

CURVE_KEYS = (
    "batch_size",
    "steps",
    "steps_low",
    "steps_high",
    "trial_id",
    "trials",
    "reached",
    "infeasible",
    "incomplete",
    "stopped",
    "share_reached",
    "at_edge",
    "edge",
    "edge_distance",
    "searches",
    "extra_searches",
    "examples",
    "epochs",
    "spacing",
    "still_moves",
    "interval_note",
    "search_steps",
    "seeds",
)

SIZE_KEYS = (
    "b_crit",
    "b_crit_low",
    "b_crit_high",
    "b_opt",
    "b_opt_low",
    "b_opt_high",
    "b_opt_band_low",
    "b_opt_band_high",
    "perfect_scaling_end",
    "perfect_scaling_end_low",
    "perfect_scaling_end_high",
    "max_useful_batch_size",
    "max_useful_batch_size_low",
    "max_useful_batch_size_high",
    "cheapest_batch_size",
    "overhead_batch_size",
    "e_min",
)
"""The keys of the ``scaling`` object that count examples."""


def analysis_json(answer: Analysis) -> dict[str, Any]:
    """Return the object that ``batchscale analyze --json`` prints for a workload."""
    metaparameters = [name for name in answer.curve.columns if name not in ANALYSIS_SCHEMA]
    ratios = {} if answer.summary is None else {p.batch_size: p.examples_ratio for p in answer.summary.points}
    return {
        "version": VERSION,
        "workload": str(answer.workload),
        "goal": str(answer.goal),
        "tokens_per_example": answer.unit.tokens_per_example,
        "curve": [
            {key: finite(row[key]) for key in CURVE_KEYS}
            | point_tokens(answer.unit, row["batch_size"], row["examples"])
            | {"verdict": row["stability"]}
            | _ratio_json(ratios.get(row["batch_size"]))
            | {"metaparameters": {name: finite(row[name]) for name in metaparameters if row[name] is not None}}
            | {"derived": dict(answer.derived.get(row["batch_size"], {}))}
            for row in answer.curve.iter_rows(named=True)
        ],
        "scaling": scaling_json(answer),
    }


def scaling_json(answer: Analysis) -> dict[str, Any]:
    """Return the ``scaling`` object: the fit, the regimes and their intervals; ``refusal`` explains nulls."""
    summary = answer.summary
    regimes = None if summary is None else summary.regimes
    return {
        **_fit_json(summary),
        **_regimes_json(regimes),
        **optimal_json(summary),
        "in_tokens": _in_tokens({**_fit_json(summary), **_regimes_json(regimes), **optimal_json(summary)}, answer.unit),
        "refusal": answer.refusal if summary is None else summary.fit_refusal,
        "drift": [] if summary is None else [{"trials": n, "b_crit": b} for n, b in summary.drift],
        "doubts": list(answer.doubts),
        "failed_batch_sizes": [] if summary is None else list(summary.failed),
        "unfinished_batch_sizes": list(answer.unfinished),
        "key_figures": [asdict(figure) for figure in make_answer(answer).figures],
        "advice": [] if summary is None else list(curve_sentences(summary).advice),
        "sentences": list(answer_sentences(answer)),
    }


def fit_json(answer: Analysis) -> dict[str, Any]:
    """Return the object that ``batchscale fit --json`` prints: the ``scaling`` object with its version and points."""
    points = () if answer.summary is None else answer.summary.points
    runs = dict(answer.curve.select("batch_size", "runs").rows())
    curve = [
        {"batch_size": point.batch_size, "runs": runs[point.batch_size]}
        | {"steps": point.steps.value, "steps_low": point.steps.low, "steps_high": point.steps.high}
        | _ratio_json(point.examples_ratio)
        | point_tokens(answer.unit, point.batch_size, point.batch_size * (point.steps.value or 0))
        for point in points
    ]
    tokens = {"tokens_per_example": answer.unit.tokens_per_example}
    return {"version": VERSION, **tokens, **scaling_json(answer), "curve": curve}


def point_tokens(unit: SizeUnit, batch_size: int, examples: float | None) -> dict[str, Any]:
    """Return the tokens of a batch and the tokens to result; null where the tokens of an example are unknown."""
    return {"batch_size_tokens": unit.tokens(batch_size), "tokens": unit.tokens(examples)}


def _in_tokens(values: dict[str, Any], unit: SizeUnit) -> dict[str, int | None] | None:
    """Return the batch sizes of the ``scaling`` object in tokens; None where the tokens of an example are unknown."""
    if unit.tokens_per_example is None:
        return None
    return {key: unit.tokens(values[key]) for key in SIZE_KEYS}


def finite(value: Any) -> Any:
    """Return the value, or None for a number that JSON lacks.

    >>> finite(float("nan")), finite(2), finite("a")
    (None, 2, 'a')
    """
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fit_json(summary: CurveSummary | None) -> dict[str, Any]:
    fit = None if summary is None else summary.fit
    critical = Estimate() if summary is None else summary.critical
    return {
        "s_min": None if fit is None else finite(fit.s_min),
        "b_crit": finite(critical.value),
        "b_crit_low": finite(critical.low),
        "b_crit_high": finite(critical.high),
        "b_crit_interval_from": _interval_source(summary),
        "e_min": None if fit is None else finite(fit.e_min),
        "rms_log": None if fit is None else finite(fit.rms_log),
        "family": None if fit is None else fit.best.family.value,
        "families": [] if fit is None else [_family_json(family) for family in fit.families],
        "misfit": None if summary is None or summary.misfit is None else summary.misfit.error,
    }


def _interval_source(summary: CurveSummary | None) -> str | None:
    return None if summary is None or summary.noise is None or summary.misfit else summary.noise.value


def optimal_json(summary: CurveSummary | None) -> dict[str, Any]:
    """Return the keys of the batch size of fewest examples."""
    optimal = None if summary is None else summary.optimal
    size = Estimate() if optimal is None else optimal.batch_size
    return {
        "b_opt": finite(size.value),
        "b_opt_low": finite(size.low),
        "b_opt_high": finite(size.high),
        "b_opt_reason": None if optimal is None else optimal.reason,
        "b_opt_band_low": None if optimal is None else optimal.band[0],
        "b_opt_band_high": None if optimal is None else optimal.band[1],
    }


def _regimes_json(regimes: Regimes | None) -> dict[str, Any]:
    end = Estimate() if regimes is None else regimes.perfect_scaling_end
    useful = Estimate() if regimes is None else regimes.useful
    gain = Estimate() if regimes is None else regimes.last_doubling_gain
    return {
        "baseline": None if regimes is None else regimes.baseline.value,
        "perfect_scaling_end": None if regimes is None else regimes.perfect_end,
        "max_useful_batch_size": None if regimes is None else regimes.max_useful_batch_size,
        "max_useful_reached": None if regimes is None else regimes.max_useful_reached,
        "overhead_batch_size": None if regimes is None else regimes.overhead_batch_size,
        "perfect_scaling_end_low": _whole(end.low),
        "perfect_scaling_end_high": _whole(end.high),
        "max_useful_batch_size_low": _whole(useful.low),
        "max_useful_batch_size_high": _whole(useful.high),
        "cheapest_batch_size": None if regimes is None else regimes.cheapest,
        "proportional_end": None if regimes is None else regimes.perfect_end,
        "ending": None if regimes is None else regimes.plateau.value,
        "measured_fall": None if regimes is None else finite(regimes.measured_gain),
        "fall": finite(gain.value),
        "fall_low": finite(gain.low),
        "fall_high": finite(gain.high),
    }


def _ratio_json(ratio: Estimate | None) -> dict[str, Any]:
    return {
        "examples_ratio": None if ratio is None else ratio.value,
        "examples_ratio_low": None if ratio is None else ratio.low,
        "examples_ratio_high": None if ratio is None else ratio.high,
    }


def _family_json(fit: FamilyFit) -> dict[str, Any]:
    return {
        "family": fit.family.value,
        "s_min": finite(fit.s_min),
        "b_crit": finite(fit.b_crit),
        "b_opt": finite(fit.b_opt),
        "sharpness": finite(fit.sharpness),
        "rms_log": finite(fit.rms_log),
        "aicc": finite(fit.aicc),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
