"""Plans of the web interface: machines as a table to edit, deadline and budget, the plan, its chart, its job files."""

import datetime
import io
import itertools
import json
import math
import re
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
from pydantic import ValidationError

from batchscale import __version__
from batchscale.analysis.curve_analysis import Analysis
from batchscale.errors import BatchscaleError, PlanningError, one_line
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.figures.kinds.plan import plan_frame, plot_plan
from batchscale.figures.layout import Chart, Look, PanelSize
from batchscale.figures.theme import Theme
from batchscale.planning.answer import COLUMNS as PLAN_COLUMNS
from batchscale.planning.answer import NUMBERS, make_plan_answer
from batchscale.planning.assemble import PlanInputs, assemble_plan, shipped_machines
from batchscale.planning.devices import nearest_devices
from batchscale.planning.estimate import EstimateInputs
from batchscale.planning.estimate_text import estimate_sentences
from batchscale.planning.jobs.formats import job_files
from batchscale.planning.jobs.job import TrainCommand, choice_metaparameters, give_up_steps, make_job
from batchscale.planning.machines import Machine, MachineTable, read_price_list
from batchscale.planning.plan import MachinePlan, PlanRequest
from batchscale.planning.read_curve import analysis_curve
from batchscale.planning.sentences import left_out_sentences, plan_sentences, without_options
from batchscale.planning.step_times import StepTime
from batchscale.planning.work import parse_work
from batchscale.web.charts import RENDERING, explorable, picture_of
from batchscale.web.records_folders import visible

MAX_MACHINES = 12
MAX_WORK = 4000
WORK_FIELD = "Work of a step"
SLIDER_END = 91
CHART_MARGIN = 90  # axis and padding
COLUMNS = ("name", "device", "devices", "hosts", "price")
FIELDS = {
    "name": "machine", "device": "device", "devices_per_host": "devices per host", "max_hosts": "most hosts",
    "price_per_host_hour": "price of a host and hour", "unit": "Unit of prices",
}  # fmt: skip
"""The labels of the form by the keys of a machine."""


@dataclass(frozen=True)
class PlanQuery:
    """The query of the page: rows of the machines table as typed, hours, money, the lines of a table of work."""

    rows: tuple[tuple[str, ...], ...]
    unit: str = "USD"
    deadline_h: float | None = None
    budget: float | None = None
    work: str = ""


def default_rows(times: tuple[StepTime, ...], estimate: EstimateInputs | None = None) -> tuple[tuple[str, ...], ...]:
    """Return rows for every kind of device that was timed or can be estimated, with the shipped prices."""
    rows: list[tuple[str, ...]] = []
    prices = read_price_list()
    for device in sorted({time.device for time in times}):
        names = nearest_devices(device, {machine.device for machine in prices})
        listed = [machine for machine in prices if machine.device in names]
        rows += [_row(machine, device) for machine in listed[:4]] or [(device, device, "1", "4", "")]
    if estimate is not None:
        by_device: dict[str, list[Machine]] = {}
        for machine in shipped_machines((), estimate):
            by_device.setdefault(machine.device, []).append(machine)
        turns = itertools.zip_longest(*by_device.values())  # one of every device before the second of any
        further = [_row(machine, machine.device) for turn in turns for machine in turn if machine is not None]
        rows = [row for row in rows if row[-1]]  # a row that waits for its price would hold up the others
        rows += [row for row in further if row not in rows]
    return tuple(rows[:MAX_MACHINES])


def _row(machine: Machine, device: str) -> tuple[str, ...]:
    return (machine.name, device, str(machine.devices_per_host), "1", f"{machine.price_per_host_hour:g}")


def estimate_of(work: str, workload: str | None) -> EstimateInputs | None:
    """Return the inputs of estimates by the pasted lines of a table of work; None without lines.

    Raises:
        PlanningError: a line is wrong, or the work is of another workload.
    """
    return EstimateInputs(parse_work(work, WORK_FIELD, workload)) if work else None


