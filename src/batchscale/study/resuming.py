"""Open a study to run it: new, or where it was left, if what is there can be understood and is not asked for less."""

from pathlib import Path

from batchscale.errors import RecordsError, RunError
from batchscale.records.model import StudyRecord, parse_study
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.layout import StudyPaths, folder_number
from batchscale.records.tree.open_study import open_study
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Study
from batchscale.study.recorder import Recorder
from batchscale.study.study_facts import DamagedStudyError, StudyMemory, with_budgets
from batchscale.study.study_run import StudyRun
from batchscale.study.study_state import StudyState


def open_study_run(root: Path, study: Study, experiment: Experiment, retry: bool = False) -> StudyRun:
    """The study in its folder: new, or where it was left; with ``retry`` INCOMPLETE trials are trained again.

    Raises:
        StudyLockedError: another process is writing it.
        DamagedStudyError: its file or one of its trials cannot be read, or says that it is another experiment's.
        RecordsError: the study there was not made by a run.
        RunError: more was asked of it before.
        StorageError: the file system refuses.
    """
    fresh = StudyMemory(budgets=[study.train_steps])
    fresh.ledger.open_search(study.space, first_trial_id=1)
    _require_study_file(StudyPaths.of(root, study.workload, study.batch_size), study)
    try:
        writer = open_study(root, fresh.to_record(study, experiment))
    except RecordsError as error:
        raise DamagedStudyError(str(error)) from None  # its folder was found to be this experiment's: others go on
    try:
        memory = StudyMemory.read(writer.record, str(writer.folder))
        _require_growth(writer.record, memory, study, experiment, str(writer.folder))
        if study.train_steps > memory.budgets[-1]:
            memory.budgets.append(study.train_steps)
        study = with_budgets(study, experiment, memory)
        recorder = Recorder(writer, study.goal, study.evaluation_steps)
        run = StudyRun(StudyState(study, experiment, memory, recorder.read_known(retry)), recorder)
        record = memory.to_record(study, experiment)
        if record.to_json() != writer.record.to_json():
            recorder.write_study(record)
    except BaseException:
        writer.close()
        raise
    return run


def _require_study_file(paths: StudyPaths, study: Study) -> None:
    """What was drawn, and where each trial belongs, stands in ``study.json`` only: trials without it must wait."""
    advice = "Put it back from a copy, or move the folder out of the tree, and run again."
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


def _require_growth(record: StudyRecord, memory: StudyMemory, study: Study, experiment: Experiment, where: str) -> None:
    """Refuse to ask for less than a study has: what its folder was asked for, which is read first, may be lost."""
    assert record.metadata is not None  # a study without was refused before
    pairs = {
        "trials": (record.metadata.trials, study.trials),
        "finishers": (record.metadata.finishers, experiment.finishers),
        "step budget": (memory.budgets[-1], study.train_steps),
    }
    lower = [
        f"{name} {had} there, {asked} asked for"
        for name, (had, asked) in pairs.items()
        if had is not None and asked < had
    ]
    if lower:
        raise RunError(f"{where}: a study that is there may only grow. Found {'; '.join(lower)}.")
