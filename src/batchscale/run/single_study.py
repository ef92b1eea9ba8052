"""The records of single trials: one study in a folder, trial after trial, each with the values that were given by hand.

The recorder of all studies writes them; it is another kind of study because no search assigns a point to each trial. A
working file beside the journal stores what each trial was begun with, so that the same command finds it again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from batchscale import __version__
from batchscale.errors import RecordsError, RunError, one_line
from batchscale.records.durable import replace_durably
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import Hardware
from batchscale.records.model import StudyRecord
from batchscale.records.tree.layout import StudyPaths
from batchscale.records.tree.open_study import open_study
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace
from batchscale.study.recorder import EndedTrial, Recorder
from batchscale.study.stop_rules.rule import find_rule
from batchscale.study.trial import Row, TrialOutcome, TrialProgress, TrialSummary

CHOSEN = "chosen-*.json"
"""The files with the values that trials were begun with."""


class Resume(Enum):
    """Continue a trial of the folder if it is there, only if it is there, or never."""

    IF_THERE = "if there"
    REQUIRED = "required"
    NEVER = "never"


@dataclass(frozen=True)
class TrialValues:
    """The values that make a trial the same one: metaparameters, seed and the options of the workload.

    ``workload`` is None where it was not stored; then it is not compared.
    """

    parameters: Mapping[str, float]
    seed: int | None
    workload: str | None = None

    def matches(self, other: "TrialValues") -> bool:
        """True if both are values of the same trial."""
        same_workload = None in (self.workload, other.workload) or self.workload == other.workload
        return dict(self.parameters) == dict(other.parameters) and self.seed == other.seed and same_workload

    def __str__(self) -> str:
        return ", ".join([*(f"{name} {value:g}" for name, value in self.parameters.items()), f"seed {self.seed}"])


class SingleStudy:
    """The records of the trial that is trained now, beside those of earlier trials in the same folder.

    ``summary`` is that of the trial: empty, or as far as it was trained when it is continued; ``rows`` are its
    measurements until then. ``unfinished`` are trials with other values that have not ended, by id.
    """

    def __init__(self, root: Path, study: Study, values: TrialValues, resume: Resume = Resume.IF_THERE) -> None:
        self._study = study
        self._values = values
        paths = StudyPaths.of(root, study.workload, study.batch_size)
        if resume is Resume.REQUIRED and not paths.folder.is_dir() and not any(paths.working.glob(CHOSEN)):
            raise RunError(_describe_nothing(paths.folder))
        self._writer = open_study(root, _to_record(study, None))
        try:
            self._require_single()
            self._recorder = Recorder(self._writer, study.goal, evaluation_steps=None)
            self._stored = {trial_id: self._read_values(trial_id) for trial_id in self._list_trials()}
            self.trial_id = self._find_trial(resume)
            self.rows = self._read_rows()
            self.summary = self._summarize()
        except BaseException:
            self._writer.close()
            raise

    @property
    def checkpoint_dir(self) -> Path:
        """The folder of the checkpoints of the study's trials."""
        return self._writer.checkpoints

    @property
    def unfinished(self) -> dict[int, TrialValues]:
        """The other trials that were begun and have not ended, with their values where these are stored."""
        recorded = self._recorder.records
        return {
            trial_id: values
            for trial_id, values in self._stored.items()
            if values is not None and trial_id not in recorded and trial_id != self.trial_id
        }

    def begin(self) -> None:
        """Store the values of the trial, by which the same command finds it again."""
        values = self._values
        stored = {"parameters": dict(values.parameters), "seed": values.seed, "workload": values.workload}
        if self._stored.get(self.trial_id) is None:
            replace_durably(self._writer.chosen(self.trial_id), json.dumps(stored) + "\n")

    def add(self, progress: TrialProgress, seconds: float, hardware: Hardware | None) -> None:
        """Write new measurements to the journal, where they survive this process."""
        rows = [row for row in progress.rows if row[0] > self.summary.step]
        self._recorder.add(progress, rows, seconds, hardware)
        self._recorder.write_journals()

    def commit(self, outcome: TrialOutcome) -> None:
        """Record the trial, unless it is recorded to this end or beyond: an earlier end cuts nothing off."""
        if self.summary.recorded is not None and self.summary.recorded >= outcome.step:
            return
        self._recorder.write_study(_to_record(self._study, self._writer.record))
        seed = self._values.seed or 0
        ended = EndedTrial(self.trial_id, outcome, dict(self._values.parameters), seed, search=1, point=0)
        self._recorder.commit(ended)

    def __enter__(self) -> "SingleStudy":
        return self

    def __exit__(self, *_: object) -> None:
        self._recorder.close()

    def _require_single(self) -> None:
        metadata = self._writer.record.metadata
        if metadata is not None and metadata.searches:
            raise RunError(
                f"{self._writer.folder}: a study belongs to one experiment. Found one of 'batchscale run', to which no "
                "single trial can be added; give another --out."
            )

    def _list_trials(self) -> list[int]:
        """Return the ids of all trials: recorded, running, begun, or damaged."""
        begun = [int(number) for path in self._writer.working_folder.glob(CHOSEN)
                 if (number := path.stem.partition("-")[2]).isascii() and number.isdigit()]  # fmt: skip
        return sorted({*self._recorder.records, *self._recorder.journaled, *self._writer.damaged_trials, *begun})

    def _read_values(self, trial_id: int) -> TrialValues | None:
        """Return the values that a trial was begun with, or recorded with; None if neither is stored."""
        try:
            stored: dict[str, Any] = json.loads(self._writer.chosen(trial_id).read_bytes())
            return TrialValues(dict(stored["parameters"]), stored["seed"], stored.get("workload"))
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            record = self._recorder.records.get(trial_id)
        if record is None:
            return None
        return TrialValues(dict(record.parameters), record.metadata.seed if record.metadata else None)

    def _find_trial(self, resume: Resume) -> int:
        new = max([0, *self._stored]) + 1
        if resume is Resume.NEVER:
            return new
        recorded = self._recorder.records
        required = resume is Resume.REQUIRED
        same = [
            trial_id
            for trial_id, values in self._stored.items()
            if (values.matches(self._values) if values is not None else required and trial_id not in recorded)
        ]
        if same:
            trial_id = max([trial_id for trial_id in same if trial_id not in recorded] or same)
            if trial_id in self._writer.damaged_trials:
                raise RecordsError(self._writer.damaged_trials[trial_id])
            return trial_id
        if required and self._stored:
            near = [trial_id for trial_id in self._stored if self._describe_workload(trial_id)]
            last = max(near or self._stored)
            raise RunError(
                f"--resume needs a trial with the same metaparameters, seed and workload in {self._writer.folder}. "
                f"Found {self._values}; trial {last} there has {self._stored[last] or 'unknown values'}"
                f"{self._describe_workload(last)}. Give the same, or leave --resume out to train a new trial."
            )
        if required:
            raise RunError(_describe_nothing(self._writer.folder))
        return new

    def _describe_workload(self, trial_id: int) -> str:
        """Return the difference of workloads, if it alone makes a trial another one; else an empty text."""
        values = self._stored[trial_id]
        if values is None or not replace(values, workload=None).matches(self._values):
            return ""
        return f", with the workload {one_line(values.workload, 300)} instead of {one_line(self._values.workload, 300)}"

    def _read_rows(self) -> list[Row]:
        if self.trial_id in self._recorder.records or self.trial_id in self._recorder.journaled:
            return self._recorder.rows(self.trial_id)
        return []

    def _summarize(self) -> TrialSummary:
        """Return the summary of the trial for the goal of now, which may be another than when it was recorded."""
        summary = TrialSummary()
        if not self.rows and self.trial_id not in self._recorder.records:
            return summary
        stored = self._recorder.read_summary(self.trial_id)
        summary.update(self.rows, stored.diverged_at, self._study.goal)
        summary.step = max(summary.step, stored.step)
        summary.recorded, summary.failed = stored.recorded, stored.failed
        return summary


