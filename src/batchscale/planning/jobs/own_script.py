"""The job of a user's own training script: an experiment file of one trial, and the files that the script needs.

The job runs ``batchscale run`` with the script's own budget, so that a schedule has the length it was measured with,
and stops at the goal. Values of variables that look like secrets are never written: the job takes them by name.
"""

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from batchscale.errors import PlanningError, one_line
from batchscale.formatting import toml_line
from batchscale.planning.devices import is_processor
from batchscale.spec.experiment import Experiment
from batchscale.spec.horizon_free import HALF_LIFE
from batchscale.spec.redaction import is_secret
from batchscale.spec.space import ParameterType
from batchscale.spec.trainer import ReportSource, TrainerSpec

FOLDER = "script"
"""The folder of the job that has the script and its experiment file."""
EXPERIMENT = f"{FOLDER}/experiment.toml"
HOSTS_SCRIPT = "hosts.sh"
PORT = 29500
MAX_FILES = 300
MAX_FILE_BYTES = 5_000_000

_TORCH = {"torch", "lightning", "pytorch_lightning", "transformers", "accelerate"}
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun", "horovodrun")

_HOSTS = """\
#!/bin/bash
# Started by batchscale on the first node: starts the script on all nodes of the SLURM job.
set -eu
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
exec srun --ntasks-per-node=1 --kill-on-bad-exit=1 "$1" -m torch.distributed.run --nnodes={hosts} \\
    --nproc-per-node={devices} --rdzv-backend=c10d --rdzv-endpoint="$head:{port}" --rdzv-id="$SLURM_JOB_ID" "${{@:2}}"
"""


@dataclass(frozen=True)
class ScriptCommand:
    """One training run of a user's own script.

    ``values`` are all its metaparameters. ``files`` are the texts to ship by their path from the script's folder.
    ``not_shipped`` are paths in the command that the hosts must have.
    """

    experiment: Experiment
    batch_size: int
    values: Mapping[str, str]
    goal: str
    files: Mapping[str, str] = field(default_factory=dict)
    not_shipped: tuple[str, ...] = ()

    @property
    def trainer(self) -> TrainerSpec:
        """Return the table [trainer] of the experiment."""
        assert self.experiment.trainer is not None
        return self.experiment.trainer

    @property
    def variables(self) -> tuple[str, ...]:
        """Return the names of variables whose values are not written: those that are passed by name, and secrets."""
        secrets = (name for name, value in self.trainer.env.items() if is_secret(name, value))
        return tuple(dict.fromkeys((*self.trainer.pass_env, *secrets)))

    @property
    def uses_torch(self) -> bool:
        """True if a shipped Python file imports PyTorch or a library on top of it."""
        return any(set(_imports(text)) & _TORCH for name, text in self.files.items() if name.endswith(".py"))

    @property
    def has_launcher(self) -> bool:
        """True if the command starts the processes of several devices itself."""
        names = {PurePosixPath(word).name for word in self.trainer.command}
        return bool(names & set(_LAUNCHERS)) or "torch.distributed.run" in names

    def _program(self, word: str, in_container: bool) -> str:
        """Return a word of the command; the program itself by its name in an image, elsewhere by its whole path."""
        if word != self.trainer.command[0] or "/" not in word or word in self.files:
            return word
        return Path(word).name if in_container else os.path.normpath(self.trainer.folder / word)

    def job_files(self, hosts: int, devices: int, device: str, *, in_container: bool) -> dict[str, str]:
        """Return the files of the script's job by name: its experiment, what it imports, and how hosts start it."""
        trainer = launched(self, hosts, devices, device)
        trainer = replace(trainer, command=tuple(self._program(word, in_container) for word in trainer.command))
        files = {f"{FOLDER}/{name}": text for name, text in self.files.items()}
        if hosts > 1:
            files[HOSTS_SCRIPT] = _HOSTS.format(hosts=hosts, devices=devices, port=PORT)
        return {EXPERIMENT: experiment_text(self, trainer), **files}


