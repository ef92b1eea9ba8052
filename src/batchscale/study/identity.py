"""The experiment that a folder belongs to: its normalised form, its hash, and the settings that may grow.

A folder stores the experiment it was made with. The same file, or one that asks for more (trials, steps, batch sizes,
finishers, searches, confirmations), continues it; anything else is another experiment and is refused with the
differences.
`SavedStudy` is the part of a study that ``study.json`` stores besides its trials; a resumed run continues from it.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from batchscale import __version__
from batchscale.errors import RecordsError, RunError, one_line
from batchscale.records.durable import replace_durably
from batchscale.records.metadata.study import StudyMetadata, StudyResult, TrainerMetadata
from batchscale.records.model import StudyRecord
from batchscale.records.tree.layout import RunPaths
from batchscale.spec.adaptive import RoundChoice
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Plan, Study
from batchscale.spec.redaction import HIDDEN, redact_words
from batchscale.spec.space import SearchSpace
from batchscale.spec.untrusted_text import parse_json
from batchscale.study.sampling import SearchHistory
from batchscale.study.stop_rules.rule import find_rule

FORMAT_VERSION = 1
MAX_DIFFERENCES = 12

_NUMBERS = ("trials", "finishers", "search.repeats")
_LATER_NUMBERS = {"confirm": 0, "confirm_best": 1}  # stored only if they are not these, their defaults
_LATER_KEYS = (
    "tokens_per_example",
    "evaluation.every_tokens",
    "evaluation.gradient_noise",
    "averaging",
    "branches",
    "adaptive",
)  # stored only if they are given
_MAY_BE_ADDED = ("tokens_per_example",)  # to records without it: it changes no trial
_MAY_GROW = ("trials", "finishers", "batch_sizes", "budget", "search.repeats", "search.max_attempts", *_LATER_NUMBERS)


def normalise(experiment: Experiment) -> dict[str, Any]:
    """Return the experiment as flat JSON: one key per setting, defaults filled in, the same for equal experiments."""
    data = {
        field.name: getattr(experiment, field.name)
        for field in dataclasses.fields(experiment)
        if field.name not in ("source", "text", "trainer", "run")
    }
    data["goal"] = str(experiment.goal)
    data["batch_sizes"] = experiment.batch_sizes.to_json()
    flat: dict[str, Any] = {}
    _flatten("", _to_json(data), flat)
    del flat["workload.file_timeout_s"]  # changes no record
    for key, default in _LATER_NUMBERS.items():
        if flat[key] == default:
            del flat[key]  # as folders have it that were made before this setting
    for key in _LATER_KEYS:
        if flat.get(key, ...) in (None, False):
            del flat[key]
    if experiment.workload.file is not None:
        flat["workload.file"] = hashlib.sha256(experiment.workload.file.read_bytes()).hexdigest()[:16]
    if experiment.trainer is not None:
        flat |= {f"trainer.{key}": value for key, value in experiment.trainer.identity().items()}
    return flat


def _to_json(value: Any) -> Any:
    if isinstance(value, SearchSpace):
        return value.to_json()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        # an experiment may have hundreds of batch sizes, and every study computes its hash
        return [item if type(item) in (int, float, str) else _to_json(item) for item in value]
    if isinstance(value, Enum | Path):
        return str(value)
    return value


def _flatten(prefix: str, value: Any, flat: dict[str, Any]) -> None:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            _flatten(f"{prefix}.{key}" if prefix else key, item, flat)
    else:
        flat[prefix] = value


def evaluation_settings(experiment: Experiment) -> dict[str, Any]:
    """Return the evaluation plan, as ``study.json`` stores it."""
    settings = dict(_to_json(experiment.evaluation))
    return {key: settings[key] for key in settings if f"evaluation.{key}" not in _LATER_KEYS or settings[key]}


def may_grow(key: str) -> bool:
    """True if a setting may ask for more without making it another experiment."""
    return key in _MAY_GROW or key.startswith(("budget.", "adaptive."))


def spec_hash(experiment: Experiment) -> str:
    """Return a hash of everything that must not change while a folder is continued."""
    flat = normalise(experiment)
    fixed = {key: flat[key] for key in flat if not may_grow(key) and key not in _MAY_BE_ADDED}
    text = json.dumps(fixed, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_folder(root: Path, plan: Plan) -> None:
    """Check that the folder may be used for this experiment; nothing is written.

    Raises:
        RunError: the folder belongs to another experiment, or the plan is smaller than before; lists the differences.
    """
    parent = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
    if not parent.is_dir():
        raise RunError(f"{root}: records are written to a folder. Found {parent}, which is none; give another --out.")
    _require_valid_names(root, parent)
    stored = read_plan(root)
    if stored is not None:
        _require_continuation(root, stored, _describe(plan))


def _require_valid_names(root: Path, parent: Path) -> None:
    """Refuse a path that is too long for the file system at ``parent``, before folders are made on the way to it."""
    max_name = os.pathconf(parent, "PC_NAME_MAX")
    length = len(os.fsencode(RunPaths(root.absolute()).experiment))
    if length >= os.pathconf(parent, "PC_PATH_MAX") or any(len(os.fsencode(part)) > max_name for part in root.parts):
        raise RunError(
            f"{one_line(root, 300)}: a folder's name has at most {max_name} bytes there, and its whole path must leave "
            "room for the records. Found a longer one; give another --out."
        )


def is_stored_plan(root: Path, plan: Plan) -> bool:
    """True if the folder's last run had exactly this plan."""
    return read_plan(root) == _describe(plan)


