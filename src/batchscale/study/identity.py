"""Which experiment a folder belongs to: the normalised experiment, its hash, and what may grow in it.

A folder keeps the experiment it was made with. The same file, or one that asks for more (trials, steps, batch sizes,
finishers, searches), continues it; anything else is another experiment and is refused with what differs.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from batchscale.errors import RunError, one_line
from batchscale.records.durable import replace_durably
from batchscale.records.tree.layout import RunPaths
from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Plan
from batchscale.spec.space import SearchSpace

ASKED_VERSION = 1
MAX_SHOWN = 12

_NUMBERS = ("trials", "finishers", "search.repeats")
_MAY_GROW = ("trials", "finishers", "batch_sizes", "budget", "search.repeats", "search.max_attempts")


def normalise(experiment: Experiment) -> dict[str, Any]:
    """The experiment as flat JSON: one key per setting, defaults filled in, the same for equal experiments."""
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
        # an experiment may have hundreds of batch sizes, and is asked for its hash by the study of each
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


def evaluation_facts(experiment: Experiment) -> dict[str, Any]:
    """The evaluation plan, as ``study.json`` keeps it."""
    return dict(_to_json(experiment.evaluation))


def may_grow(key: str) -> bool:
    """Whether a setting may ask for more without making it another experiment."""
    return key in _MAY_GROW or key.startswith("budget.")


def spec_hash(experiment: Experiment) -> str:
    """A hash of everything that must not change while a folder is continued."""
    fixed = {key: value for key, value in normalise(experiment).items() if not may_grow(key)}
    text = json.dumps(fixed, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_folder(root: Path, plan: Plan) -> None:
    """Check that the folder may be used for this experiment; nothing is written.

    Raises:
        RunError: the folder belongs to another experiment, or less is asked for than before; says what differs.
    """
    there = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        raise RunError(f"{root}: records are written to a folder. Found {there}, which is none; give another --out.")
    _require_names(root, there)
    found = read_asked(root)
    if found is not None:
        _check_continues(root, found, _describe(plan))


def _require_names(root: Path, there: Path) -> None:
    """Refuse a path that the file system at ``there`` cannot have, before folders are made on the way to it."""
    longest = os.pathconf(there, "PC_NAME_MAX")
    whole = len(os.fsencode(RunPaths(root.absolute()).experiment))
    if whole >= os.pathconf(there, "PC_PATH_MAX") or any(len(os.fsencode(part)) > longest for part in root.parts):
        raise RunError(
            f"{one_line(root, 300)}: a folder's name has at most {longest} bytes there, and its whole path must leave "
            "room for the records. Found a longer one; give another --out."
        )


def is_asked_for(root: Path, plan: Plan) -> bool:
    """Whether the folder was last asked for exactly this."""
    return read_asked(root) == _describe(plan)


def write_asked(root: Path, plan: Plan) -> None:
    """Check that the folder is this experiment's and write down what it is now asked for.

    Raises:
        RunError: as `check_folder`.
        StorageError: the folder cannot be written.
    """
    check_folder(root, plan)
    path = RunPaths(root).experiment
    if is_asked_for(root, plan):
        return
    replace_durably(path, json.dumps(_describe(plan), indent=2, sort_keys=True) + "\n")


def read_asked(root: Path) -> dict[str, Any] | None:
    """What the folder was last asked for; None if no experiment was run there, or what says so cannot be read.

    Its studies still know which experiment they belong to.

    Raises:
        RunError: a later batchscale wrote it.
    """
    path = RunPaths(root).experiment
    try:
        found = json.loads(path.read_bytes())
        version = found["format_version"]
        if isinstance(version, int) and version > ASKED_VERSION:
            raise RunError(
                f"{path}: this batchscale continues experiments of versions up to {ASKED_VERSION}. Found version "
                f"{version}, written by a later batchscale; use that one, or give another --out."
            )
        there, steps = found["experiment"], found["train_steps"]
        sound = all(isinstance(there[key], int) for key in _NUMBERS) and isinstance(found["max_attempts"], int)
        return found if sound and all(isinstance(count, int) for count in steps.values()) else None
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _describe(plan: Plan) -> dict[str, Any]:
    return {
        "format_version": ASKED_VERSION,
        "spec_hash": spec_hash(plan.experiment),
        "experiment": normalise(plan.experiment),
        "train_steps": {str(study.batch_size): study.train_steps for study in plan.studies},
        "max_attempts": max(study.max_attempts for study in plan.studies),
    }


def _check_continues(root: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    there, asked = found["experiment"], wanted["experiment"]
    keys = sorted(key for key in {*there, *asked} if not may_grow(key) and there.get(key) != asked.get(key))
    lines = [f"  {key}: {one_line(there.get(key))} there, {one_line(asked.get(key))} asked for" for key in keys]
    lines += [
        f"  {key}: {there[key]} there, {asked[key]} asked for; it may only grow"
        for key in _NUMBERS
        if asked[key] < there[key]
    ]
    attempts = found["max_attempts"], wanted["max_attempts"]
    if attempts[1] < attempts[0] and asked["trials"] >= there["trials"]:  # else it only follows from the trials
        lines.append(f"  search.max_attempts: {attempts[0]} there, {attempts[1]} asked for; it may only grow")
    for size, steps in found["train_steps"].items():
        now = wanted["train_steps"].get(size)
        if now is None:
            lines.append(f"  batch_sizes: {size} is there and not asked for any more")
        elif now < steps:
            lines.append(f"  budget at batch size {size}: {steps} steps there, {now} asked for; it may only grow")
    if lines:
        shown = lines[:MAX_SHOWN] + (["  …"] if len(lines) > MAX_SHOWN else [])
        raise RunError(
            f"{root}: a folder belongs to one experiment. Found another one there:\n" + "\n".join(shown) + "\n"
            "Give another folder with --out, or go back to the experiment as it was."
        )
