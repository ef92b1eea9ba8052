"""The page: sections in one HTML file that loads nothing and runs only its own script; and its JSON object."""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from batchscale import __version__
from batchscale.analysis.as_json import analysis_json
from batchscale.analysis.curve_analysis import analyze
from batchscale.errors import BatchscaleError, SpecError, one_line
from batchscale.figures.kinds.curves import plot_curves
from batchscale.figures.layout import Look
from batchscale.figures.names import count, workload_label
from batchscale.figures.selection import find_goal
from batchscale.figures.series import CurvePanel, Series, series_frame
from batchscale.formatting import whole_text
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import stored_choices
from batchscale.records.output_file import write_output
from batchscale.report.drawing import draw
from batchscale.report.machines import PlanningFiles, make_machines_parts
from batchscale.report.section import LARGE, Section, make_section
from batchscale.report.style import page_style
from batchscale.report.text import read_metadata, result_sentences
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

JSON_VERSION = 1
MOST_CURVES = 8  # in one panel of the overview; more could not be distinguished
MOST_NOTICES = 20


def make_report(
    records: Records, goal: Goal | None = None, *, name: str = "records", planning: PlanningFiles | None = None
) -> str:
    """Return the report as the text of one HTML file.

    Args:
        records: One workload or several, which get an overview and a section each.
        goal: For all of them; None: the goal of each workload's records, or the paper's for its own workloads.
        name: The path of the records in the commands to reproduce it.
        planning: Machines and step times, for the part on machines; None: no such part.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    goals = {workload: goal or find_goal(records, workload) for workload in records.workloads}
    sections = [
        make_section(records, workload, workload_goal, f"w{place}")
        for place, (workload, workload_goal) in enumerate(goals.items())
    ]
    environment = Environment(
        loader=PackageLoader("batchscale.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    script = (files("batchscale.report") / "templates" / "report.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    overview = _overview(records, goals, sections) if len(sections) > 1 else None
    machines = make_machines_parts(records, goals, [section.anchor for section in sections], planning)
    return environment.get_template("report.html").render(
        sections=sections,
        overview=overview,
        machines=machines,
        damage=[one_line(notice, 400) for notice in records.notices[:MOST_NOTICES]],
        more_damage=max(0, len(records.notices) - MOST_NOTICES),
        version=__version__,
        name=one_line(name, 80),
        script=_safe(script),
        script_hash=digest,
        style=_safe(page_style()),
        trials=count(sum(sum(section.metadata.statuses.values()) for section in sections), "trial"),
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
    write_output(out, make_report(records, goal, name=name, planning=planning))


def report_json(records: Records, goal: Goal | None, out: Path) -> dict[str, Any]:
    """Return the object of ``batchscale report --json``: the content of the page, without its drawings."""
    workloads = [_workload_json(records, name, goal or find_goal(records, name)) for name in records.workloads]
    return {"version": JSON_VERSION, "report": str(out), "workloads": workloads}


def check_report_path(out: Path) -> None:
    """Raise SpecError if a path does not name an HTML file."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise SpecError(
            f"The path of a report must end in .html. Found {one_line(repr(out.name))}; pass --out such a path."
        )


def _safe(text: str) -> Markup:
    """Return text of our own package files, which is style or script and must not be escaped."""
    return Markup(text)  # noqa: S704 - package data


def _overview(
    records: Records, goals: Mapping[WorkloadName, Goal | None], sections: list[Section]
) -> dict[str, object]:
    """Return a row per workload and, where they fit, all curves in one panel."""
    rows = []
    for section in sections:
        best = section.points.rows if section.points else ()
        reached = [row for row in best if row[1] != "not reached"]
        rows.append(
            {
                "section": section,
                "figures": section.answer.figures,
                "first": section.sentences[0],
                "sizes": f"{len(reached)} of {len(best)}",
            }
        )
    series = tuple(Series(name, goal, workload_label(name)) for name, goal in goals.items() if goal is not None)[
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
        "labels": ("critical batch size", "perfect scaling up to", "fewest steps from"),
        "chart": chart,
        "left_out": max(0, len(sections) - MOST_CURVES),
        "count": whole_text(len(sections)),
    }


def _workload_json(records: Records, name: WorkloadName, goal: Goal | None) -> dict[str, Any]:
    metadata, choices = read_metadata(records, name), stored_choices(records.workload(name).studies)
    sentences: tuple[str, ...] = ()
    analysis = None
    missing = None if goal is not None else "These records name no goal."
    if goal is not None:
        try:
            answer = analyze(records.workload(name), name, goal)
        except BatchscaleError as error:
            missing = str(error)
        else:
            sentences, analysis = result_sentences(answer), analysis_json(answer)
    return {
        "workload": str(name),
        "goal": None if goal is None else str(goal),
        "sentences": list(sentences),
        "missing": missing,
        "facts": dict(metadata.rows),
        "statuses": dict(metadata.statuses),
        "choices": [{"workload": str(name), **asdict(choice)} for choice in choices],
        "analysis": analysis,
    }