def write_plan(root: Path, plan: Plan) -> None:
    """Check that the folder is this experiment's and store the plan.

    Raises:
        RunError: as `check_folder`.
        StorageError: the folder cannot be written.
    """
    check_folder(root, plan)
    path = RunPaths(root).experiment
    if is_stored_plan(root, plan):
        return
    replace_durably(path, json.dumps(_describe(plan), indent=2, sort_keys=True) + "\n")


def read_plan(root: Path) -> dict[str, Any] | None:
    """Return the stored plan of the folder's last run; None if there is none, or it cannot be read.

    Its studies still store which experiment they belong to.

    Raises:
        RunError: a later batchscale wrote it.
    """
    path = RunPaths(root).experiment
    try:
        stored = parse_json(path.read_bytes())
        version = stored["format_version"]
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise RunError(
                f"{path}: this batchscale continues experiments of versions up to {FORMAT_VERSION}. Found version "
                f"{version}, written by a later batchscale; use that one, or give another --out."
            )
        experiment, steps = stored["experiment"], stored["train_steps"]
        sound = all(isinstance(experiment[key], int) for key in _NUMBERS) and isinstance(stored["max_attempts"], int)
        return stored if sound and all(isinstance(count, int) for count in steps.values()) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _describe(plan: Plan) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "spec_hash": spec_hash(plan.experiment),
        "experiment": _hide_secrets(normalise(plan.experiment)),
        "train_steps": {str(study.batch_size): study.train_steps for study in plan.studies},
        "max_attempts": max(study.max_attempts for study in plan.studies),
    }