def read_query(query: Mapping[str, str], times: tuple[StepTime, ...], workload: str | None = None) -> PlanQuery:
    """Return the machines, limits and work of a query; the default machines if none were typed or changed."""
    typed = tuple(
        tuple(query.get(f"{column}{place}", "").strip()[:120] for column in COLUMNS) for place in range(MAX_MACHINES)
    )
    timed = {time.device for time in times}
    only = timed.pop() if len(timed) == 1 else ""  # the device may be left out if only one was timed
    rows = tuple((row[0], row[1] or only, *row[2:]) for row in typed if any(row))
    unit = query.get("unit", "USD").strip()[:20] or "USD"
    work = query.get("work", "").strip()[:MAX_WORK]
    if not rows or (work and rows == default_rows(times)):
        try:
            rows = default_rows(times, estimate_of(work, workload))
        except PlanningError:  # the plan itself has the message
            rows = default_rows(times)
    return PlanQuery(rows, unit, _slid(query, "deadline"), _slid(query, "budget"), work)


def slider_value(position: int) -> float | None:
    """Return the hours or money of a slider position: 0.01 to 10,000, each step a sixth more; None at its left end.

    >>> slider_value(0), slider_value(1), round(slider_value(91) or 0)
    (None, 0.01, 10000)
    """
    return None if position <= 0 else float(f"{0.01 * 10 ** ((position - 1) / 15):.3g}")


def slider_position(value: float | None) -> int:
    """Return the slider position of a value."""
    return 0 if value is None else min(SLIDER_END, max(1, round(1 + 15 * math.log10(value / 0.01))))


def plan_of(analysis: Analysis, times: tuple[StepTime, ...], query: PlanQuery) -> MachinePlan:
    """Return the plan of a curve on the machines of a query.

    Raises:
        PlanningError: a row is wrong, or nothing can be planned, with the reason.
    """
    deadline_s = None if query.deadline_h is None else query.deadline_h * 3600
    curve = analysis_curve(analysis)
    estimate = estimate_of(query.work, curve.workload)
    machines = tuple(_machine(row, query.unit, place) for place, row in enumerate(query.rows, 1))
    inputs = PlanInputs(curve, times, machines=machines, estimate=estimate)
    return assemble_plan(inputs, PlanRequest(query.budget, deadline_s))


def plan_chart(plan: MachinePlan, suffix: str, theme: Theme, width: int | None) -> str | bytes | pl.DataFrame:
    """Return the chart of time against cost as ``svg``, ``png``, ``csv`` (its data), or ``json``.

    JSON is for the page's script, with axes that can be moved and zoomed.
    """
    if suffix == "csv":
        return _chart_data(plan)
    if suffix == "json":
        return json.dumps(explorable(chart_spec(_plot(plan, theme, width)), "plan")).encode()
    chart = _plot(plan, theme, None)
    with RENDERING:
        drawing = chart_svg(chart)
    return drawing if suffix == "svg" else picture_of(drawing)


def _chart_data(plan: MachinePlan) -> pl.DataFrame:
    return plan_frame(plan, plan.workload or "plan")


def _plot(plan: MachinePlan, theme: Theme, width: int | None) -> Chart:
    if width is None:
        return plot_plan(_chart_data(plan), Look(theme=theme, size=PanelSize(620, 400)))
    panel = max(200, min(1040, width - CHART_MARGIN))
    return plot_plan(
        _chart_data(plan), Look(theme=theme, size=PanelSize(panel, 400 if panel > 500 else 280), is_bare=True)
    )


def sentences(plan: MachinePlan) -> list[str]:
    """Return the plan as sentences, a notice of old prices last."""
    estimates = estimate_sentences(plan.estimates)
    left_out = map(without_options, left_out_sentences(plan)) if estimates else ()
    return [*plan_sentences(plan), *estimates, *left_out, *(f"Notice: {notice}" for notice in plan.notices)]


