"""The part of ``batchscale import`` that reads runs of other tools: their names shown, then written as a tree."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from batchscale.cli.output import Stages, print_json
from batchscale.cli.selection import print_notice
from batchscale.errors import RecordsError, one_line
from batchscale.formatting import count_text

if TYPE_CHECKING:
    from batchscale.records.importers.mapping import MappingOptions, NameMapping
    from batchscale.records.importers.source import Importer, ReadOptions, RunSource
    from batchscale.records.importers.write_tree import ImportedTree

VERSION = 1


@dataclass(frozen=True)
class RunOptions:
    """The options of ``import`` that only runs of other tools need, as given."""

    workload: str | None = None
    batch_size: str | None = None
    metric: str | None = None
    goal: str | None = None
    step: str | None = None
    unit: str | None = None
    first_epoch: int | None = None
    num_train_examples: int | None = None
    drop_last: bool = False
    group: str | None = None
    rename: tuple[str, ...] = ()
    parameter: tuple[str, ...] = ()
    trial: str | None = None
    name_pattern: str | None = None
    allow_sampled: bool = False
    dry_run: bool = False

    def require_none(self) -> None:
        """Refuse options of other tools' runs for a source that has records already."""
        given = [
            f"--{name.replace('_', '-')}" for name, value in asdict(self).items() if value not in (None, False, ())
        ]
        if given:
            raise RecordsError(
                f"{given[0]} must be used with runs of other tools: the source is an archive or a records tree, whose "
                "names are known. Leave the option out, or name the tool with --from."
            )

    def mapping_options(self) -> "MappingOptions":
        """Return the choices of names."""
        from batchscale.records.importers.mapping import MappingOptions
        from batchscale.spec.durations import Unit

        if self.unit is not None and self.unit not in list(Unit):
            raise RecordsError(f"--unit must be steps, epochs or examples. Found '{one_line(self.unit)}'.")
        if self.goal is not None and self.metric is not None:
            raise RecordsError("--metric must not be given with --goal, which names the metric. Leave one of them out.")
        pairs = [text.partition("=") for text in self.rename]
        for old, sign, _ in pairs:
            if not sign:
                raise RecordsError(f"--rename must be OLD=NEW, such as loss=val/loss. Found '{one_line(old)}'.")
        return MappingOptions(
            workload=self.workload,
            batch_size=self.batch_size,
            metric=self.metric,
            goal=self.goal,
            step=self.step,
            unit=None if self.unit is None else Unit(self.unit),
            first_epoch=self.first_epoch,
            num_train_examples=self.num_train_examples,
            drop_last=self.drop_last,
            group=self.group,
            rename={old: new for old, _, new in pairs},
            parameters=self.parameter,
        )

    def read_options(self) -> "ReadOptions":
        """Return the options of reading."""
        from batchscale.records.importers.source import ReadOptions

        if self.name_pattern is not None:
            try:
                groups = re.compile(self.name_pattern).groupindex
            except re.error as error:
                raise RecordsError(f"--name-pattern must be a regular expression ({one_line(error)}).") from None
            if not groups:
                raise RecordsError("--name-pattern must have named groups, such as (?P<batch_size>[0-9]+). Found none.")
        metrics = tuple(text.partition("=")[0] for text in self.rename)
        metrics += () if self.metric is None else (self.metric,)
        metrics += () if self.goal is None else (re.split(r"[<>]", self.goal)[0].strip(),)
        metrics += () if self.step is None else (self.step,)
        return ReadOptions(self.trial, self.name_pattern, self.allow_sampled, metrics, self.parameter)


