"""A study of single trials: their metaparameters were chosen by hand, one at a time, with any seed and budget.

The same recorder writes them; what makes it another study is that no search says which trial is which point.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchscale import __version__
from batchscale.errors import RunError
from batchscale.records.durable import replace_durably
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import Hardware
from batchscale.records.model import StudyRecord
from batchscale.records.tree.open_study import open_study
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace
from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Ending
from batchscale.study.recorder import EndedTrial, Recorder
from batchscale.study.stop_rules import find_rule
from batchscale.study.tasks import TrialProgress, TrialTask


class SingleStudy:
    """The trial that is trained now, beside those that were trained here before.

    ``known`` is what is known of it: nothing, or as far as it came when it is resumed.
    """

    def __init__(self, root: Path, study: Study, resume: bool) -> None:
        self._study = study
        self._writer = open_study(root, _to_record(study, None))
        try:
            self._require_single()
            self._recorder = Recorder(self._writer, study.goal, evaluation_steps=None)
            self.trial_id = self._find(resume)
            self.known = self._recorder.know(self.trial_id) if resume else Knowledge()
        except BaseException:
            self._writer.close()
            raise

    @property
    def checkpoint_dir(self) -> Path:
        """Where the checkpoints of the study's trials are."""
        return self._writer.checkpoints

    def add(self, progress: TrialProgress, seconds: float, hardware: Hardware | None) -> None:
        """Keep measurements that are new; they survive the death of the process."""
        rows = [row for row in progress.rows if row[0] > self.known.step]
        self._recorder.add(progress, rows, seconds, hardware)
        self._recorder.write_journals()

    def commit(self, ending: Ending, task: TrialTask) -> None:
        """Record the trial, unless it is recorded to this end already."""
        self._recorder.write_study(_to_record(self._study, self._writer.record))
        if self.known.recorded != ending.step:
            parameters = dict(task.parameters)
            self._recorder.commit(EndedTrial(self.trial_id, ending, parameters, task.seed, search=1, point=0))
        self._writer.chosen(self.trial_id).unlink(missing_ok=True)

    def begin(self, task: TrialTask) -> None:
        """Keep what the trial is until it is recorded, and refuse to go on with one that is another.

        Raises:
            RunError: the trial was begun, or recorded, with other metaparameters or another seed.
        """
        asked = {"parameters": dict(task.parameters), "seed": task.seed}
        there = self._chosen()
        if there is not None and there != asked:
            raise RunError(
                f"--resume goes on with trial {self.trial_id} of {self._writer.folder}, which has the metaparameters "
                f"{there['parameters']} and seed {there['seed']}. Found {asked['parameters']} and seed {task.seed}; "
                "give the same, or leave --resume out to train a new trial."
            )
        if there is None:
            replace_durably(self._writer.chosen(self.trial_id), json.dumps(asked) + "\n")

    def _chosen(self) -> dict[str, Any] | None:
        """Metaparameters and seed that the trial has had so far; None where nothing says so."""
        record = self._recorder.records.get(self.trial_id)
        if record is not None and self.known.recorded is not None:
            return {"parameters": dict(record.parameters), "seed": record.metadata.seed if record.metadata else None}
        try:
            found = json.loads(self._writer.chosen(self.trial_id).read_bytes())
            return {"parameters": dict(found["parameters"]), "seed": found["seed"]}
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def __enter__(self) -> "SingleStudy":
        return self

    def __exit__(self, *_: object) -> None:
        self._recorder.close()

    def _require_single(self) -> None:
        facts = self._writer.record.metadata
        if facts is not None and facts.searches:
            raise RunError(
                f"{self._writer.folder}: a study belongs to one experiment. Found one of 'batchscale run', to which no "
                "single trial can be added; give another --out."
            )

    def _find(self, resume: bool) -> int:
        recorded, running = self._recorder.records, self._recorder.running
        if not resume:
            ids: list[int] = [0, *recorded, *running, *self._writer.damaged_trials]
            return max(ids) + 1
        if not recorded and not running:
            raise RunError(f"--resume needs a trial to go on with. Found none in {self._writer.folder}.")
        return max(running, default=0) or max(recorded)


def extend_to(study: Study, step: int) -> Study:
    """The study with a step budget of at least this: what was measured before is never cut off."""
    if step <= study.train_steps:
        return study
    return replace(study, train_steps=step, evaluation_steps=(*study.evaluation_steps, step))


def _to_record(study: Study, known: StudyRecord | None) -> StudyRecord:
    """The ``study.json`` of a trial, and of those that were there before it."""
    before = StudyMetadata() if known is None or known.metadata is None else known.metadata
    stops_early = find_rule(study.stop).stops_early
    facts = replace(
        before,
        code_version=__version__,
        stop_rule=str(study.stop) if stops_early else before.stop_rule or str(study.stop),
        seed=study.seed,
        goal=str(study.goal) if stops_early else before.goal,
        num_train_examples=study.num_train_examples or before.num_train_examples,
    )
    return StudyRecord(
        workload=study.workload,
        batch_size=study.batch_size,
        train_steps=study.train_steps if known is None else max(known.train_steps, study.train_steps),
        early_stopping=True,  # a single trial may have any early stop, and trials of one study may differ in it
        space=study.space if known is None else _merge(known.space, study.space),
        metadata=facts,
        extra={} if known is None else known.extra,
    )


def _merge(known: SearchSpace, new: SearchSpace) -> SearchSpace:
    """The space of a study that holds single trials: every value that one of them has."""
    configs = {config.name: config for config in known}
    for config in new:
        points = configs[config.name].feasible_points if config.name in configs else ()
        merged = tuple(sorted({*points, *config.feasible_points}))
        configs[config.name] = ParameterConfig(config.name, ParameterType.DISCRETE, feasible_points=merged)
    return SearchSpace(tuple(configs.values()))
