"""The factor between the least time of a step and the measured one, from public results and from measurements.

``public_results.csv`` has published throughputs with their sources. The logarithm of measured by least time is modelled
as a mean of each kind of work, plus independent deviations: of the workload with its program, of the device, of that
workload on that device, and of the single configuration. Variances are the most likely ones for the public results;
predictions and their intervals follow by kriging, so a measurement of the same workload moves and narrows them, most
if it is of the same device. Intervals are Student's, with the number of workloads of the kind less one as freedom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from batchscale.planning.accelerators import read_accelerators, require_accelerator
from batchscale.planning.csv_rows import CsvRow, read_csv_rows
from batchscale.planning.curve import LEVEL
from batchscale.planning.devices import device_key
from batchscale.planning.language_model import LanguageModel
from batchscale.planning.memory import RECOMPUTED_WORK
from batchscale.planning.roofline import least_times
from batchscale.planning.step_form import FloatArray, Layout
from batchscale.planning.work import StepWork

PUBLIC_RESULTS = Path(__file__).with_name("public_results.csv")
FEWEST_WORKLOADS = 5  # for variances of a kind of its own
LEAST_VARIANCE = 0.02**2  # no two configurations agree better than 2 %


@dataclass(frozen=True)
class Slowdown:
    """The logarithm of measured by least time of one configuration."""

    kind: str
    workload: str
    device: str
    value: float
    least_s: float = math.nan


@dataclass(frozen=True)
class PublicResult:
    """A published throughput, with the least time of its step."""

    name: str
    slowdown: Slowdown
    work: StepWork
    hosts: int
    devices: int
    batch_size: int
    step_time_s: float
    source: str


@cache
def public_results() -> tuple[PublicResult, ...]:
    """Return the published results of the shipped file."""
    needed = ("result", "kind", "workload", "device", "precision", "hosts", "devices_per_host", "batch_size")
    return tuple(_result(row) for row in read_csv_rows(PUBLIC_RESULTS, "public results", needed).rows)


def _result(row: CsvRow) -> PublicResult:
    work = _work(row)
    hosts, per_host, batch_size = (row.required(name) for name in ("hosts", "devices_per_host", "batch_size"))
    devices = hosts * per_host
    accelerator = require_accelerator(row.text("device"), read_accelerators())
    share = -(-batch_size // devices)
    at = Layout(*(np.array([float(value)]) for value in (hosts, devices, share)))
    least = float(least_times(work, accelerator, at).seconds[0])
    seconds = batch_size / (row.number("examples_per_s") or math.nan)
    device = precise_device(row.text("device"), work.precision)
    slowdown = Slowdown(work.kind, row.text("workload"), device, math.log(seconds / least), least)
    return PublicResult(row.text("result"), slowdown, work, hosts, devices, batch_size, seconds, row.text("source"))


def _work(row: CsvRow) -> StepWork:
    again = RECOMPUTED_WORK if row.flag("recompute") else 1.0
    if row.text("layers"):
        sizes = {name: row.required(name) for name in ("layers", "width", "heads", "sequence_length", "vocabulary")}
        precision = row.text("precision")
        model = LanguageModel.model_validate({**sizes, "parameters": row.number("parameters"), "precision": precision})
        work = model.work()
        flops, moved, bytes_per_pass = work.flops_per_example, work.bytes_per_example, work.bytes_per_pass
        update = work.bytes_per_update
    else:
        flops, moved, bytes_per_pass, update = row.number("flops_per_example") or 0.0, 0.0, 0.0, 0.0
    parameters = row.number("parameters") or 0.0
    return StepWork(
        row.text("kind"), row.text("precision"), again * flops, moved, parameters, 0.0, bytes_per_pass, update
    )


def precise_device(device: str, precision: str) -> str:
    """Return a key of a device in a precision; both formats of 16 bits are the same.

    >>> precise_device("NVIDIA Tesla T4", "float16") == precise_device("T4", "bfloat16")
    True
    """
    return f"{device_key(device)} {'16 bits' if precision in ('float16', 'bfloat16') else precision}"


@dataclass(frozen=True)
class Variances:
    """Variances of the logarithm: of workloads, devices, workloads on a device, and single configurations."""

    workload: float
    device: float
    both: float
    single: float

    @property
    def total(self) -> float:
        """Return the variance of one configuration of an unknown workload on an unknown device."""
        return self.workload + self.device + self.both + self.single

    def covariance(self, a: Sequence[Slowdown], b: Sequence[Slowdown]) -> FloatArray:
        """Return the covariances of two sets of configurations, without the part of single ones."""
        return self.combine(*_shared(a, b))

    def combine(self, same_work: FloatArray, same_device: FloatArray) -> FloatArray:
        """Return the covariances by what pairs of configurations share."""
        return np.asarray(self.workload * same_work + self.device * same_device + self.both * same_work * same_device)


def _shared(a: Sequence[Slowdown], b: Sequence[Slowdown]) -> tuple[FloatArray, FloatArray]:
    works = [[float(x.workload == y.workload) for y in b] for x in a]
    devices = [[float(x.device == y.device) for y in b] for x in a]
    return np.array(works).reshape(len(a), len(b)), np.array(devices).reshape(len(a), len(b))


def fit_variances(results: Sequence[Slowdown]) -> Variances:
    """Return the variances under which results are most likely (restricted likelihood), with a mean for each kind."""
    from scipy.optimize import minimize

    values, means = np.array([result.value for result in results]), _kind_columns(results)
    shared, alone = _shared(results, results), np.eye(len(results))

    def unlikelihood(logs: FloatArray) -> float:
        variances = Variances(*np.exp(np.clip(logs, -12, 4)))
        matrix = variances.combine(*shared) + (variances.single + LEAST_VARIANCE) * alone
        inverse = np.linalg.inv(matrix)
        inner = means.T @ inverse @ means
        rest = values - means @ np.linalg.solve(inner, means.T @ inverse @ values)
        return float(np.linalg.slogdet(matrix)[1] + np.linalg.slogdet(inner)[1] + rest @ inverse @ rest)

    solution = minimize(unlikelihood, np.log([0.05, 0.02, 0.02, 0.01]), method="Nelder-Mead", options={"maxiter": 600})
    return Variances(*(float(value) for value in np.exp(np.clip(solution.x, -12, 4))))


def _kind_columns(results: Sequence[Slowdown]) -> FloatArray:
    kinds = sorted({result.kind for result in results})
    return np.array([[float(result.kind == kind) for kind in kinds] for result in results])


@cache
def public_variances(kind: str) -> Variances:
    """Return the variances of the shipped public results of a kind."""
    return kind_variances(kind, [result.slowdown for result in public_results()])


def kind_variances(kind: str, results: Sequence[Slowdown]) -> Variances:
    """Return the variances of a kind: of its own results if they are of enough workloads, else of all kinds."""
    own = [result for result in results if result.kind == kind]
    return fit_variances(own if len({result.workload for result in own}) >= FEWEST_WORKLOADS else results)


@dataclass(frozen=True)
class Efficiency:
    """The factor by which a step takes longer than its least time, and the half width of its 90 % interval in logs."""

    factor: float
    half_width: float

    @property
    def share(self) -> tuple[float, float, float]:
        """Return the share of the device's peak that is used: low, middle, high."""
        reach = math.exp(self.half_width)
        return 1 / (self.factor * reach), 1 / self.factor, reach / self.factor