def import_runs(path: Path, out: Path, importer: "Importer", options: RunOptions, json_: bool) -> None:
    """Import the runs at a path into a new records tree, after showing what its names are taken for."""
    from batchscale.records.importers.mapping import map_names, select_group
    from batchscale.records.importers.write_tree import check_target, write_tree

    mapping_options, read_options = options.mapping_options(), options.read_options()
    check_target(out)
    with Stages() as stages:
        stages.enter("reading the runs")
        source = select_group(importer.read(path, read_options), options.group)
        if not source.runs:
            raise RecordsError(f"{one_line(path, 300)}: the source must have a run with measurements. Found none.")
        mapping = map_names(source, source.runs, mapping_options)
        _print_mapping(source, mapping)
        stages.enter(f"converting {count_text(len(source.runs), 'run')}")
        imported = write_tree(source, mapping, None if options.dry_run else out)
    for notice in (*source.notices, *imported.problems):
        print_notice(notice)
    for sentence in imported.missing:
        typer.echo(f"Missing: {sentence}", err=True)
    if json_:
        _print_json(source, mapping, imported, out, options.dry_run)
    else:
        _print_summary(imported, out, options.dry_run)


def _print_mapping(source: "RunSource", mapping: "NameMapping") -> None:
    """Print what is taken for what to standard error, guesses marked, before anything is written."""
    guessed = {guess.partition(":")[0] for guess in mapping.guesses}

    def line(label: str, text: object) -> None:
        typer.echo(f"{label:<12}{text}{' (guessed)' if label in guessed else ''}", err=True)

    line("source", f"{source.kind}, {count_text(len(source.runs), 'run')}")
    line("workload", mapping.workload)
    line("batch size", mapping.batch_size)
    line("step", mapping.step)
    line("unit", _unit_text(mapping))
    line("metric", mapping.metric)
    line("goal", mapping.goal or "none")
    line("seed", mapping.seed or "none")
    renamed = [f"{old} → {new}" for old, new in mapping.metrics.items() if old != new]
    if renamed:
        line("renamed", one_line(", ".join(renamed), 600))
    for guess in mapping.guesses:
        name, _, text = guess.partition(": ")
        if name in ("first epoch", "notice"):
            print_notice(f"{name}: {text}." if name != "notice" else f"{text}.")


def _unit_text(mapping: "NameMapping") -> str:
    if mapping.unit != "epochs":
        return str(mapping.unit)
    rounding = "rounded down" if mapping.drop_last else "rounded up"
    return f"epochs of {mapping.num_train_examples:,} examples / batch size, {rounding}"


def _print_summary(imported: "ImportedTree", out: Path, dry_run: bool) -> None:
    statuses = ", ".join(f"{count:,} {status}" for status, count in imported.trials.items())
    workloads = len({study.workload for study in imported.studies})
    studies = count_text(len(imported.studies), "study", "studies")
    prefix = "Nothing is written (--dry-run): " if dry_run else f"{out}: "
    typer.echo(f"{prefix}{count_text(workloads, 'workload')}, {studies}")
    typer.echo(f"trials          {sum(imported.trials.values()):,} ({statuses})")
    typer.echo(f"measurements    {imported.measurements:,}")
    typer.echo(f"metaparameters  {', '.join(imported.parameters) or 'none'}")


def _print_json(
    source: "RunSource", mapping: "NameMapping", imported: "ImportedTree", out: Path, dry_run: bool
) -> None:
    print_json(
        {
            "version": VERSION,
            "tree": None if dry_run else str(out),
            "source": source.kind,
            "workload": mapping.workload,
            "batch_size": str(mapping.batch_size),
            "step": mapping.step,
            "unit": mapping.unit.value,
            "num_train_examples": mapping.num_train_examples,
            "metric": mapping.metric,
            "goal": None if mapping.goal is None else str(mapping.goal),
            "seed": mapping.seed,
            "metrics": dict(mapping.metrics),
            "guesses": list(mapping.guesses),
            "studies": [
                {
                    "workload": str(study.workload),
                    "batch_size": study.batch_size,
                    "trials": study.trials,
                    "train_steps": study.train_steps,
                }
                for study in imported.studies
            ],
            "trials": imported.trials,
            "measurements": imported.measurements,
            "metaparameters": list(imported.parameters),
            "missing": list(imported.missing),
            "problems": [*source.notices, *imported.problems],
        }
    )
