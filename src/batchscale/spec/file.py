"""Reads an experiment file: TOML in, a frozen Experiment out, or one clear error.

The file is not trusted: its size, its encoding, its syntax and its keys are checked, then the meaning of each value.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from batchscale.errors import SpecError, one_line
from batchscale.spec.adaptive import AUTO, AdaptivePlan, finishers_of
from batchscale.spec.adaptive_table import read_adaptive
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Spacing, Unit
from batchscale.spec.experiment import (
    DEFAULT_BATCH_SIZES,
    DEFAULT_BUDGET,
    Algorithm,
    Experiment,
    Option,
    Options,
    RayPlan,
    RunPlan,
    SearchPlan,
    SlurmOptions,
    StopRule,
    WorkloadSpec,
    noise_of_script,
)
from batchscale.spec.goal import Goal
from batchscale.spec.horizon_free import BRANCH_EVALUATION, Averaging, Branches, Decay
from batchscale.spec.redaction import redact_toml
from batchscale.spec.space import SearchSpace, check_bounds
from batchscale.spec.tables import (
    AveragingTable,
    BranchesTable,
    BudgetTable,
    EvaluationTable,
    ExperimentTable,
    ReportsTable,
    RunTable,
    SearchTable,
    SlurmTable,
    SpaceTable,
    TrainerTable,
    WorkloadTable,
    explain,
)
from batchscale.spec.tokens import check_size_text, names_tokens, parse_duration
from batchscale.spec.trainer import ReportSource, ReportsSpec, TrainerSpec
from batchscale.spec.untrusted_text import parse_toml
from batchscale.spec.workload_name import WorkloadName

MAX_FILE_BYTES = 1_000_000
MAX_WHOLE = 2**53  # whole numbers below are exact as floats

_ENGINE_KEYS = ("schedule", "file", "dataset_options", "model_options", "optimizer_options")
_PLACE_KEYS = {"ray", "slurm", "track"}
"""Keys of [run] that hold whatever workers train with."""


def read_experiment(path: Path) -> Experiment:
    """Read an experiment from a TOML file.

    Raises:
        SpecError: the file cannot be read or is not valid; names the file and the key.
    """
    try:
        return parse_experiment(_read_text(path), source=str(path), folder=path.parent)
    except SpecError as error:
        raise SpecError(f"{one_line(path, 500)}: {error}") from None


def parse_experiment(text: str, source: str = "experiment.toml", folder: Path | None = None) -> Experiment:
    """Parse an experiment from TOML text; paths in it are relative to ``folder``."""
    try:
        data = parse_toml(text)
    except ValueError as error:  # not only of the parser: whole numbers of thousands of digits
        raise SpecError(f"the file must be valid TOML: {one_line(error, 300)}.") from None
    try:
        table = ExperimentTable.model_validate(data)
    except ValidationError as error:
        raise SpecError(explain(error)) from None
    experiment = _to_experiment(table, source, folder or Path())
    if experiment.trainer is not None:  # the text is stored and shown
        text = redact_toml(text, experiment.trainer.command, experiment.trainer.env)
    return replace(experiment, text=text)


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SpecError(f"the experiment file cannot be read ({error.strerror or error}). Give a TOML file.") from None
    if len(content) > MAX_FILE_BYTES:
        raise SpecError(f"the file must not exceed {MAX_FILE_BYTES} bytes. Found a larger one.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecError(f"the file must be UTF-8 text. Found byte {error.start} = {content[error.start]:#x}.") from None


def _to_experiment(table: ExperimentTable, source: str, folder: Path) -> Experiment:
    def part(key: str, value: Any) -> Any:
        try:
            return value()
        except SpecError as error:
            raise SpecError(f"key '{key}': {error}") from None

    batch_sizes: BatchSizes = part("batch_sizes", lambda: _to_batch_sizes(table.batch_sizes))
    is_auto = batch_sizes.auto is not None
    adaptive: AdaptivePlan | None = part(
        "adaptive", lambda: read_adaptive(table, is_auto, lambda text: _to_path(text, folder, "a file", "a file"))
    )
    if adaptive is not None and batch_sizes.auto is not None:
        batch_sizes = replace(batch_sizes, auto=(adaptive.smallest, adaptive.largest))
    trials = adaptive.first_trials if adaptive is not None else int(table.trials)
    finishers = finishers_of(trials) if adaptive is not None and adaptive.chooses_finishers else table.finishers
    if finishers > trials:
        limit = f"trials = {trials}" if table.trials != AUTO else f"adaptive.first_trials = {trials}"
        raise SpecError(f"key 'finishers' must not exceed {limit}. Found {finishers}.")
    if table.trainer is not None:
        _check_beside_trainer(table)
    experiment = Experiment(
        workload=part("workload", lambda: _to_workload(table.workload, folder)),
        goal=part("goal", lambda: Goal.parse(table.goal)),
        batch_sizes=batch_sizes,
        trials=trials,
        budget=part("budget", lambda: _to_budget(table.budget)),
        evaluation=part("evaluation", lambda: _to_evaluation(table.evaluation, table.branches)),
        stop=StopRule(table.stop),
        finishers=finishers,
        confirm=table.confirm,
        confirm_best=table.confirm_best,
        averaging=part("averaging", lambda: _to_averaging(table.averaging)),
        branches=part("branches", lambda: _to_branches(table.branches)),
        search=part("search", lambda: _to_search(table.search)),
        seed=table.seed,
        metrics=None if table.metrics is None else tuple(table.metrics),
        source=source,
        run=part("run", lambda: _to_run(table.run)),
        trainer=part("trainer", lambda: None if table.trainer is None else _to_trainer(table.trainer, folder)),
        tokens_per_example=table.tokens_per_example,
        adaptive=adaptive,
    )
    if table.tokens_per_example is None:
        return experiment  # the workload may state it
    converted: Experiment = part("batch_sizes", lambda: experiment.in_examples(table.tokens_per_example))
    return converted


def _to_batch_sizes(value: object) -> BatchSizes:
    return DEFAULT_BATCH_SIZES if value is None else BatchSizes.parse(value)


def _to_workload(table: WorkloadTable, folder: Path) -> WorkloadSpec:
    return WorkloadSpec(
        name=WorkloadName(table.dataset, table.model, table.optimizer),
        dataset_options=_to_options(table.dataset_options, "dataset_options"),
        model_options=_to_options(table.model_options, "model_options"),
        optimizer_options=_to_options(table.optimizer_options, "optimizer_options"),
        schedule=table.schedule,
        file=None if table.file is None else _to_path(table.file, folder),
        file_timeout_s=table.file_timeout_s,
    )


def _to_path(text: str, folder: Path, name: str = "'file'", what: str = "a Python file") -> Path:
    if not text.isprintable():
        raise SpecError(f"{name} must be the path of {what} in printable characters. Found {one_line(repr(text))}.")
    return folder / text


def _to_options(values: Mapping[str, Any], key: str) -> Options:
    return {name: _to_option(value, f"{key}.{name}") for name, value in values.items()}


def _to_option(value: object, key: str) -> Option:
    if isinstance(value, list):
        return tuple(_to_option(item, key) for item in value)
    if isinstance(value, int | float) and not _is_sound(value):
        raise SpecError(
            f"{key}: a number must be finite, and a whole one below 2^53. Found {one_line(_describe(value))}."
        )
    if isinstance(value, bool | int | float | str):
        return value
    raise SpecError(
        f"{key}: an option must be a number, a text, true or false, or a list of these. Found {one_line(value)}."
    )


def _is_sound(value: float) -> bool:
    return abs(value) <= MAX_WHOLE if isinstance(value, int) else math.isfinite(value)


def _describe(value: float) -> str:
    return f"a whole number of {value.bit_length()} bits" if isinstance(value, int) else repr(value)


def _to_budget(table: BudgetTable) -> Budget:
    amounts = {unit: getattr(table, unit.value) for unit in Unit if getattr(table, unit.value) is not None}
    if len(amounts) > 1:
        raise SpecError(f"give one of steps, examples, epochs and tokens. Found {' and '.join(amounts)}.")
    unit, amount = next(iter(amounts.items()), (DEFAULT_BUDGET.unit, DEFAULT_BUDGET.amount))
    at_least = table.at_least_steps or (1 if amounts else DEFAULT_BUDGET.at_least_steps)
    per_batch_size = {_to_batch_size(key): value for key, value in table.per_batch_size.items()}
    if unit is Unit.TOKENS:
        for value in (amount, *per_batch_size.values()):
            if value != int(value):
                raise SpecError(f"a number of tokens must be whole. Found {value!r}.")
    return Budget(amount, unit, at_least, per_batch_size)


def _to_evaluation(table: EvaluationTable, branches: BranchesTable | None) -> EvaluationPlan:
    every, tokens = (None, parse_duration(table.every)) if isinstance(table.every, str) else (table.every, None)
    if table.every is not None and (table.count is not None or table.spacing is not None):
        raise SpecError("give either 'every', or 'count' with 'spacing'. Found both.")
    examples = {"train": table.examples.train, "val": table.examples.val, "test": table.examples.test}
    noise = (
        table.gradient_noise if isinstance(table.gradient_noise, bool) else tuple(dict.fromkeys(table.gradient_noise))
    )
    if branches is not None and not table.model_fields_set - {"examples", "gradient_noise"}:
        return replace(BRANCH_EVALUATION, examples=examples, gradient_noise=noise)
    spacing = Spacing(table.spacing or Spacing.EVEN)
    return EvaluationPlan(every, table.count or EvaluationPlan.count, spacing, table.start, examples, tokens, noise)


def _to_averaging(table: AveragingTable | None) -> Averaging | None:
    return None if table is None else Averaging(tuple(table.half_life), table.unit)


def _to_branches(table: BranchesTable | None) -> Branches | None:
    if table is None:
        return None
    if table.decay is not None and table.decay_steps is not None:
        raise SpecError("give one of decay and decay_steps. Found both.")
    return Branches(table.decay or Branches.decay, table.decay_steps, Decay(table.shape), table.end_factor)


def _to_run(table: RunTable) -> RunPlan:
    devices = None if table.devices_per_trial == "all" else table.devices_per_trial
    if table.ray.checkpoints is not None and "://" not in table.ray.checkpoints:
        raise SpecError(
            f"run.ray.checkpoints must be a remote path such as s3://BUCKET/FOLDER. Found '{table.ray.checkpoints}'; a "
            "folder that all nodes see needs no key: have the records there."
        )
    ray = RayPlan(table.ray.num_cpus, table.ray.num_gpus, dict(table.ray.resources), table.ray.checkpoints)
    track = (table.track,) if isinstance(table.track, str) else tuple(table.track)
    return RunPlan(devices, table.exact, track, _to_slurm(table.slurm), ray)


def _to_slurm(table: SlurmTable) -> SlurmOptions:
    texts = {key: None if value is None else str(value) for key, value in (("time", table.time), ("gpus", table.gpus))}
    return SlurmOptions(**{**dict(table), **texts, "options": tuple(table.options)})


def _to_search(table: SearchTable) -> SearchPlan:
    spaces = {"space": table.space} | {f"per_batch_size.{size}": space for size, space in table.per_batch_size.items()}
    for where, space in spaces.items():
        both = sorted(set(space) & set(table.fixed))
        if both:
            raise SpecError(
                f"A metaparameter must be either searched or fixed. Found {one_line(repr(both[0]))} in "
                f"search.{one_line(where)} and in search.fixed; remove one of the two."
            )
    return SearchPlan(
        algorithm=Algorithm(table.algorithm),
        paired=table.paired,
        space=_to_space(table.space),
        fixed=table.fixed,
        per_batch_size={_to_batch_size(key): _to_space(value) for key, value in table.per_batch_size.items()},
        edge_margin=table.edge_margin,
        repeats=table.repeats,
        max_attempts=table.max_attempts,
    )


def _to_space(table: SpaceTable) -> SearchSpace:
    space = SearchSpace.from_json(table)
    for config in space:
        check_bounds(config)
    return space


def _to_batch_size(key: str) -> int | str:
    """Return the batch size that a key names, as text if it is in tokens."""
    if names_tokens(key) and ".." not in key:
        return check_size_text(key)
    if not (key.isascii() and key.isdigit() and len(key) <= 13 and int(key) >= 1):
        raise SpecError(
            f'per_batch_size: each key must be a batch size such as 64 or "16k tokens". Found {one_line(repr(key))}.'
        )
    return int(key)


def _to_trainer(table: TrainerTable, folder: Path) -> TrainerSpec:
    for text in (*table.command, *table.env, *table.env.values()):
        if "\0" in text:
            raise SpecError("command and env must not contain a NUL character. Found one; remove it.")
    if not table.command[0].strip():
        raise SpecError("the first word of 'command' must be the program to start. Found an empty text.")
    for name in table.env:
        if "=" in name:
            raise SpecError(f"env: a variable's name must not contain '='. Found '{name}'.")
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
        pass_env=tuple(table.pass_env),
        reports=ReportsSpec() if table.reports is None else _to_reports(table.reports),
    )


def _to_reports(table: ReportsTable) -> ReportsSpec:
    texts = {
        source: text
        for source, text in (
            (ReportSource.PATTERN, table.pattern),
            (ReportSource.CSV, table.csv),
            (ReportSource.JSON_LINES, table.jsonl),
        )
        if text is not None
    }
    if len(texts) != 1:
        names = " and ".join(texts) or "none of them"
        raise SpecError(f"reports: give one of pattern, csv and jsonl. Found {names}.")
    source, text = next(iter(texts.items()))
    if source is ReportSource.PATTERN and table.names:
        raise SpecError("reports: a pattern has our names already. Found 'names' as well; remove it.")
    return ReportsSpec(source, text, dict(table.names))


def _check_beside_trainer(table: ExperimentTable) -> None:
    """Raise SpecError if the file sets for a script what only our own engine can do."""
    for key in _ENGINE_KEYS:
        if key in table.workload.model_fields_set:
            raise SpecError(
                f"key 'workload.{key}' is for our own engine; with [trainer] the script decides. Remove it, or give it "
                "to the script in its command."
            )
    for key in sorted(table.run.model_fields_set - _PLACE_KEYS):
        raise SpecError(
            f"key 'run.{key}' is for our own engine; a script gets its devices from 'trainer.devices'. Remove it."
        )
    if "examples" in table.evaluation.model_fields_set:
        raise SpecError(
            "key 'evaluation.examples' is for our own engine; with [trainer] the script decides. Remove it."
        )
    if table.evaluation.gradient_noise:
        raise noise_of_script("key 'evaluation.gradient_noise'")
    for key in ("averaging", "branches"):
        if getattr(table, key) is not None and table.trainer is not None and table.trainer.reports is not None:
            raise SpecError(
                f"key '{key}' needs a script that reports with batchscale.trial, which gives it the plan. Found "
                "'trainer.reports', for a script that does not. Remove one of the two."
            )
    if table.branches is not None and table.trainer is not None and not table.trainer.resume:
        raise SpecError(
            "key 'branches' needs a script that can save and load its state: it goes back to its trunk after each "
            "branch. Found trainer.resume = false; let the script save and load, and set it to true."
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
