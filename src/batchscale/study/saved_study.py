"""The part of a study that ``study.json`` stores besides its trials, and that a resumed run continues from."""

from dataclasses import dataclass, field, replace

from batchscale import __version__
from batchscale.errors import RecordsError, RunError
from batchscale.records.metadata.study import StudyMetadata, StudyResult, TrainerMetadata
from batchscale.records.model import StudyRecord
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Study
from batchscale.study.identity import evaluation_settings, spec_hash
from batchscale.study.sampling import SearchHistory
from batchscale.study.stop_rules import find_rule


class DamagedStudyError(RunError):
    """The records of a study cannot be read: it waits until a person has repaired it, all others continue."""


@dataclass
class SavedStudy:
    """The searches, budgets and result of a study.

    ``budgets`` are the step budgets it has had, growing: the evaluation steps follow from them (see
    `apply_to`). ``population`` is the number of trials trained together, ``framework`` the one that a user's
    script reports.
    """

    history: SearchHistory = field(default_factory=SearchHistory)
    budgets: list[int] = field(default_factory=list)
    population: int | None = None
    result: StudyResult | None = None
    framework: TrainerMetadata | None = None

    @classmethod
    def from_record(cls, record: StudyRecord, path: str) -> "SavedStudy":
        """Return what the ``study.json`` of an existing study stores.

        Raises:
            RecordsError: it was not made by a run.
            DamagedStudyError: it was, and lacks what a run needs.
        """
        metadata = record.metadata
        if metadata is not None and metadata.spec_hash and not (metadata.searches and metadata.budgets):
            raise DamagedStudyError(
                f"{path}: study.json must list the searches and step budgets of its study. Found none. Restore the "
                "file from a copy, or move the folder out of the tree, and run again."
            )
        if metadata is None or not metadata.searches or not metadata.budgets:
            raise RecordsError(
                f"{path}: this study was not made by 'batchscale run' and cannot be continued. Give another folder."
            )
        history = SearchHistory.from_metadata(metadata.searches)
        return cls(history, list(metadata.budgets), metadata.population, metadata.result, metadata.trainer)

    def to_record(self, study: Study, experiment: Experiment) -> StudyRecord:
        """Return the ``study.json`` that stores all this."""
        metadata = StudyMetadata(
            code_version=__version__,
            spec_hash=spec_hash(experiment),
            goal=str(study.goal),
            stop_rule=str(study.stop),
            trials=study.trials,
            finishers=experiment.finishers,
            seed=study.seed,
            fixed=dict(study.fixed),
            evaluation=evaluation_settings(experiment),
            num_train_examples=study.num_train_examples,
            budgets=tuple(self.budgets),
            population=self.population,
            edge_margin=experiment.search.edge_margin,
            searches=self.history.to_metadata(),
            result=self.result,
            trainer=self.framework,
            experiment=experiment.text,
        )
        return StudyRecord(
            workload=study.workload,
            batch_size=study.batch_size,
            train_steps=study.train_steps,
            early_stopping=find_rule(study.stop).stops_early,
            space=self.history.searches[-1].space,
            metadata=metadata,
        )

    def apply_to(self, study: Study, experiment: Experiment) -> Study:
        """Return the study with its first space and the evaluation steps of all its budgets: of each budget in turn.

        All trials of the study are measured there, so that a trial that was recorded before can be trained longer.
        """
        steps: tuple[int, ...] = ()
        for budget in self.budgets:
            last = steps[-1] if steps else -1
            steps += tuple(step for step in experiment.evaluation_steps(budget) if step > last)
        return replace(study, evaluation_steps=steps or study.evaluation_steps, space=self.history.searches[0].space)
