"""Our own facts in ``study.json`` and ``metadata.json``, and the values they become when a run is resumed."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from batchscale import __version__
from batchscale.errors import RecordsError, RunError
from batchscale.records.metadata.study import StudyMetadata, StudyResult, TrainerMetadata
from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.committed import CommittedTrial
from batchscale.records.tree.measurements import MeasurementTable
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterType, SearchSpace
from batchscale.study.failure import Failure
from batchscale.study.identity import evaluation_facts, spec_hash
from batchscale.study.knowledge import Knowledge
from batchscale.study.ledger import Ledger
from batchscale.study.stop_rules import find_rule


class DamagedStudyError(RunError):
    """What is recorded of a study cannot be read: it waits until someone has looked at it, all others go on."""


@dataclass
class StudyMemory:
    """What a study remembers besides its trials.

    ``budgets`` are the step budgets it has had, growing: the evaluation steps follow from them (see
    `evaluation_steps`). ``population`` is how many trials are trained together, ``framework`` what a user's script says
    that it trains with.
    """

    ledger: Ledger = field(default_factory=Ledger)
    budgets: list[int] = field(default_factory=list)
    population: int | None = None
    finding: StudyResult | None = None
    framework: TrainerMetadata | None = None

    @classmethod
    def read(cls, record: StudyRecord, where: str) -> "StudyMemory":
        """The facts of a study that is there already.

        Raises:
            RecordsError: it was not made by a run.
            DamagedStudyError: it was, and what a run needs is not there.
        """
        facts = record.metadata
        if facts is not None and facts.spec_hash and not (facts.searches and facts.budgets):
            raise DamagedStudyError(
                f"{where}: study.json lists the searches and step budgets of its study. Found none. Put the file back "
                "from a copy, or move the folder out of the tree, and run again."
            )
        if facts is None or not facts.searches or not facts.budgets:
            raise RecordsError(
                f"{where}: this study was not made by 'batchscale run' and cannot be continued. Give another folder."
            )
        return cls(Ledger.of(facts.searches), list(facts.budgets), facts.population, facts.result, facts.trainer)

    def to_record(self, study: Study, experiment: Experiment) -> StudyRecord:
        """The ``study.json`` that says all this."""
        facts = StudyMetadata(
            code_version=__version__,
            spec_hash=spec_hash(experiment),
            goal=str(study.goal),
            stop_rule=str(study.stop),
            trials=study.trials,
            finishers=experiment.finishers,
            seed=study.seed,
            fixed=dict(study.fixed),
            evaluation=evaluation_facts(experiment),
            num_train_examples=study.num_train_examples,
            budgets=tuple(self.budgets),
            population=self.population,
            edge_margin=experiment.search.edge_margin,
            searches=self.ledger.facts,
            result=self.finding,
            trainer=self.framework,
            experiment=experiment.text,
        )
        return StudyRecord(
            workload=study.workload,
            batch_size=study.batch_size,
            train_steps=study.train_steps,
            early_stopping=find_rule(study.stop).stops_early,
            space=self.ledger.searches[-1].space,
            metadata=facts,
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


def with_budgets(study: Study, experiment: Experiment, memory: StudyMemory) -> Study:
    """The study with its first space and the evaluation steps that its budgets give."""
    steps = evaluation_steps(study, experiment, memory.budgets)
    return replace(study, evaluation_steps=steps, space=memory.ledger.searches[0].space)


def trial_facts(seed: int, search: int, point: int, known: Knowledge, reason: str) -> TrialMetadata:
    """What ``metadata.json`` says of a trial besides the published keys."""
    failure, log_lines = (None, ()) if known.failed is None else known.failed.record
    return TrialMetadata(
        seed=seed,
        search=search,
        point=point,
        stop_reason=reason,
        reached_at=known.reached_at,
        diverged_at=known.diverged_at,
        best=known.best if math.isfinite(known.best) else None,
        failure=failure or None,
        log_lines=log_lines,
    )


def recall(trial: CommittedTrial, read_failure: Callable[[int], str | None]) -> Knowledge:
    """What is known of a recorded trial; why it failed, if it did, is read."""
    known = Knowledge(
        step=trial.steps,
        reached_at=trial.reached_at,
        best=math.inf if trial.best is None else trial.best,
        recorded=trial.steps,
    )
    if trial.status is Status.INFEASIBLE:
        known.diverged_at = trial.steps
    elif trial.status is Status.INCOMPLETE:
        known.failed = Failure(read_failure(trial.trial_id) or "incomplete")
        known.recorded_failed = True
    return known


def recorded_seconds(record: TrialRecord) -> float:
    """The seconds of training that a record knows of; 0 where it says nothing."""
    timing = record.metadata.timing if record.metadata is not None else None
    return (timing.total_s if timing is not None else None) or 0.0


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
