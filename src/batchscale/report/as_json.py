"""The JSON object of ``batchscale report --json``: what the page states, without its drawings."""

from pathlib import Path
from typing import Any

from batchscale.analysis.as_json import analysis_json
from batchscale.analysis.curve_analysis import analyze
from batchscale.errors import BatchscaleError
from batchscale.figures.default_goal import find_goal
from batchscale.records.frames import Records
from batchscale.report.facts import gather_facts
from batchscale.report.words import answer_words
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

VERSION = 1


def report_json(records: Records, goal: Goal | None, out: Path) -> dict[str, Any]:
    """For each workload its answer in words, its analysis, how it was run and how its trials ended."""
    found = [_workload(records, name, goal or find_goal(records, name)) for name in records.workloads]
    return {"version": VERSION, "report": str(out), "workloads": found}


def _workload(records: Records, name: WorkloadName, goal: Goal | None) -> dict[str, Any]:
    facts = gather_facts(records, name)
    sentences: tuple[str, ...] = ()
    analysis = None
    missing = None if goal is not None else "These records name no goal."
    if goal is not None:
        try:
            found = analyze(records.workload(name), name, goal)
        except BatchscaleError as error:
            missing = str(error)
        else:
            sentences, analysis = answer_words(found).sentences, analysis_json(found)
    return {
        "workload": str(name),
        "goal": None if goal is None else str(goal),
        "sentences": list(sentences),
        "missing": missing,
        "facts": dict(facts.rows),
        "statuses": dict(facts.statuses),
        "analysis": analysis,
    }
