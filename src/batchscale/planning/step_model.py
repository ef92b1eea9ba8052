"""The step time of one kind of device where it was not measured: a form chosen by AICc, its residuals, its limits.

Least squares of log step times. Leave-one-out errors (every measurement predicted by the others, same form) are
kept beside the residuals, because a form with as many parameters as points has no residuals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import PlanningError
from batchscale.planning.curve import LEVEL
from batchscale.planning.step_form import FloatArray, Form, Layout, Overlap, Tier, possible_forms
from batchscale.planning.step_times import StepTime, merge_step_times

FEWEST_SPARE = 3  # points beyond the parameters, for an AICc
UNSURE = 0.5  # a parameter whose standard error is half of it or more is not determined by these points
NEGLIGIBLE = 1e-4  # of the step time: a term that never takes more of it is not determined
MEASURED, INTERPOLATED, EXTRAPOLATED, ESTIMATED = "measured", "interpolated", "extrapolated", "estimated"


@dataclass(frozen=True)
class Parameter:
    """A parameter of the model; ``relative_error`` is its standard error by its value, None where it is not known."""

    name: str
    value: float
    relative_error: float | None

    @property
    def is_known(self) -> bool:
        """True if the measurements determine it."""
        return self.relative_error is not None and self.relative_error < UNSURE


@dataclass(frozen=True)
class StepModel:
    """A fitted model of one kind of device.

    Attributes:
        device: Its name.
        form: Its terms.
        values: Logarithms of the parameters, in the order of ``form.names``.
        times: The measurements, one per configuration.
        residuals: Relative errors of the fitted times, measurement by measurement.
        left_out: Relative errors when each measurement is predicted by the others; NaN if they cannot.
        aicc: The criterion of the form; None with too few points to choose.
        covariance: Of ``values``, for a spread of 1; None without spare points.
        spread: Standard deviation of log step times around the model; None likewise.
    """

    device: str
    form: Form
    values: FloatArray
    times: tuple[StepTime, ...]
    residuals: FloatArray
    left_out: FloatArray
    aicc: float | None
    covariance: FloatArray | None
    spread: float | None

    @property
    def freedom(self) -> int:
        """Return the points beyond the number of parameters."""
        return len(self.times) - self.form.size

    @property
    def worst_left_out(self) -> float | None:
        """Return the largest leave-one-out error, as a share; None if no measurement could be left out."""
        errors = np.abs(self.left_out[np.isfinite(self.left_out)])
        return float(errors.max()) if errors.size else None

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Return the parameters with their errors; ``overlap`` is the power g."""
        errors = self._relative_errors()
        values = np.exp(self.values)
        names = self.form.names
        return tuple(
            Parameter(name, float(value + (name == "overlap")), error)
            for name, value, error in zip(names, values, errors, strict=True)
        )

    def _relative_errors(self) -> list[float | None]:
        if self.covariance is None or self.spread is None:
            return [None] * self.form.size
        errors = self.spread * np.sqrt(np.maximum(np.diag(self.covariance), 0))
        share = _largest_shares(self.form, self.values, layout_of(self.times))
        return [float(e) if s > NEGLIGIBLE else None for e, s in zip(errors, share, strict=True)]

    def predict(self, at: Layout) -> tuple[FloatArray, FloatArray]:
        """Return step times and the half widths of their 90 % intervals in logarithms (NaN without an interval).

        The time is NaN for a kind of configuration that was never measured: several hosts, or another share of the
        batch if only one was timed.
        """
        from scipy.special import stdtrit  # only a plan needs SciPy

        times = self.form.times(self.values, at)
        times[~self._can_predict(at)] = math.nan
        if self.covariance is None or self.spread is None:
            return times, np.full(len(at), math.nan)
        slopes = _slopes(self.form, self.values, at)
        variance = self.spread**2 * (1 + np.einsum("ij,jk,ik->i", slopes, self.covariance, slopes))
        return times, float(stdtrit(self.freedom, (1 + LEVEL) / 2)) * np.sqrt(variance)

    def line(self, hosts: int, devices_per_host: int, shares: FloatArray) -> FloatArray:
        """Return the step times of one layout at several shares of a batch."""
        ones = np.ones(len(shares))
        return self.predict(Layout(hosts * ones, hosts * devices_per_host * ones, shares))[0]

    def _can_predict(self, at: Layout) -> NDArray[np.bool_]:
        seen = layout_of(self.times)
        tiers = set(seen.tiers())
        is_timed = np.array([tier in tiers or tier is Tier.ALONE for tier in at.tiers()], dtype=bool)
        return is_timed if self.form.per_example else is_timed & (at.share == seen.share[0])

    def kinds(self, at: Layout) -> list[str]:
        """Return for each configuration if its step time is interpolated or extrapolated.

        Extrapolated means beyond the measured shares of a batch, or the measured number of devices.
        """
        seen = layout_of(self.times)
        most = {
            tier: max(
                (n for n, timed_tier in zip(seen.devices, seen.tiers(), strict=True) if timed_tier is tier), default=1.0
            )
            for tier in Tier
        }
        inside = (at.share >= seen.share.min()) & (at.share <= seen.share.max())
        counts = np.array([most[tier] for tier in at.tiers()])
        return [INTERPOLATED if ok else EXTRAPOLATED for ok in inside & (at.devices <= counts)]