def _describe_nothing(folder: Path) -> str:
    return (
        f"--resume needs a trial to continue. Found none in {folder}. Leave --resume out: the same command then starts "
        "a trial, and continues it when it is repeated."
    )


def _to_record(study: Study, existing: StudyRecord | None) -> StudyRecord:
    """Return the ``study.json`` of a trial and of those before it."""
    before = StudyMetadata() if existing is None or existing.metadata is None else existing.metadata
    stops_early = find_rule(study.stop).stops_early
    metadata = replace(
        before,
        code_version=__version__,
        stop_rule=str(study.stop) if stops_early else before.stop_rule or str(study.stop),
        seed=study.seed,
        goal=str(study.goal) if stops_early else before.goal,
        num_train_examples=study.num_train_examples or before.num_train_examples,
        tokens_per_example=study.tokens_per_example or before.tokens_per_example,
    )
    return StudyRecord(
        workload=study.workload,
        batch_size=study.batch_size,
        train_steps=study.train_steps if existing is None else max(existing.train_steps, study.train_steps),
        early_stopping=True,  # a single trial may have any early stop, and trials of one study may differ in it
        space=study.space if existing is None else _merge_spaces(existing.space, study.space),
        metadata=metadata,
        extra={} if existing is None else existing.extra,
    )


def _merge_spaces(existing: SearchSpace, new: SearchSpace) -> SearchSpace:
    """Return the space of a study of single trials: every value that one of them has."""
    configs = {config.name: config for config in existing}
    for config in new:
        points = configs[config.name].feasible_points if config.name in configs else ()
        merged = tuple(sorted({*points, *config.feasible_points}))
        configs[config.name] = ParameterConfig(config.name, ParameterType.DISCRETE, feasible_points=merged)
    return SearchSpace(tuple(configs.values()))
