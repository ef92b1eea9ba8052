"""Connect a training script to batchscale: read the trial to train, report measurements, stop when requested.

One file, standard library only, Python 3.9 or later: import it from batchscale, or copy it beside your script.
The protocol is described in docs/trainers.md. Outside ``batchscale run`` it is a dry run that prints.

    run = trial.start(learning_rate=0.1)                            # these values are for runs outside batchscale
    start = run.restore(load) or 0                                  # load(folder): read what save wrote
    for step, batch in run.steps(loader, start=start, save=save):   # save(folder); ends at the budget or on request
        ...
        if run.due(step):
            run.report(step, {"val/error": evaluate(model)})
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import sys
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["MicroBatches", "Run", "start"]

PROTOCOL = 1
VARIABLE = "BATCHSCALE_TRIAL"
"""The environment variable that names the trial's document."""

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_FIRST_BATCH = ".first_batch"  # in the folder of a save: the fingerprint of the first batch of the trial
_POLL_EVERY_S = (0.01, 0.1)  # while waiting: at first, and after a second


def start(rank: int | None = None, **values: float) -> Run:
    """Return the trial to train: batchscale's if it started this process, otherwise a dry run with these ``values``.

    A dry run takes ``batch_size``, ``max_steps``, ``every`` (between measurements) and ``seed`` besides metaparameters.

    Args:
        rank: the number of this process among those that train the trial together; by default read from the
            environment of torchrun, srun and mpirun. Only rank 0 reports and saves; the others follow its decisions.
        values: the values of a run outside batchscale.
    """
    path = os.environ.get(VARIABLE)
    if path is None:
        return Run(_dry_document(values), None, 0, 1)
    document = json.loads(Path(path).read_text(encoding="utf-8"))
    if document.get("protocol") != PROTOCOL:
        raise RuntimeError(
            f"This file supports protocol {PROTOCOL} of batchscale. Found {document.get('protocol')!r} in {path}: copy "
            "batchscale/trial.py again from the batchscale that runs the experiment."
        )
    size = _first_number(_SIZES, 1)
    return Run(document, Path(path), _first_number(_RANKS, 0) if rank is None else rank, size)


