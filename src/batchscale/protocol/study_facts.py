"""Our own facts in ``study.json`` and ``metadata.json``, and the values they become when a run is resumed."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from batchscale import __version__
from batchscale.errors import RecordsError, RunError, one_line
from batchscale.protocol.identity import FORMAT_VERSION, spec_hash
from batchscale.protocol.knowledge import Knowledge
from batchscale.protocol.ledger import Ledger
from batchscale.records.model import OWN_KEY, Status, StudyRecord, TrialRecord
from batchscale.records.tree.measurements import MeasurementTable
from batchscale.spec import Experiment, ParameterType, SearchSpace, StopRule, Study


class DamagedStudyError(RunError):
    """What is recorded of a study cannot be read: it waits until someone has looked at it, all others go on."""


@dataclass
class StudyFacts:
    """What a study remembers besides its trials.

    ``budgets`` are the step budgets it has had, growing: the evaluation steps follow from them (see
    `evaluation_steps`). ``population`` is how many trials are trained together.
    """

    ledger: Ledger = field(default_factory=Ledger)
    budgets: list[int] = field(default_factory=list)
    population: int | None = None
    verdict: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, record: StudyRecord, where: str) -> "StudyFacts":
        """The facts of a study that is there already.

        Raises:
            RecordsError: it is not ours.
            DamagedStudyError: it is, and cannot be understood.
        """
        own = record.extra.get(OWN_KEY)
        if not isinstance(own, Mapping) or "searches" not in own or "budgets" not in own:
            raise RecordsError(
                f"{where}: this study was not made by 'batchscale run' and cannot be continued. Give another folder."
            )
        try:
            ledger = Ledger.from_json(own["searches"], where)
            budgets = [int(steps) for steps in own["budgets"]]
            facts = cls(ledger, budgets, own.get("population"), dict(own.get("verdict", {})))
            if not ledger.searches or not budgets or not isinstance(facts.population, int | None):
                raise ValueError("no searches, no budgets or no whole number as population")
        except (RecordsError, TypeError, ValueError) as error:
            raise DamagedStudyError(
                f"{where}: what study.json says under '{OWN_KEY}' cannot be understood: {one_line(error)}. Put the "
                "file back from a copy, or move the folder out of the tree, and run again."
            ) from None
        return facts

    def to_record(self, study: Study, experiment: Experiment) -> StudyRecord:
        """The ``study.json`` that says all this."""
        own = {
            "format_version": FORMAT_VERSION,
            "code_version": __version__,
            "goal": str(study.goal),
            "seed": study.seed,
            "stop": study.stop.value,
            "finishers": experiment.finishers,
            "trials": study.trials,
            "fixed": dict(study.fixed),
            "spec_hash": spec_hash(experiment),
            "searches": self.ledger.to_json(),
            "budgets": self.budgets,
            "population": self.population,
            "verdict": self.verdict,
        }
        return StudyRecord(
            workload=study.workload,
            batch_size=study.batch_size,
            train_steps=study.train_steps,
            early_stopping=study.stop is not StopRule.BUDGET,
            space=self.ledger.searches[-1].space,
            extra={OWN_KEY: own},
        )


def evaluation_steps(study: Study, experiment: Experiment, budgets: Iterable[int]) -> tuple[int, ...]:
    """The measured steps of a study whose step budget has grown: those of each budget, as far as it went, in turn.

    All trials of the study are measured there, so that a trial that was recorded before can be trained longer.
    """
    steps: tuple[int, ...] = ()
    for budget in budgets:
        last = steps[-1] if steps else -1
        steps += tuple(step for step in experiment.evaluation_steps(budget) if step > last)
    return steps or study.evaluation_steps


def with_budgets(study: Study, experiment: Experiment, facts: StudyFacts) -> Study:
    """The study with its first space and the evaluation steps that its budgets give."""
    steps = evaluation_steps(study, experiment, facts.budgets)
    return replace(study, evaluation_steps=steps, space=facts.ledger.searches[0].space)


def trial_facts(seed: int, search: int, point: int, known: Knowledge, reason: str) -> dict[str, Any]:
    """What ``metadata.json`` says of a trial besides the published keys."""
    return {
        "seed": seed,
        "search": search,
        "point": point,
        "stop_reason": reason,
        "reached_at": known.reached_at,
        "best": known.best if math.isfinite(known.best) else None,
        **({"failure": known.failed} if known.failed else {}),
    }


def recall(record: TrialRecord) -> Knowledge:
    """What is known of a recorded trial."""
    own = record.extra.get(OWN_KEY)
    facts = own if isinstance(own, Mapping) else {}
    best, reached_at = facts.get("best"), facts.get("reached_at")
    if not isinstance(best, float | int | None) or not isinstance(reached_at, int | None):
        found = one_line(f"best {best!r}, reached_at {reached_at!r}")
        raise DamagedStudyError(f"trial {record.trial_id}: 'best' and 'reached_at' are numbers or null. Found {found}.")
    known = Knowledge(
        step=record.steps,
        reached_at=reached_at,
        best=math.inf if best is None else float(best),
        recorded=record.steps,
    )
    if record.status is Status.INFEASIBLE:
        known.diverged_at = record.steps
    elif record.status is Status.INCOMPLETE:
        known.failed, known.recorded_failed = str(facts.get("failure", "incomplete")), True
    return known


def recorded_seconds(record: TrialRecord) -> float:
    """The seconds of training that a record knows of; 0 where it says nothing."""
    own = record.extra.get(OWN_KEY)
    timing = own.get("timing") if isinstance(own, Mapping) else None
    seconds = timing.get("seconds") if isinstance(timing, Mapping) else None
    return float(seconds) if isinstance(seconds, float | int) and math.isfinite(seconds) else 0.0


def table_rows(table: MeasurementTable) -> list[tuple[int, dict[str, float]]]:
    """The rows of a table; a value that was not taken is NaN."""
    columns = zip(*table.columns, strict=True) if table.columns else ([] for _ in table.steps)
    return [
        (step, {name: math.nan if v is None else v for name, v in zip(table.metrics, values, strict=True)})
        for step, values in zip(table.steps, columns, strict=True)
    ]


def record_parameters(space: SearchSpace, values: Mapping[str, float]) -> dict[str, float]:
    """The searched metaparameters as they are recorded: whole numbers where they are INTEGER."""
    return {
        name: int(value) if space[name].type is ParameterType.INTEGER else float(value)
        for name, value in values.items()
    }
