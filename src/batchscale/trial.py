"""Connect a training script to batchscale: read the trial to train, report measurements, stop when requested.

One file, standard library only, Python 3.9 or later: import it from batchscale, or copy it beside your script.
The protocol is described in docs/trainers.md. Outside ``batchscale run`` it is a dry run that prints.

    run = trial.start(learning_rate=0.1)                 # these values are for runs outside batchscale only
    step = run.restore(load) or 0                        # load(folder)
    for step, batch in run.steps(loader, start=step):    # ends at the budget or on request
        ...
        if run.due(step):
            run.report(step, {"val/error": evaluate(model)})
    run.save(save)                                       # save(folder)
"""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Run", "start"]

PROTOCOL = 1
VARIABLE = "BATCHSCALE_TRIAL"
"""The environment variable that names the trial's document."""

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_POLL_EVERY_S = (0.01, 0.1)  # while waiting: at first, and after a second
_DRY_STEPS = 1000


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
        self.batch_size = int(document["batch_size"])
        self.seed = int(document["seed"])
        self.max_steps = int(document["max_steps"])
        self.trial_id = int(document["trial_id"])
        self.metaparameters: dict[str, float] = dict(document["metaparameters"])
        self.device: str | None = document.get("device")
        self.measure_at: frozenset[int] = frozenset(document["measure_at"])
        self.rank = rank
        self.step = 0
        self._dry = path is None
        self._size = size if rank == 0 else max(2, size)
        self._until = int(document["until_step"])
        self._stopped = self._reached = self._has_reported = False
        self._keep = True
        self._control_version = (0, 0)
        self._reports: int | None = None
        self._saver: Callable[[Path], object] | None = None
        self._saved_step, self._saves_handled, self._saved_at = -1, 0, time.monotonic()
        self._train_s = self._evaluation_s = 0.0
        self._mark = time.monotonic()
        if not self._dry and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._handle_signal)

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
        skip: bool = True,
    ) -> Iterator[tuple[int, Any]]:
        """Yield the steps to train, each with its number (the first is 1) and its batch, to the budget or a stop.

        Args:
            source: batches, which are repeated; or a function of the step that returns its batch.
            start: the number of finished steps.
            save: if given, called to save the state from time to time, on request, and at the end.
            skip: True to skip the batches of the finished steps, so that a resumed trial gets the batches of an
                uninterrupted one; they are still read.
        """
        self.step, self._saver = start, save
        batches = _make_batches(source, start if skip else 0, start)
        self._mark = time.monotonic()
        while self.goes_on():
            try:
                batch = next(batches)
            except StopIteration:
                self._report({"last": self.step})
                break
            step = self.step + 1
            yield step, batch
            self.step = step
        if save is not None:
            self.save(save)

    def due(self, step: int) -> bool:
        """Return True if a measurement must be reported at this step."""
        is_due = step in self.measure_at
        if is_due:
            _wait_for_device()
            self._train_s += self._lap()
        return is_due

    def report(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Report a measurement: numbers by ``split/metric``, such as ``val/error``."""
        self.step = max(self.step, step)
        values = {name: _to_number(value) for name, value in metrics.items()}
        self._evaluation_s += self._lap()
        goal = self.document.get("goal")
        value = values.get(goal["metric"]) if goal else None
        if goal and value is not None:
            self._reached = value > goal["value"] if goal["maximize"] else value < goal["value"]
        line = {"step": step, "metrics": values, "train_s": self._train_s, "evaluation_s": self._evaluation_s}
        if not self._has_reported:
            self._has_reported = True
            line["facts"] = _describe_machine()
        self._report(line)

    def diverged(self, step: int) -> None:
        """Report that training diverged at this step, which ends the trial."""
        self._report({"diverged": step})
        self._stopped, self._keep = True, False

    def goes_on(self) -> bool:
        """Return True to train another step. Waits while the trial is paused; `steps` calls this after each step."""
        if self._size > 1 and self.step and self.step not in self.measure_at:
            return not self._stopped and self.step < self.max_steps  # several processes stop at measurements only
        if self.rank > 0:
            return self._follow()
        goes_on = self.step < self.max_steps and self._decide()
        if self._size > 1:
            handle = _open(self._beside("decisions.jsonl"))
            _append(handle, {"step": self.step, "go_on": goes_on})
            os.close(handle)
        return goes_on

    # --- saving ----------------------------------------------------------------------------------------------

    def restore(self, load: Callable[[Path], object]) -> int | None:
        """Call ``load`` with the folder of the newest save, if there is one, and return the step of that save."""
        folders = {} if self._dry or not self.document["resume"] else self._saves()
        if not folders:
            return None
        self.step = max(folders)
        load(folders[self.step])
        self._saved_step = self.step
        self._report({"restored": self.step})
        return self.step

    def save(self, save: Callable[[Path], object]) -> None:
        """Call ``save`` with an empty folder; the save is used only if ``save`` returns."""
        if self._dry or self.rank > 0 or not self._keep or self._saved_step == self.step or self.step == 0:
            return
        folder = Path(self.document["checkpoint"])
        writing, whole = folder / f"step-{self.step}.writing", folder / f"step-{self.step}"
        shutil.rmtree(writing, ignore_errors=True)
        writing.mkdir(parents=True)
        save(writing)
        shutil.rmtree(whole, ignore_errors=True)
        writing.rename(whole)
        self._saved_step, self._saved_at = self.step, time.monotonic()
        self._report({"saved": self.step})
        for path in folder.iterdir():
            if path != whole:
                shutil.rmtree(path, ignore_errors=True)

    def _saves(self) -> dict[int, Path]:
        folder = Path(self.document["checkpoint"])
        paths = folder.iterdir() if folder.is_dir() else ()
        saves = {path.name[len("step-") :]: path for path in paths if path.name.startswith("step-")}
        return {int(step): path for step, path in saves.items() if step.isdigit()}

    def _save_if_due(self) -> None:
        every = self.document.get("save_every_s") or math.inf
        if self._saver is not None and time.monotonic() - self._saved_at > every:
            self.save(self._saver)

    # --- control and reports ---------------------------------------------------------------------------------

    def _decide(self) -> bool:
        if self._dry:
            return True
        self._save_if_due()
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
            self._report({"saved": self.step})  # also if the state of this step was saved before

    def _handle_signal(self, _number: int, _frame: object) -> None:
        self._stopped = True

    def _follow(self) -> bool:
        """Return the decision of rank 0 after this step."""
        path = self._beside("decisions.jsonl")
        while True:
            for line in path.read_text().splitlines() if path.exists() else ():
                decision = json.loads(line)
                if decision["step"] == self.step:
                    return bool(decision["go_on"])
            time.sleep(_POLL_EVERY_S[0])

    def _beside(self, name: str) -> Path:
        return Path(self.document["reports"]).with_name(name)

    def _lap(self) -> float:
        now = time.monotonic()
        seconds, self._mark = now - self._mark, now
        return seconds

    def _report(self, line: Mapping[str, Any]) -> None:
        if self._dry:
            if "step" in line:
                text = " ".join(f"{name}={value:.6g}" for name, value in line["metrics"].items() if value is not None)
                sys.stdout.write(f"step {line['step']} {text}\n")
        elif self.rank == 0:
            if self._reports is None:
                self._reports = _open(self.document["reports"])
            _append(self._reports, line)


def _open(path: str | Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _append(handle: int, line: Mapping[str, Any]) -> None:
    """Append one line in one write, so that lines of several processes stay whole."""
    os.write(handle, (json.dumps(line, allow_nan=False) + "\n").encode())


def _to_number(value: Any) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _make_batches(source: Iterable[Any] | Callable[[int], Any], skip: int, start: int) -> Iterator[Any]:
    if callable(source):
        step = start
        while True:
            step += 1
            yield source(step)
    count = 0
    while True:
        before = count
        for batch in source:
            count += 1
            if count > skip:
                yield batch
        if count == before:  # an exhausted iterator, or an empty source
            return


def _first_number(names: Iterable[str], default: int) -> int:
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)


def _wait_for_device() -> None:
    """Wait until PyTorch has finished its steps, so that their time is counted as training."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _describe_machine() -> dict[str, str]:
    """Return the accelerator and the framework, as far as they are loaded already."""
    facts = {}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        facts = {"hardware": str(torch.cuda.get_device_name()), "platform": "gpu"}
    for name in ("torch", "tensorflow", "jax", "keras", "mxnet", "paddle"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            facts["framework"] = f"{name} {version}"
            break
    return facts


def _dry_document(values: Mapping[str, float]) -> dict[str, Any]:
    rest = dict(values)
    max_steps = int(rest.pop("max_steps", _DRY_STEPS))
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