def fit_step_model(times: Sequence[StepTime]) -> StepModel:
    """Return the model of the step times of one kind of device.

    It is the form with the least AICc among those with a term for every tier that was timed. With too few points for
    an AICc it is the form with a latency for each tier, if there are as many points as parameters.

    Raises:
        PlanningError: there is nothing to fit.
    """
    if not times:
        raise PlanningError("A model of step times needs measured step times. Found none.")
    merged = merge_step_times(times)
    at, seconds = layout_of(merged), np.array([time.step_time_s for time in merged])
    forms = [form for form in possible_forms(at) if form.size <= len(merged)]
    scored = [form for form in forms if len(merged) - form.size >= FEWEST_SPARE]
    fitted = [(form, *_fit(form, at, seconds)) for form in scored]
    scores = [_aicc(error, len(merged), form.size) for form, _, error in fitted]
    if scores:
        score: float | None = min(scores)
        form, values, error = fitted[int(np.argmin(scores))]
    else:
        score, form = None, _plainest(forms)
        values, error = _fit(form, at, seconds)
    residuals = form.times(values, at) / seconds - 1
    left_out = _leave_one_out(form, at, seconds)
    spread, covariance = _uncertainty(form, values, at, error, left_out)
    return StepModel(merged[0].device, form, values, merged, residuals, left_out, score, covariance, spread)


def layout_of(times: Sequence[StepTime]) -> Layout:
    """Return the configurations of measured step times."""
    return Layout(
        np.array([time.hosts for time in times], dtype=np.float64),
        np.array([time.devices for time in times], dtype=np.float64),
        np.array([time.per_device_batch for time in times], dtype=np.float64),
    )


def _plainest(forms: Sequence[Form]) -> Form:
    """The form with too few points to choose: a sum with a latency for each tier, as far as the points reach."""
    plain = [form for form in forms if form.overlap is Overlap.SUM and not any("per_device" in t for t in form.terms)]
    return max(plain, key=lambda form: form.size, default=Form((), Overlap.SUM, per_example=False))


def _fit(form: Form, at: Layout, seconds: FloatArray) -> tuple[FloatArray, float]:
    """Logarithms of the best parameters and the sum of squared errors of log step times."""
    from scipy.optimize import least_squares

    def errors(parameters: FloatArray) -> FloatArray:
        return np.asarray(np.log(form.times(parameters, at)) - np.log(seconds))

    best: tuple[FloatArray, float] | None = None
    for start in _starts(form, at, seconds):
        solution = least_squares(errors, start, method="lm", max_nfev=2000)
        if best is None or 2 * solution.cost < best[1]:
            best = np.asarray(solution.x), float(2 * solution.cost)
    assert best is not None
    return best


def _starts(form: Form, at: Layout, seconds: FloatArray) -> list[FloatArray]:
    """The starting points of the search: the sum's least squares, which have one solution, and shifts of it."""
    from scipy.optimize import nnls

    weighted = form.columns(at) / seconds[:, None]
    solution, _ = nnls(weighted, np.ones(len(at)))
    # A time that came out as 0 starts small instead: a logarithm can come back from there.
    least = 1e-3 / np.maximum(weighted.max(axis=0), 1e-300)
    base = np.log(np.maximum(solution, least))
    if form.overlap is Overlap.SUM:
        return [base]
    compute = 2 if form.per_example else 1
    shifts = [np.where(np.arange(len(base)) >= compute, shift, 0.0) for shift in (0.0, 1.0, 2.0)]
    moved = [base + shift for shift in shifts]
    if form.overlap is Overlap.MAX:
        return moved
    return [np.append(start, power) for start, power in zip(moved, (-3.0, 0.0, 1.0), strict=True)]


def _aicc(error: float, count: int, parameters: int) -> float:
    """Akaike's criterion for small samples; the spread around the model is a parameter too."""
    free = parameters + 1
    return count * math.log(max(error, 1e-300) / count) + 2 * free + 2 * free * (free + 1) / (count - free - 1)


def _leave_one_out(form: Form, at: Layout, seconds: FloatArray) -> FloatArray:
    errors = np.full(len(at), math.nan)
    for i in range(len(at)):
        others = np.arange(len(at)) != i
        rest = at.take(others)
        # A term that only this measurement determines cannot be predicted without it.
        if len(rest) < form.size or np.linalg.matrix_rank(form.columns(rest)) < form.columns(rest).shape[1]:
            continue
        fitted, _ = _fit(form, rest, seconds[others])
        errors[i] = form.times(fitted, at.take(~others))[0] / seconds[i] - 1
    return errors


def _uncertainty(
    form: Form, values: FloatArray, at: Layout, error: float, left_out: FloatArray
) -> tuple[float | None, FloatArray | None]:
    freedom = len(at) - form.size
    if freedom < 1:
        return None, None
    slopes = _slopes(form, values, at)
    errors = left_out[np.isfinite(left_out)]
    # Residuals of a well-chosen form are too small; its errors on points left out are not.
    outside = math.sqrt(float(np.mean(np.log1p(np.maximum(errors, -0.999)) ** 2))) if errors.size else 0.0
    return max(math.sqrt(error / freedom), outside), np.asarray(np.linalg.pinv(slopes.T @ slopes), dtype=np.float64)


def _slopes(form: Form, values: FloatArray, at: Layout) -> FloatArray:
    """The derivatives of log step times by the logarithms of the parameters, by central differences."""
    small = 1e-5
    columns = []
    for i in range(len(values)):
        shift = np.zeros(len(values))
        shift[i] = small
        up, down = form.times(values + shift, at), form.times(values - shift, at)
        columns.append((np.log(up) - np.log(down)) / (2 * small))
    return np.stack(columns, axis=1)


def _largest_shares(form: Form, values: FloatArray, at: Layout) -> FloatArray:
    """The largest share of a step time that each parameter answers for."""
    return np.asarray(np.abs(_slopes(form, values, at)).max(axis=0))