class Run:
    """One trial. ``run["learning_rate"]`` is a metaparameter; ``step`` is the number of finished optimizer steps."""

    def __init__(self, document: Mapping[str, Any], path: Path | None, rank: int, size: int) -> None:
        self.document = document
        self.batch_size, self.max_steps = int(document["batch_size"]), int(document["max_steps"])
        self.seed, self.trial_id = int(document["seed"]), int(document["trial_id"])
        self.metaparameters: dict[str, float] = dict(document["metaparameters"])
        self.device: str | None = document.get("device")
        self.tokens_per_example: int | None = document.get("tokens_per_example")  # set it if your script knows it
        self.half_lives: tuple[float, ...] = tuple(document.get("averaging", {}).get("half_lives", ()))
        branches = document.get("branches", {"pairs": [], "measured": 0})
        self._pairs: list[list[int]] = [pair for pair in branches["pairs"] if pair[1] > branches["measured"]]
        self._branch: list[int] | None = None  # the steps of the trunk and of the end of the branch
        self.measure_at: frozenset[int] = frozenset(document["measure_at"])
        self.rank, self.step = rank, 0
        self._dry = path is None
        self._size = size if rank == 0 else max(2, size)
        self._until = int(document["until_step"])
        self._stopped, self._reached, self._has_reported, self._keep = False, False, False, True
        self._saver: Callable[[Path], object] | None = None
        self._control_version, self._first_batch = (0, 0), ""
        self._decisions = (path or Path("trial.json")).with_name("decisions.jsonl")  # of rank 0, for the others
        self._saved_step, self._saves_handled, self._saved_at = -1, 0, time.monotonic()
        self._train_s, self._evaluation_s, self._mark = 0.0, 0.0, time.monotonic()
        if not self._dry and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stopped", True))

    def __getitem__(self, name: str) -> float:
        if name not in self.metaparameters:
            advice = f"give it a value: trial.start({name}=…)" if self._dry else "add it to [search.space] or fix it"
            raise KeyError(f"This trial has no metaparameter '{name}'; {advice}. It has {sorted(self.metaparameters)}.")
        return self.metaparameters[name]

    # --- training --------------------------------------------------------------------------------------------

    def steps(
        self,
        source: Iterable[Any] | Callable[[int], Any],
        start: int = 0,
        save: Callable[[Path], object] | None = None,
        skip: bool | None = None,
        load: Callable[[Path], object] | None = None,
    ) -> Iterator[tuple[int, Any]]:
        """Yield the steps to train, each with its number (the first is 1) and its batch, to the budget or a stop.

        Args:
            source: batches, which are repeated; or a function of the step that returns its batch.
            start: the number of finished steps.
            save: called to save the state from time to time, on request, and at the end.
            skip: for a resumed trial: True to read and drop the batches of the finished steps, because the source
                begins anew; False if your script restores the order of its data. By default, they are dropped if the
                first batch of the source is that of the trial's first start.
            load: for branches: reads what ``save`` wrote, to go back to the trunk. It leaves the data alone: the trunk
                gets the batches of the branch again.
        """
        self.step, self._saver = start, save
        batches = self._read_batches(source, start, skip)
        taken, again = deque[Any](), deque[Any]()  # the batches of a branch, for the trunk
        self._mark = time.monotonic()
        while self.goes_on():
            if self._turn(save, load):
                again.extendleft(reversed(taken))
                taken.clear()
            try:
                batch = source(self.step + 1) if callable(source) else again.popleft() if again else next(batches)
            except StopIteration:
                self._report({"last": self.step})
                break
            taken.extend([] if self._branch is None or callable(source) else [batch])
            step = self.step + 1
            yield step, batch
            self.step = step
        if save is not None:
            self.save(save)

    def annealing(self, step: int) -> float:
        """Return the factor of the learning rate at this step: 1 on the trunk, falling on a branch."""
        if self._branch is None:
            return 1.0
        plan, (start, end) = self.document["branches"], self._branch
        part = (step - 1 - start) / (end - start)
        fallen = {"linear": part, "cosine": (1 - math.cos(math.pi * part)) / 2, "sqrt": math.sqrt(part)}[plan["shape"]]
        return float(1 - (1 - plan["end_factor"]) * fallen)

    def due(self, step: int) -> bool:
        """Return True if a measurement must be reported at this step."""
        is_due = step == self._branch[1] if self._branch else step in self.measure_at and not self._pairs
        if is_due:
            if (cuda := _cuda()) is not None:
                cuda.synchronize()  # steps that a device has yet to finish count as training
            self._train_s += self._lap()
        return is_due

    def report(self, step: int, metrics: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Report a measurement: numbers by ``split/metric``, such as ``val/error``.

        A script that averages its weights passes a list, with the metrics of the average of each of ``half_lives``.
        """
        self.step = max(self.step, step)
        each = [metrics] if isinstance(metrics, Mapping) else metrics
        values = self._select([{name: _to_number(value) for name, value in metrics.items()} for metrics in each])
        self._evaluation_s += self._lap()
        goal = self.document.get("goal")
        value = values.get(goal["metric"]) if goal else None
        if goal and value is not None:
            self._reached = value > goal["value"] if goal["maximize"] else value < goal["value"]
        line = {"step": step, "metrics": values, "train_s": self._train_s, "evaluation_s": self._evaluation_s}
        self._report(line if self._has_reported else {**line, "facts": _describe_machine(self.tokens_per_example)})
        self._has_reported = True

    def _turn(self, save: Any, load: Any) -> bool:
        """Leave the trunk where the next branch begins; at the end of a branch go back first, and return True."""
        if self._pairs and (save is None or load is None):
            raise ValueError("A trial with branches must save and load: run.steps(…, save=save, load=load).")
        joins = self._branch is not None and self.step == self._branch[1]
        if joins:
            (self.step, _), self._branch = self._pairs.pop(0), None
            load(self._saves()[self.step])
        if self._pairs and self._branch is None and self.step == self._pairs[0][0]:
            if self.rank == 0 and self._saved_step != self.step:
                self._write_save(save)
            self._branch = self._pairs[0]
        return joins

    def _select(self, averages: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the metrics of the best average, or of the one to confirm, and under other names those of each."""
        count = max(1, len(self.half_lives))
        if len(averages) != count:
            rule = f"A measurement must be a list with the metrics of each of the {count} averages of run.half_lives"
            raise ValueError(f"{rule}. Found those of {len(averages)}.")
        if count == 1:
            return averages[0]
        metric, sign = self.document["averaging"]["metric"], -1 if self.document["averaging"]["maximize"] else 1
        ranks = [math.inf if values.get(metric) is None else sign * values[metric] for values in averages]
        half_life = self.metaparameters.get("averaging_half_life")
        best = ranks.index(min(ranks)) if half_life is None else self.half_lives.index(half_life)
        split = metric.split("/")[0] + "/"
        each = [(n, name, value) for n, of in enumerate(averages, 1) for name, value in of.items() if split in name]
        return {**averages[best], **{f"{name}_average_{n}": value for n, name, value in each}}

    def diverged(self, step: int) -> None:
        """Report that training diverged at this step, which ends the trial."""
        self._report({"diverged": step})
        self._stopped, self._keep = True, False

    def goes_on(self) -> bool:
        """Return True to train another step. Waits while the trial is paused; `steps` calls this after each step."""
        if self._size > 1 and self.step and self.step not in self.measure_at:
            return not self._stopped and self.step < self.max_steps  # several processes stop at measurements only
        if self.rank > 0:
            return bool(self._decision("go_on", self.step))
        goes_on = self.step < self.max_steps and self._decide()
        self._decide_for_all({"step": self.step, "go_on": goes_on})
        return goes_on

    def accumulate(self, micro_batch: int, even: bool = False, processes: int | None = None) -> MicroBatches:
        """Return how to train a step of ``batch_size`` examples in parts of at most ``micro_batch`` examples.

        ``even`` is for libraries that need parts of equal size. ``processes`` is the number of processes or devices
        that share a batch; by default it is read from the environment of torchrun, srun and mpirun.
        """
        count = processes or self._size
        share = self.batch_size // count + (self.rank % count < self.batch_size % count)
        if micro_batch < 1 or share < 1 or (even and self.batch_size % count):
            rule = "A micro-batch must have at least 1 example" + ", and all processes equally many" * even
            found = f"a micro-batch of {micro_batch}, batch size {self.batch_size} and {count} process(es)"
            raise ValueError(f"{rule}. Found {found}.")
        size = min(micro_batch, share)
        size = max(n for n in range(1, size + 1) if share % n == 0) if even else size
        return MicroBatches(size, -(-share // size), share * count / self.batch_size)

    def _read_batches(self, source: Any, start: int, skip: bool | None) -> Iterator[Any]:
        for position, batch in enumerate(_repeat(source)):
            if position == 0 and skip is None:
                skip = self._begins_anew(batch, start)
            if position >= (start if skip else 0):
                yield batch

    def _begins_anew(self, batch: Any, start: int) -> bool:
        """Return True if this first batch of the source is the first of the trial, or cannot be compared with it."""
        fingerprint = _fingerprint(batch)
        if start == 0:
            self._first_batch = fingerprint
            return True
        if self.rank > 0:
            return bool(self._decision("skip", start))
        anew = "" in (fingerprint, self._first_batch) or fingerprint == self._first_batch
        self._decide_for_all({"skip": anew, "step": start})
        action = f"begins anew: its first {start} batches are dropped" if anew else "goes on: no batch is dropped"
        sys.stderr.write(f"batchscale: resumed at step {start}. The source {action} (skip=, in run.steps).\n")
        return anew

    # --- saving ----------------------------------------------------------------------------------------------

    def restore(self, load: Callable[[Path], object]) -> int | None:
        """Call ``load`` with the folder of the newest save, if there is one, and return the step of that save."""
        folders = {} if self._dry or not self.document["resume"] else self._saves()
        if not folders:
            return None
        self.step = max(folders)
        load(folders[self.step])
        first = folders[self.step] / _FIRST_BATCH
        self._first_batch = first.read_text() if first.exists() else ""  # a save of an older version has none
        self._saved_step = self.step
        self._report({"restored": self.step})
        return self.step

    def save(self, save: Callable[[Path], object]) -> None:
        """Call ``save`` with an empty folder; the save is used only if ``save`` returns."""
        if self._dry or self.rank > 0 or not self._keep or self._saved_step == self.step or self.step == 0:
            return
        if self._branch is None:  # on a branch the save of its trunk is kept
            self._write_save(save)

    def _write_save(self, save: Callable[[Path], object]) -> None:
        folder = Path(self.document["checkpoint"])
        writing, whole = folder / f"step-{self.step}.writing", folder / f"step-{self.step}"
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        save(writing)
        if self._first_batch:
            (writing / _FIRST_BATCH).write_text(self._first_batch)
        shutil.rmtree(whole, ignore_errors=True)
        writing.rename(whole)
        self._saved_step, self._saved_at = self.step, time.monotonic()
        self._report({"saved": self.step})
        for path in folder.iterdir():
            if path != whole:
                shutil.rmtree(path, ignore_errors=True)

    def _saves(self) -> dict[int, Path]:
        folder = Path(self.document["checkpoint"])
        saves = {path.name[len("step-") :]: path for path in folder.glob("step-*")}
        return {int(step): path for step, path in saves.items() if step.isdigit()}

    # --- control and reports ---------------------------------------------------------------------------------

    def _decide(self) -> bool:
        if self._dry:
            return True
        every = self.document.get("save_every_s") or math.inf
        if self._saver is not None and time.monotonic() - self._saved_at > every:
            self.save(self._saver)
        if self.step in self.measure_at or self._stopped or self._at_pause():
            self._read_control()
        if self._at_pause() and not self._stopped:
            self._pause()
        return not self._stopped

    def _at_pause(self) -> bool:
        return self.step >= self._until or self._reached

    def _pause(self) -> None:
        started = time.monotonic()
        self._report({"paused": self.step, "can_save": self._saver is not None})
        while self._at_pause() and not self._stopped:
            waited = time.monotonic() - started
            time.sleep(_POLL_EVERY_S[waited > 1])
            self._read_control()
            self._stopped = self._stopped or waited > float(self.document.get("wait_s") or math.inf)
        self._mark += time.monotonic() - started

    def _read_control(self) -> None:
        path = self.document["control"]
        try:
            stat = os.stat(path)  # noqa: PTH116 - called after every measurement; a Path is slower
            version = (stat.st_ino, stat.st_mtime_ns)
            if version == self._control_version:
                return
            control = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self._control_version = version
        if int(control.get("until_step", 0)) > self._until:
            self._until, self._reached = int(control["until_step"]), False
        if control.get("stop"):
            self._stopped, self._keep = True, bool(control.get("keep", True))
        if int(control.get("save", 0)) > self._saves_handled and self._saver is not None:
            self._saves_handled = int(control["save"])
            self.save(self._saver)
            self._report({"saved": max(0, self._saved_step)})  # also if the state of this step was saved before

    def _decide_for_all(self, decision: Mapping[str, Any]) -> None:
        if self._size > 1 and not self._dry:
            _append(self._decisions, decision)

    def _decision(self, name: str, step: int) -> Any:
        """Return the decision of rank 0 after this step, as soon as it has made one."""
        while True:
            for line in self._decisions.read_text().splitlines() if self._decisions.exists() else ():
                decision = json.loads(line)
                if decision["step"] == step and name in decision:
                    return decision[name]
            time.sleep(_POLL_EVERY_S[0])

    def _lap(self) -> float:
        before, self._mark = self._mark, time.monotonic()
        return self._mark - before

    def _report(self, line: Mapping[str, Any]) -> None:
        if self._dry:
            if "step" in line:
                text = " ".join(f"{name}={value:.6g}" for name, value in line["metrics"].items() if value is not None)
                sys.stdout.write(f"step {line['step']} {text}\n")
        elif self.rank == 0:
            _append(self.document["reports"], line)


class MicroBatches(NamedTuple):
    """The parts of a step: ``steps`` parts of ``micro_batch`` examples each, of which the last may be smaller."""

    micro_batch: int
    steps: int
    weight: float = 1.0

    def parts(self, num_examples: int) -> Iterator[tuple[slice, float]]:
        """Yield a slice and a loss scale for each part; the scaled mean losses add up to the mean of the batch."""
        for begin in range(0, num_examples, self.micro_batch):
            end = min(begin + self.micro_batch, num_examples)
            yield slice(begin, end), self.weight * (end - begin) / num_examples


def _append(path: str | Path, line: Mapping[str, Any]) -> None:
    """Append one line in one write, so that lines of several processes stay whole."""
    with contextlib.suppress(FileNotFoundError), open(path, "ab", 0) as file:  # noqa: PTH123 - a Path is slower
        file.write((json.dumps(line, allow_nan=False) + "\n").encode())


def _to_number(value: Any) -> float | None:
    return number if math.isfinite(number := float(value)) else None


def _repeat(source: Iterable[Any]) -> Iterator[Any]:
    is_empty = False
    while not is_empty:  # an exhausted iterator, or an empty source
        is_empty = True
        for batch in source:
            is_empty = False
            yield batch


def _fingerprint(batch: Any) -> str:
    """Return a short text that differs for other content; empty if the content cannot be read."""
    try:
        text = _content(batch)
    except Exception:  # noqa: BLE001 - a batch may be anything
        return ""
    return "" if " at 0x" in text else f"{zlib.crc32(text.encode()):08x}"


def _content(value: Any) -> str:
    """Return the texts of all parts: of an array its corners and its sum."""
    value = list(value.items()) if isinstance(value, Mapping) else value
    if isinstance(value, (list, tuple)):
        return "".join(map(_content, value))
    return f"{value!r} {float(value.sum()):.4g}" if hasattr(value, "sum") else repr(value)


def _first_number(names: Iterable[str], default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)


def _cuda() -> Any:
    """Return PyTorch's module of CUDA if it is in use."""
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized() else None


def _describe_machine(tokens: int | None) -> dict[str, Any]:
    """Return the tokens of an example, the accelerator and the framework, as far as they are loaded already."""
    cuda = _cuda()
    facts: dict[str, Any] = {} if tokens is None else {"tokens_per_example": tokens}
    facts |= {} if cuda is None else {"hardware": str(cuda.get_device_name()), "platform": "gpu"}
    names = ("torch", "tensorflow", "jax", "keras", "mxnet", "paddle")
    versions = [f"{n} {sys.modules[n].__version__}" for n in names if hasattr(sys.modules.get(n), "__version__")]
    return {**facts, "framework": versions[0]} if versions else facts


def _dry_document(values: Mapping[str, float]) -> dict[str, Any]:
    rest = dict(values)
    max_steps = int(rest.pop("max_steps", 1000))
    every = int(rest.pop("every", max(1, max_steps // 10)))
    return {
        "batch_size": int(rest.pop("batch_size", 32)),
        "seed": int(rest.pop("seed", 0)),
        "trial_id": 0,
        "max_steps": max_steps,
        "until_step": max_steps,
        "measure_at": [*range(every, max_steps, every), max_steps],
        "metaparameters": rest,
    }
