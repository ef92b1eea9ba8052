"""From the ``[trainer]`` table of a file to the trainer it means, and what else a file may say beside it."""

from pathlib import Path

from batchscale.errors import SpecError
from batchscale.spec.tables import ExperimentTable, ReportsTable, TrainerTable
from batchscale.spec.trainer import ReportSource, ReportsSpec, TrainerSpec

_OURS = ("schedule", "file", "dataset_options", "model_options", "optimizer_options")
_WHERE = {"ray", "slurm"}
"""Tables of [run] that say where workers are, whatever they train with."""


def to_trainer(table: TrainerTable, folder: Path) -> TrainerSpec:
    """The trainer of a table; its script runs in ``folder``.

    Raises:
        SpecError: texts that no process can be started with, or measurements read in two ways.
    """
    for text in (*table.command, *table.env, *table.env.values()):
        if "\0" in text:
            raise SpecError("words of a command and of its environment have no NUL character. Found one.")
    if not table.command[0].strip():
        raise SpecError("the first word of 'command' is the program to start. Found an empty text.")
    for name in table.env:
        if "=" in name:
            raise SpecError(f"env: a variable's name has no '='. Found '{name}'.")
    return TrainerSpec(
        command=tuple(table.command),
        folder=folder.absolute(),
        resume=table.resume,
        workers=table.workers or (len(table.devices) or None),
        devices=tuple(table.devices),
        timeout_s=table.timeout_s,
        grace_s=table.grace_s,
        max_paused=table.max_paused,
        num_train_examples=table.num_train_examples,
        env=dict(table.env),
        reports=ReportsSpec() if table.reports is None else _to_reports(table.reports),
    )


def _to_reports(table: ReportsTable) -> ReportsSpec:
    given = {
        source: text
        for source, text in (
            (ReportSource.PATTERN, table.pattern),
            (ReportSource.CSV, table.csv),
            (ReportSource.JSON_LINES, table.jsonl),
        )
        if text is not None
    }
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise SpecError(f"reports: give one of pattern, csv and jsonl. Found {found}.")
    source, text = next(iter(given.items()))
    if source is ReportSource.PATTERN and table.names:
        raise SpecError("reports: a pattern has our names in its placeholders. Found 'names' as well; remove it.")
    return ReportsSpec(source, text, dict(table.names))


def check_beside_trainer(table: ExperimentTable) -> None:
    """Raises SpecError where the file asks of a trainer's script what only our own engine does."""
    for key in _OURS:
        if key in table.workload.model_fields_set:
            raise SpecError(
                f"key 'workload.{key}' is for our own engine; with [trainer] the script decides. Remove it, or give it "
                "to the script in its command."
            )
    for key in sorted(table.run.model_fields_set - _WHERE):
        raise SpecError(
            f"key 'run.{key}' is for our own engine; a script is told its devices in 'trainer.devices'. Remove it."
        )
    if "examples" in table.evaluation.model_fields_set:
        raise SpecError(
            "key 'evaluation.examples' is for our own engine; with [trainer] the script decides. Remove it."
        )
    if not table.search.space and not table.search.fixed:
        raise SpecError(
            "key 'search.space' is needed with [trainer]: a script has no default metaparameters. For example:\n"
            '[search.space.learning_rate]\ntype = "DOUBLE"\nscale = "LOG_SCALE"\nmin_value = 1e-3\nmax_value = 1.0'
        )
    workers = table.trainer.workers if table.trainer else None
    devices = table.trainer.devices if table.trainer else []
    if workers is not None and devices and workers > len(devices):
        raise SpecError(
            f"key 'trainer.workers' must not exceed the devices, one each. Found {workers} workers, {len(devices)} "
            "devices; name a device twice to share it."
        )
