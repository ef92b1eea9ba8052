"""Every configuration that can be used: a machine, a number of hosts and a batch size, with the inputs of its cost.

They come from runs (each configuration by its own runs), or from a curve, machines, and step times or their estimates.
Configurations that cannot be used are left out and counted with the reason.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.errors import PlanningError
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.devices import device_key
from batchscale.planning.estimate import StepEstimate
from batchscale.planning.machines import Machine
from batchscale.planning.runs import FinishedRun, Runs, grouped, pooled_step_time, recipe_point, unreached_text
from batchscale.planning.step_form import FloatArray, Layout
from batchscale.planning.step_model import MEASURED, StepModel
from batchscale.planning.step_source import MEMORY_COLUMNS, StepSource
from batchscale.planning.step_times import StepTime

CANDIDATE_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "machine": pl.String,
    "device": pl.String,
    "hosts": pl.Int64,
    "devices_per_host": pl.Int64,
    "batch_size": pl.Int64,
    "per_device_batch": pl.Int64,
    "metaparameters": pl.String,
    "steps": pl.Float64,
    "steps_low": pl.Float64,
    "steps_high": pl.Float64,
    "steps_from": pl.String,  # measured, interpolated or predicted
    "attempts": pl.Int64,  # null: not known, every run is expected to succeed
    "successes": pl.Int64,
    "give_up": pl.Float64,
    "step_time_s": pl.Float64,
    "step_time_low_s": pl.Float64,
    "step_time_high_s": pl.Float64,
    "step_time_from": pl.String,  # measured, interpolated, extrapolated or estimated
    **MEMORY_COLUMNS,
    "efficiency": pl.Float64,  # step time of one device with the same share of a batch, by this step time
    "price_per_hour": pl.Float64,  # of all hosts together
    "fixed_price": pl.Float64,
    "startup_s": pl.Float64,
    "spot": pl.Boolean,  # true: hosts may be taken away
    "interruptions_per_hour": pl.Float64,  # of all hosts together
    "unit": pl.String,
    "price_low": pl.Float64,  # of all hosts together and an hour; null: the price is fixed
    "price_high": pl.Float64,
    "interruptions_low": pl.Float64,  # of all hosts together; null: the rate is taken as exact
    "interruptions_high": pl.Float64,
}

MAX_CANDIDATES = 2_000_000


@dataclass(frozen=True)
class Candidates:
    """A frame of ``CANDIDATE_SCHEMA``, and a sentence for each reason to leave configurations out."""

    frame: pl.DataFrame
    left_out: tuple[str, ...] = ()


def measured_candidates(runs: Runs) -> Candidates:
    """Return the configurations that were run, each with the steps, seconds and costs of its runs.

    The seconds of a run include start-up and evaluations, so nothing is added for them.
    """
    if not runs.have_machines or runs.unit is None:
        raise PlanningError(
            "Runs make a plan alone if each has device, seconds and cost. Found runs without; give step times and "
            "machines."
        )
    rows, left_out = [], []
    groups = grouped(runs.runs, lambda run: (run.configuration, run.recipe))
    alone = _alone(runs.runs)
    for group in groups.values():
        point = recipe_point(group)
        if point is None:
            left_out.append(f"{group[0].device}, {_size_text(group[0])}: {unreached_text(group)}")
        else:
            rows.append(_measured_row(group, point, runs.unit, alone))
    if not rows:
        raise PlanningError(
            "A plan needs runs that reached the goal. Found none: "
            f"{'; '.join(left_out[:3])}. Train longer or set an easier goal."
        )
    return Candidates(pl.DataFrame(rows, schema=CANDIDATE_SCHEMA), tuple(left_out))


def _alone(runs: Iterable[FinishedRun]) -> dict[tuple[str, int], float]:
    """Step times of one device, by device and batch."""
    single = grouped(
        (run for run in runs if run.hosts * run.devices_per_host == 1 and run.seconds is not None),
        lambda run: (device_key(run.device or ""), run.batch_size),
    )
    return {key: pooled_step_time(group)[0] for key, group in single.items()}


def _size_text(run: FinishedRun) -> str:
    return f"{run.hosts} host{'s' if run.hosts > 1 else ''} × {run.devices_per_host}"


def _measured_row(
    group: Sequence[FinishedRun], point: CurvePoint, unit: str, alone: Mapping[tuple[str, int], float]
) -> dict[str, object]:
    first = group[0]
    step_time, low, high = pooled_step_time(group)
    hours = sum(run.seconds or 0.0 for run in group) / 3600
    share = -(-first.batch_size // (first.hosts * first.devices_per_host))
    single = alone.get((device_key(first.device or ""), share))
    return {
        "machine": f"{first.device} x{first.devices_per_host}",
        "device": first.device,
        "hosts": first.hosts,
        "devices_per_host": first.devices_per_host,
        "batch_size": first.batch_size,
        "per_device_batch": share,
        "metaparameters": first.metaparameters,
        "steps": point.steps,
        "steps_low": point.low,
        "steps_high": point.high,
        "steps_from": MEASURED,
        "attempts": point.attempts,
        "successes": point.successes,
        "give_up": point.give_up,
        "step_time_s": step_time,
        "step_time_low_s": low,
        "step_time_high_s": high,
        "step_time_from": MEASURED,
        **dict.fromkeys(MEMORY_COLUMNS),
        "efficiency": None if single is None else single / step_time,
        "price_per_hour": sum(run.cost or 0.0 for run in group) / hours,
        "fixed_price": 0.0,
        "startup_s": 0.0,
        "spot": False,
        "interruptions_per_hour": 0.0,
        "unit": unit,
        **dict.fromkeys(("price_low", "price_high", "interruptions_low", "interruptions_high")),
    }


def make_candidates(
    curve: PlanCurve,
    times: Sequence[StepTime],
    models: Mapping[str, StepModel],
    machines: Sequence[Machine],
    device_keys: Mapping[str, str],
    estimates: Mapping[str, StepEstimate] | None = None,
) -> Candidates:
    """Return every machine with every number of its hosts, at every point of the curve, as far as it can be used.

    Args:
        curve: The points.
        times: Measured step times, one per configuration.
        models: By ``device_key``, for configurations that were not timed.
        machines: All with prices in one unit.
        device_keys: The key in ``models`` of each machine's device.
        estimates: By the name of a machine, for what neither was timed nor can be modelled. Machines with neither a
            model nor an estimate are left out.
    """
    count = sum(machine.max_hosts for machine in machines) * len(curve.points)
    if count > MAX_CANDIDATES:
        raise PlanningError(
            f"A plan has at most {MAX_CANDIDATES:,} configurations. Found {count:,}; allow "
            "fewer hosts (--max-hosts) or fewer machines (--machine)."
        )
    left_out: Counter[str] = Counter()
    frames = [pl.DataFrame(schema=CANDIDATE_SCHEMA)]
    limits = _limits(times)
    for machine in machines:
        key = device_keys.get(machine.device)
        model = None if key is None else models.get(key)
        estimate = (estimates or {}).get(machine.name)
        if model is None and estimate is None:
            _count(left_out, f"no step time of {machine.device} was measured", machine.max_hosts * len(curve.points))
            continue
        limit = _least(machine.max_batch_per_device, limits.get(key or ""))
        frame = _feasible(_combinations(machine, curve.points), limit, left_out)
        device_times = [time for time in times if device_key(time.device) == key]
        frames.append(_with_step_times(frame, device_times, StepSource(machine.device, model, estimate), left_out))
    return Candidates(pl.concat(frames), tuple(f"{number:,} configurations: {why}" for why, number in left_out.items()))


def _combinations(machine: Machine, points: Sequence[CurvePoint]) -> pl.DataFrame:
    """All combinations, without step times."""
    hosts = np.arange(1, machine.max_hosts + 1)
    curve = pl.DataFrame(
        {
            "batch_size": [point.batch_size for point in points],
            "metaparameters": [point.metaparameters for point in points],
            "steps": [float(point.steps) for point in points],
            "steps_low": pl.Series([point.low for point in points], dtype=pl.Float64),
            "steps_high": pl.Series([point.high for point in points], dtype=pl.Float64),
            "steps_from": [point.source for point in points],
            "attempts": pl.Series([point.attempts for point in points], dtype=pl.Int64),
            "successes": pl.Series([point.successes for point in points], dtype=pl.Int64),
            "give_up": pl.Series([point.give_up for point in points], dtype=pl.Float64),
        }
    )
    devices = pl.col("hosts") * machine.devices_per_host
    return (
        pl.DataFrame({"hosts": hosts})
        .join(curve, how="cross")
        .with_columns(
            pl.lit(machine.name).alias("machine"),
            pl.lit(machine.device).alias("device"),
            pl.lit(machine.devices_per_host, dtype=pl.Int64).alias("devices_per_host"),
            ((pl.col("batch_size") + devices - 1) // devices).alias("per_device_batch"),
            (pl.col("hosts") * machine.price_per_host_hour).alias("price_per_hour"),
            pl.lit(machine.fixed_price, dtype=pl.Float64).alias("fixed_price"),
            pl.lit(machine.startup_s, dtype=pl.Float64).alias("startup_s"),
            pl.lit(machine.spot, dtype=pl.Boolean).alias("spot"),
            (pl.col("hosts") * float(machine.interruptions_per_hour)).alias("interruptions_per_hour"),
            pl.lit(machine.unit).alias("unit"),
            *(
                (pl.col("hosts") * pl.lit(getattr(machine, name), dtype=pl.Float64)).alias(name)
                for name in ("price_low", "price_high", "interruptions_low", "interruptions_high")
            ),
        )
    )


def _feasible(frame: pl.DataFrame, limit: int | None, left_out: Counter[str]) -> pl.DataFrame:
    enough = frame.filter(pl.col("hosts") * pl.col("devices_per_host") <= pl.col("batch_size"))
    _count(left_out, "more devices than examples in a batch", frame.height - enough.height)
    if limit is None:
        return enough
    fits = enough.filter(pl.col("per_device_batch") <= limit)
    _count(left_out, f"more than the {limit} examples that a device's memory holds", enough.height - fits.height)
    return fits


def _with_step_times(
    frame: pl.DataFrame, device_times: Sequence[StepTime], source: StepSource, left_out: Counter[str]
) -> pl.DataFrame:
    """Add measured step times, else those of the model or the estimate; what none of them has is left out."""
    table = pl.DataFrame(
        {
            "hosts": pl.Series([time.hosts for time in device_times], dtype=pl.Int64),
            "devices_per_host": pl.Series([time.devices_per_host for time in device_times], dtype=pl.Int64),
            "batch_size": pl.Series([time.batch_size for time in device_times], dtype=pl.Int64),
            "measured": pl.Series([time.step_time_s for time in device_times], dtype=pl.Float64),
            "measured_low": pl.Series([time.low for time in device_times], dtype=pl.Float64),
            "measured_high": pl.Series([time.high for time in device_times], dtype=pl.Float64),
        }
    )
    joined = frame.join(table, on=["hosts", "devices_per_host", "batch_size"], how="left", maintain_order="left")
    hosts, per_host, share = (
        joined[name].to_numpy().astype(np.float64) for name in ("hosts", "devices_per_host", "per_device_batch")
    )
    layout = Layout(hosts, hosts * per_host, share)
    predicted, width, kinds = source.predict(layout)
    alone, _, _ = source.predict(Layout(np.ones(len(share)), np.ones(len(share)), share))
    alone = _measured_alone(device_times, share, alone)
    is_measured = joined["measured"].is_not_null()
    filled = joined.with_columns(
        pl.when(is_measured).then("measured").otherwise(pl.Series(predicted)).alias("step_time_s"),
        pl.when(is_measured)
        .then("measured_low")
        .otherwise(pl.Series(predicted * np.exp(-width)))
        .alias("step_time_low_s"),
        pl.when(is_measured)
        .then("measured_high")
        .otherwise(pl.Series(predicted * np.exp(width)))
        .alias("step_time_high_s"),
        pl.when(is_measured)
        .then(pl.lit(MEASURED))
        .otherwise(pl.Series(kinds, dtype=pl.String))
        .alias("step_time_from"),
        *source.memory_columns(layout),
    ).with_columns((pl.Series(alone) / pl.col("step_time_s")).alias("efficiency"))
    usable = filled.filter(pl.col("step_time_s").is_not_nan())
    _count(left_out, source.why_missing(layout), filled.height - usable.height)
    return usable.select(_cast(name, kind) for name, kind in CANDIDATE_SCHEMA.items())


def _cast(name: str, kind: type[pl.DataType]) -> pl.Expr:
    typed = pl.col(name).cast(kind)
    return typed.fill_nan(None) if kind == pl.Float64 else typed


def _measured_alone(device_times: Sequence[StepTime], share: FloatArray, modelled: FloatArray) -> FloatArray:
    measured = {time.batch_size: time.step_time_s for time in device_times if time.devices == 1}
    return np.array([measured.get(int(m), value) for m, value in zip(share, modelled, strict=True)], dtype=np.float64)


def _count(left_out: Counter[str], why: str, number: int) -> None:
    if number:
        left_out[why] += number


def _limits(times: Iterable[StepTime]) -> dict[str, int]:
    limits: dict[str, int] = {}
    for time in times:
        if time.max_batch_per_device is not None:
            key = device_key(time.device)
            limits[key] = min(limits.get(key, time.max_batch_per_device), time.max_batch_per_device)
    return limits


def _least(*values: int | None) -> int | None:
    limits = [value for value in values if value is not None]
    return min(limits) if limits else None


def check_give_up(points: Iterable[CurvePoint]) -> None:
    """Raise an error for a point with failed runs and no step to give up at: their cost is not known."""
    for point in points:
        failed = point.attempts is not None and point.successes is not None and point.successes < point.attempts
        if failed and (point.give_up is None or not math.isfinite(point.give_up)):
            raise PlanningError(
                f"A run that fails costs what it trains until it is given up. Found {point.successes} successes of "
                f"{point.attempts} at batch size {point.batch_size} and no step to give up at; add the column give_up "
                "(or --give-up)."
            )