@dataclass(frozen=True)
class Outlook:
    """The slowdowns of one workload on several devices before they are measured: means, covariances, freedom."""

    means: FloatArray
    covariance: FloatArray
    freedom: int

    def half_width(self, variance: float) -> float:
        """Return the half width of a 90 % interval."""
        from scipy.special import stdtrit  # only a plan needs SciPy

        return float(stdtrit(self.freedom, (1 + LEVEL) / 2)) * math.sqrt(max(variance, 0.0))


def predict_efficiency(
    kind: str,
    workload: str,
    device: str,
    measured: Sequence[Slowdown] = (),
    public: Sequence[Slowdown] | None = None,
    variances: Variances | None = None,
) -> Efficiency:
    """Return the efficiency of a workload on a device, by its ``precise_device``; see ``predict_slowdowns``."""
    outlook = predict_slowdowns(kind, workload, [device], measured, public, variances)
    return Efficiency(math.exp(outlook.means[0]), outlook.half_width(float(outlook.covariance[0, 0])))


def predict_slowdowns(
    kind: str,
    workload: str,
    devices: Sequence[str],
    measured: Sequence[Slowdown] = (),
    public: Sequence[Slowdown] | None = None,
    variances: Variances | None = None,
) -> Outlook:
    """Return the slowdowns of a workload on devices, each in one configuration that was not measured.

    Args:
        kind: Its kind of work.
        workload: Its name; measurements of the same name inform it most.
        devices: By their ``precise_device``.
        measured: Measurements of this workload, on any device.
        public: Results of others; None: the shipped ones.
        variances: None: those of the shipped results.
    """
    used = variances or public_variances(kind)
    others = [result.slowdown for result in public_results()] if public is None else list(public)
    results = [*(result for result in others if result.kind == kind), *measured] or others
    targets = [Slowdown(kind, workload, device, 0.0) for device in devices]
    values = np.array([result.value for result in results])
    single = used.single + LEAST_VARIANCE
    inverse = np.linalg.inv(used.covariance(results, results) + single * np.eye(len(results)))
    towards = used.covariance(targets, results)
    ones = np.ones(len(values))
    spread_of_mean = 1 / float(ones @ inverse @ ones)
    mean = spread_of_mean * float(ones @ inverse @ values)
    left = 1 - towards @ inverse @ ones  # the part of the common mean in each prediction
    covariance = used.covariance(targets, targets) + single * np.eye(len(targets)) - towards @ inverse @ towards.T
    covariance += spread_of_mean * np.outer(left, left)
    freedom = max(len({result.workload for result in results}) - 1, 1)
    return Outlook(mean + towards @ inverse @ (values - mean), np.asarray(covariance), freedom)