def launched(command: ScriptCommand, hosts: int, devices: int, device: str) -> TrainerSpec:
    """Return the trainer for so many devices: one trial at a time, PyTorch scripts with a process per device.

    Raises:
        PlanningError: several hosts, and the script is not started by Python, does not use PyTorch or has a launcher.
    """
    trainer, words = command.trainer, command.trainer.command
    is_python = Path(words[0]).name.startswith("python") and len(words) > 1 and not words[1].startswith("-c")
    starts_here = is_python and command.uses_torch and not command.has_launcher
    if hosts > 1 and not starts_here:
        raise PlanningError(
            "A job over several hosts starts a PyTorch script with torchrun, so trainer.command must be python SCRIPT, "
            f"without a launcher of its own. Found {one_line(' '.join(words), 200)}. Use one host (--max-hosts 1), or "
            "start the hosts yourself."
        )
    if hosts > 1:
        words = ("bash", f"../{HOSTS_SCRIPT}", *words)
    elif devices > 1 and starts_here and not is_processor(device):
        words = (words[0], "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={devices}", *words[1:])
    names = _device_names(trainer.devices, devices)
    return replace(trainer, command=words, workers=1, devices=names, max_paused=None)


def _device_names(names: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the devices of the only trial, in the form of those that trials had when the curve was measured."""
    if not names:
        return ()
    if all(name.isdigit() for name in names):  # for CUDA_VISIBLE_DEVICES
        return (",".join(map(str, range(count))),)
    if all(name.startswith("cuda:") for name in names):
        return ("cuda:0" if count == 1 else "cuda",)
    return (names[0],)


def experiment_text(command: ScriptCommand, trainer: TrainerSpec) -> str:
    """Return the experiment file of the trial: one batch size, one trial, no search, the script's own budget."""
    experiment = command.experiment
    tokens = experiment.tokens_per_example
    steps = experiment.budget.steps(command.batch_size, trainer.num_train_examples, tokens)
    evaluation = experiment.evaluation.in_steps(command.batch_size, tokens)
    measured: dict[str, object] = {"every": evaluation.every} if evaluation.every else {"count": evaluation.count}
    if not evaluation.every:
        measured |= {"spacing": str(evaluation.spacing)}
    if evaluation.start:
        measured |= {"start": evaluation.start}
    whole = _whole_names(experiment)
    fixed = {name: float(value) for name, value in command.values.items() if name not in {*whole, HALF_LIFE}}
    name = experiment.workload.name
    lines = [
        "# One training run with the metaparameters of the curve, written by 'batchscale plan'.",
        toml_line("goal", command.goal),
        toml_line("batch_sizes", [command.batch_size]),
        "trials = 1",
        'stop = "goal"',
        toml_line("seed", experiment.seed),
        *([] if tokens is None else [toml_line("tokens_per_example", tokens)]),
        *([] if experiment.metrics is None else [toml_line("metrics", experiment.metrics)]),
        "\n[workload]",
        *(toml_line(key, getattr(name, key)) for key in ("dataset", "model", "optimizer")),
        "\n[budget]  # as measured: schedules have this length",
        toml_line("steps", steps),
        "\n[evaluation]",
        *(toml_line(key, value) for key, value in measured.items()),
        *_protocol_lines(experiment, command.values),
        "\n[search]",
        "repeats = 0",
        "max_attempts = 1",
        toml_line("fixed", {_quoted(key): value for key, value in fixed.items()}),
    ]
    for key in sorted(whole & set(command.values)):  # a script gets a whole number from a range of whole numbers only
        value = int(float(command.values[key]))
        lines += [
            f"\n[search.space.{_quoted(key)}]",
            'type = "INTEGER"',
            f"min_value = {value}",
            f"max_value = {value}",
        ]
    return "\n".join([*lines, *_trainer_lines(trainer, command.variables), ""])


def _trainer_lines(trainer: TrainerSpec, left_out: Sequence[str]) -> Iterator[str]:
    yield "\n[trainer]"
    yield toml_line("command", trainer.command)
    for key in ("resume", "workers", "timeout_s", "grace_s", "num_train_examples"):
        if getattr(trainer, key) is not None:
            yield toml_line(key, getattr(trainer, key))
    if trainer.devices:
        yield toml_line("devices", trainer.devices)
    environment = {_quoted(name): value for name, value in trainer.env.items() if name not in left_out}
    if left_out:
        yield f"# from the environment of the job: {', '.join(one_line(name, 80) for name in left_out)}"
    if environment:
        yield toml_line("env", environment)
    if trainer.reports.source is not ReportSource.PROTOCOL:
        yield "\n[trainer.reports]"
        yield toml_line(str(trainer.reports.source), trainer.reports.text)
        if trainer.reports.names:
            yield toml_line("names", {_quoted(name): value for name, value in trainer.reports.names.items()})


def _quoted(key: str) -> str:
    return toml_line(key, key).partition(" = ")[2] if not re.fullmatch(r"[A-Za-z0-9_-]+", key) else key


def _whole_names(experiment: Experiment) -> set[str]:
    spaces = (experiment.search.space, *experiment.search.per_batch_size.values())
    return {config.name for space in spaces for config in space if config.type is ParameterType.INTEGER}


def _protocol_lines(experiment: Experiment, values: Mapping[str, str]) -> Iterator[str]:
    """Yield the average of the curve's half-life, and the branches, as they were measured."""
    if HALF_LIFE in values:
        yield f"\n[averaging]\nhalf_life = {float(values[HALF_LIFE])}"
    if experiment.branches is not None:
        yield "\n[branches]"
        yield from (toml_line(key, value) for key, value in experiment.branches.keys().items())


def metaparameter_names(experiment: Experiment) -> set[str]:
    """Return the metaparameters that every trial of an experiment has."""
    spaces = (experiment.search.space, *experiment.search.per_batch_size.values())
    averaged = [HALF_LIFE] if experiment.averaging else []
    return {*experiment.search.fixed, *averaged, *(name for space in spaces for name in space.names)}


def script_files(trainer: TrainerSpec) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the files that a script needs, and the paths of its command that are not shipped.

    Shipped are files that the command names, the Python modules beside the script that it imports, and
    requirements.txt.

    Raises:
        PlanningError: a file is too large, or there are too many.
    """
    folder = trainer.folder.resolve()
    files: dict[str, str] = {}
    not_shipped = []
    waiting = []
    for word in (*trainer.command, "requirements.txt"):
        path = folder / word
        if "{" in word or len(word) > 500 or not (path.exists() or word.startswith("/")):
            continue
        if path.is_file() and path.resolve().is_relative_to(folder) and not word.startswith("/"):
            waiting.append(path)
        elif word != trainer.command[0]:
            not_shipped.append(word)
    while waiting:
        path = waiting.pop()
        name = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name
        if name in files:
            continue
        text = _read(path)
        if text is None:
            not_shipped.append(name)
            continue
        files[name] = text
        if len(files) > MAX_FILES:
            raise PlanningError(f"A job ships at most {MAX_FILES} files of a script. Found more in {folder}.")
        if path.suffix == ".py":
            waiting += _modules(path.parent, text)
    return files, tuple(not_shipped)


def _read(path: Path) -> str | None:
    """Return the text of a file; None if it is no text."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise PlanningError(f"A file of a script has at most {MAX_FILE_BYTES:,} bytes. Found more in {path}.")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise PlanningError(f"{path}: the script's file cannot be read ({error.strerror or error}).") from None


def _imports(text: str) -> list[str]:
    """Return the first names of the modules that a Python file imports; none if it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name.partition(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.append((node.module or "").partition(".")[0])
    return names


def _modules(folder: Path, text: str) -> list[Path]:
    """Return the files beside a script that it imports: a module, or all of a package."""
    paths = []
    for name in dict.fromkeys(_imports(text)):
        if (folder / f"{name}.py").is_file():
            paths.append(folder / f"{name}.py")
        elif (folder / name).is_dir() and name not in ("", "batchscale"):
            paths += sorted((folder / name).rglob("*.py"))
    return paths
