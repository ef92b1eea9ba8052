"""Open a study to run it: a new one, or an existing one that is readable and that is not asked for less than before."""

from pathlib import Path

from batchscale.errors import RecordsError, RunError
from batchscale.records.model import StudyRecord, parse_study
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.layout import StudyPaths, folder_number
from batchscale.records.tree.open_study import open_study
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Study
from batchscale.study.recorder import Recorder
from batchscale.study.saved_study import DamagedStudyError, SavedStudy
from batchscale.study.study import StudyRun
from batchscale.study.study_state import StudyState


def open_study_run(root: Path, study: Study, experiment: Experiment, retry: bool = False) -> StudyRun:
    """Return the study in its folder, new or resumed; with ``retry`` INCOMPLETE trials are trained again.

    Raises:
        StudyLockedError: another process is writing it.
        DamagedStudyError: its file or one of its trials cannot be read, or belongs to another experiment.
        RecordsError: the existing study was not made by a run.
        RunError: an earlier run asked for more.
        StorageError: the file system refuses.
    """
    new = SavedStudy(budgets=[study.train_steps])
    new.history.add_search(study.space, first_trial_id=1)
    _require_study_file(StudyPaths.of(root, study.workload, study.batch_size), study)
    try:
        writer = open_study(root, new.to_record(study, experiment))
    except RecordsError as error:
        raise DamagedStudyError(str(error)) from None  # the folder is this experiment's: other studies continue
    try:
        saved = SavedStudy.from_record(writer.record, str(writer.folder))
        _require_growth(writer.record, saved, study, experiment, str(writer.folder))
        if study.train_steps > saved.budgets[-1]:
            saved.budgets.append(study.train_steps)
        study = saved.apply_to(study, experiment)
        recorder = Recorder(writer, study.goal, study.evaluation_steps)
        run = StudyRun(StudyState(study, experiment, saved, recorder.read_summaries(retry)), recorder)
        record = saved.to_record(study, experiment)
        if record.to_json() != writer.record.to_json():
            recorder.write_study(record)
    except BaseException:
        writer.close()
        raise
    return run


def _require_study_file(paths: StudyPaths, study: Study) -> None:
    """Refuse trials without a readable ``study.json``: only there is stored which search each trial belongs to."""
    advice = "Restore it from a copy, or move the folder out of the tree, and run again."
    if paths.study_file.exists():
        try:
            parse_study(read_file(paths.study_file), study.workload, str(paths.study_file))
        except RecordsError as error:
            raise DamagedStudyError(f"{error} {advice}") from None
    elif paths.folder.is_dir() and (trials := [p for p in paths.folder.iterdir() if folder_number(p.name) is not None]):
        raise DamagedStudyError(
            f"{paths.study_file}: a study's trials belong to the searches that this file lists. Found {len(trials)} "
            f"trial(s) without it. {advice}"
        )


def _require_growth(record: StudyRecord, saved: SavedStudy, study: Study, experiment: Experiment, path: str) -> None:
    """Refuse a plan smaller than the study; the folder's ``experiment.json``, which is checked first, may be lost."""
    assert record.metadata is not None  # a study without was refused before
    pairs = {
        "trials": (record.metadata.trials, study.trials),
        "finishers": (record.metadata.finishers, experiment.finishers),
        "step budget": (saved.budgets[-1], study.train_steps),
    }
    lower = [
        f"{name} {recorded} recorded, {requested} requested"
        for name, (recorded, requested) in pairs.items()
        if recorded is not None and requested < recorded
    ]
    if lower:
        raise RunError(f"{path}: a recorded study may only grow. Found {'; '.join(lower)}.")