def _hide_secrets(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a normalised experiment as it is stored: of a trainer's variables only their names."""
    shown = dict(flat)
    if isinstance(shown.get("trainer.env"), dict):
        shown["trainer.env"] = dict.fromkeys(shown["trainer.env"], HIDDEN)
    if isinstance(shown.get("trainer.command"), list):
        shown["trainer.command"] = redact_words([str(word) for word in shown["trainer.command"]])
    return shown


def _require_continuation(root: Path, stored: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    old, new = _hide_secrets(stored["experiment"]), requested["experiment"]  # older versions stored all values
    keys = sorted(key for key in {*old, *new} if not may_grow(key) and old.get(key) != new.get(key))
    keys = [key for key in keys if key not in _MAY_BE_ADDED or None not in (old.get(key), new.get(key))]
    lines = [f"  {key}: {one_line(old.get(key))} recorded, {one_line(new.get(key))} requested" for key in keys]
    if not lines and "trainer.env" in new and stored.get("spec_hash") != requested["spec_hash"]:
        lines.append("  trainer.env, or a secret in trainer.command: another value recorded, which is not shown")
    old, new = _LATER_NUMBERS | old, _LATER_NUMBERS | new
    lines += [
        f"  {key}: {old[key]} recorded, {new[key]} requested; it may only grow"
        for key in (*_NUMBERS, *_LATER_NUMBERS)
        if new[key] < old[key]
    ]
    attempts = stored["max_attempts"], requested["max_attempts"]
    if attempts[1] < attempts[0] and new["trials"] >= old["trials"]:  # else it only follows from the trials
        lines.append(f"  search.max_attempts: {attempts[0]} recorded, {attempts[1]} requested; it may only grow")
    for size, old_steps in stored["train_steps"].items():
        new_steps = requested["train_steps"].get(size)
        if new_steps is None:
            lines.append(f"  batch_sizes: {size} is recorded and no longer requested")
        elif new_steps < old_steps:
            lines.append(
                f"  budget at batch size {size}: {old_steps} steps recorded, {new_steps} requested; it may only grow"
            )
    if lines:
        more = ["  …"] if len(lines) > MAX_DIFFERENCES else []
        raise RunError(
            f"{root}: a folder belongs to one experiment. Found another one:\n"
            + "\n".join(lines[:MAX_DIFFERENCES] + more)
            + "\nGive another folder with --out, or restore the experiment as it was."
        )


class DamagedStudyError(RunError):
    """The records of a study cannot be read: it waits until a person has repaired it, all others continue."""


@dataclass
class SavedStudy:
    """The searches, budgets and result of a study.

    ``budgets`` are the step budgets it has had, growing: the evaluation steps follow from them (see
    `apply_to`). ``population`` is the number of trials trained together, ``framework`` the one that a user's
    script reports, ``tokens_per_example`` what it reports or the experiment has, ``choices`` the rounds of an adaptive
    experiment that concerned it.
    """

    history: SearchHistory = field(default_factory=SearchHistory)
    budgets: list[int] = field(default_factory=list)
    population: int | None = None
    result: StudyResult | None = None
    framework: TrainerMetadata | None = None
    tokens_per_example: int | None = None
    choices: tuple[RoundChoice, ...] = ()

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
        return cls(
            history,
            list(metadata.budgets),
            metadata.population,
            metadata.result,
            metadata.trainer,
            metadata.tokens_per_example,
            metadata.choices,
        )

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
            tokens_per_example=study.tokens_per_example or self.tokens_per_example,
            half_lives=study.half_lives,
            branches=study.branches.pairs(study.evaluation_steps) if study.branches else (),
            choices=study.choices or self.choices,
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

        Raises:
            RunError: the study has recorded another number of tokens per example.
        """
        tokens = study.tokens_per_example, self.tokens_per_example
        if None not in tokens and tokens[0] != tokens[1]:
            raise RunError(
                f"tokens_per_example must be that of the records, {tokens[1]:,}. Found {tokens[0]:,} at batch size "
                f"{study.batch_size:,}. Restore it, or give another folder with --out."
            )
        steps: tuple[int, ...] = ()
        for budget in self.budgets:
            last = steps[-1] if steps else -1
            measured = experiment.evaluation_steps(budget, study.batch_size, study.tokens_per_example)
            steps += tuple(step for step in measured if step > last)
        return replace(
            study,
            evaluation_steps=steps or study.evaluation_steps,
            space=self.history.searches[0].space,
            tokens_per_example=tokens[0] or tokens[1],
        )