def plan_values(make: Callable[[], MachinePlan], query: PlanQuery) -> dict[str, Any]:
    """Return the values of a page with a plan, or with the reason why there is none."""
    values: dict[str, Any] = {
        "answer": None, "sentences": [], "problem": "", "unit": query.unit, "query": query, "columns": PLAN_COLUMNS,
        "numbers": NUMBERS, "slider_end": SLIDER_END, "position": slider_position,
    }  # fmt: skip
    try:
        plan = make()
        answer = make_plan_answer(plan)
        values |= {"answer": answer, "sentences": sentences(plan), "unit": visible(plan.unit, 20)}
    except BatchscaleError as error:
        values["problem"] = visible(without_options(str(error)), 500)
    return values


def job_zip(plan: MachinePlan, pick: str, format_: str, train_options: Collection[str]) -> bytes:
    """Return the job files of one configuration as a zip; ``train_options`` are those of ``batchscale train``.

    Raises:
        PlanningError: there is no such configuration, or no learning rate is known for it.
    """
    choice = plan.recommendations.pick(pick)
    if choice is None or plan.workload is None:
        raise PlanningError(f"A job starts a configuration of the plan. Found none that is {pick}.")
    if plan.has_own_script:
        raise PlanningError(
            "A job of these records runs the training script that measured them. Found no script on this page; write "
            "the job with 'batchscale plan RECORDS --job FORMAT --out FOLDER --experiment FILE'."
        )
    values = choice_metaparameters(choice["metaparameters"])
    if "learning_rate" not in values:
        raise PlanningError("A job needs the learning rate to train with, and this curve does not have it.")
    command = TrainCommand(plan.workload, choice["batch_size"], give_up_steps(choice), values, plan.goal)
    files = job_files(make_job(choice, command), format_, train_options, f"batchscale=={__version__}")
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return target.getvalue()


def _machine(row: tuple[str, ...], unit: str, place: int) -> Machine:
    name, device, devices, hosts, price = row
    if not device:
        raise PlanningError(f"Machine {place}: name the device that it has, as it was timed.")
    if not price:
        raise PlanningError(f"Machine {place}: fill in what a host costs for an hour; no price is ever made up.")
    try:
        table = MachineTable(
            name=name or device, device=device, devices_per_host=int(devices or "1"), max_hosts=int(hosts or "1"),
            price_per_host_hour=float(price), unit=unit,
        )  # fmt: skip
    except ValidationError as error:
        first = error.errors()[0]
        where = FIELDS.get(str(first["loc"][0]), "the row") if first["loc"] else "the row"
        raise PlanningError(f"Machine {place}: {where}: {one_line(first['msg'], 200)}.") from None
    except ValueError:
        raise PlanningError(f"Machine {place}: devices and hosts are whole numbers, the price is a number.") from None
    machine = table.machine()
    return replace(machine, date=_shipped_date(machine) or datetime.datetime.now(datetime.UTC).date())


def _shipped_date(machine: Machine) -> datetime.date | None:
    """The date of a shipped price that was not changed; None for a price that the visitor typed."""
    for shipped in read_price_list():
        if shipped.name == machine.name and math.isclose(
            shipped.price_per_host_hour, machine.price_per_host_hour, rel_tol=1e-5
        ):
            return shipped.date
    return None


def _slid(query: Mapping[str, str], key: str) -> float | None:
    """Return the value of a slider, or the amount itself."""
    position = query.get(f"{key}_at", "")
    return slider_value(min(SLIDER_END, int(position))) if re.fullmatch("[0-9]{1,3}", position) else _amount(query, key)


def _amount(query: Mapping[str, str], key: str) -> float | None:
    try:
        value = float(query.get(key, ""))
    except ValueError:
        return None
    return value if 0 < value < 1e9 else None
