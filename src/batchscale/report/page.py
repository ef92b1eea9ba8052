"""The page: sections in one HTML file that needs nothing from outside and lets nothing run but its own script."""

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from batchscale import __version__
from batchscale.analysis.intervals import MEANING
from batchscale.errors import SpecError, one_line
from batchscale.figures.default_goal import find_goal
from batchscale.figures.export import write_whole
from batchscale.figures.kinds.curves import plot_curves
from batchscale.figures.layout import Look
from batchscale.figures.names import count, workload_label
from batchscale.figures.series import CurvePanel, Series, series_frame
from batchscale.figures.theme import DARK, LIGHT
from batchscale.formatting import whole_text
from batchscale.records.frames import Records
from batchscale.report.drawing import draw, style_variables
from batchscale.report.machines import PlanningFiles, make_machines_parts
from batchscale.report.section import LARGE, Section, make_section
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

MOST_CURVES = 8  # in one panel of the overview; more could not be told apart


def make_report(
    records: Records, goal: Goal | None = None, *, name: str = "records", planning: PlanningFiles | None = None
) -> str:
    """The report as the text of one HTML file.

    Args:
        records: One workload or several, which get an overview and a section each.
        goal: For all of them; None: what each workload's records name, or the paper for its own workloads.
        name: What the records are called in the commands to reproduce it.
        planning: Machines and step times, for the part on what to train on; None: no such part.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    goals = {workload: goal or find_goal(records, workload) for workload in records.workloads}
    sections = [
        make_section(records, workload, wanted, f"w{place}") for place, (workload, wanted) in enumerate(goals.items())
    ]
    environment = Environment(
        loader=PackageLoader("batchscale.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    script = (files("batchscale.report") / "templates" / "report.js").read_text()
    style = (files("batchscale.report") / "templates" / "report.css").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("report.html").render(
        sections=sections,
        overview=_overview(records, goals, sections) if len(sections) > 1 else None,
        machines=make_machines_parts(records, goals, [section.anchor for section in sections], planning),
        version=__version__,
        name=one_line(name, 80),
        script=_safe(script),
        script_hash=digest,
        style=_safe(
            style.replace("LIGHT_COLOURS", style_variables(LIGHT)).replace("DARK_COLOURS", style_variables(DARK))
        ),
        trials=count(sum(sum(section.facts.statuses.values()) for section in sections), "trial"),
        intervals=MEANING,
    )


def write_report(
    records: Records,
    out: Path,
    goal: Goal | None = None,
    *,
    name: str = "records",
    planning: PlanningFiles | None = None,
) -> None:
    """Write the report to ``out``, an .html file, whole or not at all."""
    check_report_path(out)
    write_whole(out, make_report(records, goal, name=name, planning=planning).encode())


def check_report_path(out: Path) -> None:
    """Refuse a path that does not name an HTML file."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise SpecError(f"A report is an .html file. Found {one_line(repr(out.name))}; give --out such a path.")


def _safe(text: str) -> Markup:
    """Text of our own package files, which is style or script and must not be escaped."""
    return Markup(text)  # noqa: S704 - package data


def _overview(
    records: Records, goals: Mapping[WorkloadName, Goal | None], sections: list[Section]
) -> dict[str, object]:
    """A row per workload and, where they fit, all curves in one panel."""
    rows = []
    for section in sections:
        best = section.points.rows if section.points else ()
        reached = [row for row in best if row[1] != "not reached"]
        rows.append(
            {"section": section, "first": section.answer.sentences[0], "sizes": f"{len(reached)} of {len(best)}"}
        )
    series = tuple(Series(name, wanted, workload_label(name)) for name, wanted in goals.items() if wanted is not None)[
        :MOST_CURVES
    ]
    chart = None
    if series:
        frame = series_frame(records, [CurvePanel("All curves, each to its own goal", series)])
        chart = draw(
            plot_curves(frame, Look(size=LARGE)), "overview", "steps to result against batch size, all workloads"
        )
    return {
        "rows": rows,
        "chart": chart,
        "left_out": max(0, len(sections) - MOST_CURVES),
        "count": whole_text(len(sections)),
    }
