"""``measure``: a curve measured with a Python function, in worker processes; a later call continues it."""

import atexit
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.api.curve import Curve
from batchscale.api.function_script import FunctionScript, make_script
from batchscale.api.inputs import RECORDS, analyze
from batchscale.api.ranges import Range
from batchscale.errors import RunError, SpecError, one_line
from batchscale.formatting import toml_line
from batchscale.records.output_file import write_output
from batchscale.spec.goal import Goal
from batchscale.spec.tokens import names_tokens
from batchscale.spec.workload_name import WorkloadName
from batchscale.trial import Run

if TYPE_CHECKING:
    from batchscale.run.session import RunOutcome
    from batchscale.spec.experiment import Experiment

STEPS = 1000  # of a trial, if nothing is given
SCRIPT, EXPERIMENT, PROCESS = "train.py", "experiment.toml", "process.json"


def measure(
    train: Callable[[Run], object],
    batch_sizes: Iterable[int | str],
    goal: str | Goal,
    space: Mapping[str, Range | float],
    *,
    trials: int = 16,
    confirm: int = 0,
    max_steps: int | Mapping[int | str, int] | None = None,
    max_tokens: float | None = None,
    tokens_per_example: int | None = None,
    evaluate_every: int | None = None,
    folder: str | Path | None = None,
    workers: int | None = None,
    seed: int = 0,
    resume: bool = False,
    timeout_s: float = 3600.0,
    name: str = "python",
    progress: bool = True,
) -> Curve:
    """Measure the steps to a goal at every batch size, with metaparameters tuned anew at each.

    ``train(run)`` trains one trial: ``run.batch_size``, ``run.seed`` and ``run["learning_rate"]`` say which. It loops
    over ``run.steps(batches)``, and reports a measurement where ``run.due(step)``. Each trial runs in a process of its
    own; the function may be of a notebook, and use its other functions, classes and values.

    Args:
        train: The function.
        batch_sizes: Examples per optimizer step, such as ``[16, 64, 256]``, or texts: ``["16k tokens"]``.
        goal: Such as ``"val/loss < 2.1"``; ``val/loss`` must be among what ``train`` reports.
        space: What to search, by metaparameter: ``{"learning_rate": bs.log(1e-4, 1.0)}``; a number is held.
        trials: Trials per batch size that do not diverge, each with its own metaparameters. They race: most are ended
            as soon as they cannot win.
        confirm: New seeds with which the best trial of each batch size is trained again; the curve then shows their
            median (three or more). The best of many trials alone is partly luck.
        max_steps: The most steps of a trial, or those by batch size; 1,000 if neither these nor tokens are given.
        max_tokens: The most tokens of a trial, instead of steps.
        tokens_per_example: The tokens of an example, such as the length of a sequence; answers are then in tokens.
        evaluate_every: Steps between measurements; by default there are 100 measurements, evenly spaced.
        folder: Where the run is stored. The same call continues it, or returns its result. By default a temporary
            folder, which is removed when Python ends.
        workers: Trials to train at once; by default one per accelerator, else per core.
        seed: The seed of the search and of all trials.
        resume: True if ``train`` saves and restores its state (``run.restore``, ``run.steps(…, save=…)``).
        timeout_s: The longest time between two measurements of a trial; then its process is ended.
        name: The name of the workload in the records and over the chart.
        progress: Print the progress.

    Raises:
        SpecError: an argument is not valid, or ``train`` uses something that no other process can have.
        RunError: the folder is of another measurement, or no trial could be trained.
        KeyboardInterrupt: the measurement was interrupted; the same call continues it if ``folder`` was given.
    """
    script = make_script(train)
    _check_space(space)
    sizes = _check_sizes(batch_sizes)
    budget = _make_budget(sizes, max_steps, max_tokens)
    workload = WorkloadName(name, train.__name__.strip("_") or "train", "custom")
    tables: dict[str, dict[str, Any]] = {
        "": {
            "goal": str(goal),
            "batch_sizes": sizes,
            "tokens_per_example": tokens_per_example,
            "trials": trials,
            "confirm": confirm,
            "seed": seed,
        },
        "workload": asdict(workload),
        "budget": budget,
        "evaluation": {"every": evaluate_every},
        "search.fixed": {key: value for key, value in space.items() if not isinstance(value, Range)},
        "search.space": {key: value.config for key, value in space.items() if isinstance(value, Range)},
        "trainer": {
            "command": [os.path.abspath(sys.executable), SCRIPT],  # noqa: PTH100 - links lead out of the environment
            "resume": resume,
            "timeout_s": timeout_s,
        },
    }
    root = Path(tempfile.mkdtemp(prefix="batchscale-")) if folder is None else Path(folder)
    if folder is None:
        atexit.register(shutil.rmtree, root, ignore_errors=True)
    outcome = _run(root, _to_toml(tables), script, workers, progress)
    _check_outcome(outcome, root, folder is not None)
    curve = analyze(root / RECORDS)
    return Curve(curve.analysis, curve.records, folder=root, title=f"{train.__name__}() measured")


def _check_space(space: Mapping[str, Range | float]) -> None:
    """Raise SpecError if a metaparameter has neither a range nor a number."""
    if not isinstance(space, Mapping) or not space:
        raise SpecError(
            'space must be a dictionary of ranges, such as {"learning_rate": bs.log(1e-4, 1.0)}. Found '
            f"{one_line(repr(space))}."
        )
    for name, value in space.items():
        if isinstance(value, bool) or not isinstance(value, Range | int | float):
            raise SpecError(
                f"space: the range of '{one_line(name)}' must be bs.log(…), bs.linear(…), bs.reverse_log(…), "
                f"bs.choice(…) or a number to hold. Found {one_line(repr(value))}."
            )


def _check_sizes(batch_sizes: Iterable[int | str]) -> list[int | str]:
    """Return the batch sizes in a list; their values are checked with the experiment."""
    sizes: list[int | str] = []
    sizes += [batch_sizes] if isinstance(batch_sizes, int | str) else batch_sizes
    if not sizes or not all(_is_number(size) or names_tokens(size) for size in sizes):
        raise SpecError(
            'batch_sizes must be whole numbers, such as [16, 64], or texts such as ["16k tokens"]. Found '
            f"{one_line(repr(sizes))}."
        )
    return sizes


def _make_budget(
    sizes: list[int | str], max_steps: int | Mapping[int | str, int] | None, max_tokens: float | None
) -> dict[str, Any]:
    """Return the table of the budget."""
    if max_steps is not None and max_tokens is not None:
        raise SpecError("max_steps and max_tokens exclude each other: both end a trial. Found both.")
    if max_tokens is not None:
        return {"tokens": max_tokens}
    steps = max_steps if isinstance(max_steps, Mapping) else {}
    numbers = list(steps.values()) if isinstance(max_steps, Mapping) else [STEPS if max_steps is None else max_steps]
    if not numbers or not all(map(_is_number, numbers)):
        raise SpecError(
            "max_steps must be a whole number, or a dictionary of whole numbers by batch size. Found "
            f"{one_line(repr(max_steps))}."
        )
    missing = [size for size in sizes if steps and size not in steps]
    if missing:
        raise SpecError(f"max_steps must have a number for every batch size. Found none for {missing[0]}.")
    return {"steps": max(numbers), "per_batch_size": {str(size): most for size, most in steps.items()} or None}


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of an experiment file; keys without a value are left out."""
    lines = []
    for name, table in tables.items():
        lines += [f"[{name}]"] if name else []
        lines += [*(toml_line(_to_key(key), value) for key, value in table.items() if value is not None), ""]
    return "\n".join(lines)


def _to_key(name: object) -> str:
    text = str(name)
    return text if text.isascii() and text.replace("_", "a").isalnum() else json.dumps(text)


def _run(root: Path, text: str, script: FunctionScript, workers: int | None, progress: bool) -> "RunOutcome":
    """Write the files of a measurement and run it, or continue it; nothing is written if it is another one."""
    from batchscale.cli.progress import PlainDisplay, make_display
    from batchscale.run.loop import DEBUG_ADVICE
    from batchscale.run.preflight import make_checked_plan
    from batchscale.run.session import run_plan
    from batchscale.run.settings import RunSettings
    from batchscale.run.signals import StopFlag
    from batchscale.study.identity import check_folder

    experiment = _parse(text, root)
    _write_script(root, script)
    plan = make_checked_plan(experiment, None)
    check_folder(root / RECORDS, plan)
    write_output(root / EXPERIMENT, text)
    in_terminal = sys.stderr.isatty() and progress
    display = make_display() if in_terminal else PlainDisplay(sys.stdout, quiet=not progress)
    try:
        with StopFlag() as stop:
            return run_plan(plan, root / RECORDS, RunSettings(workers=workers), display.show, stop)
    except RunError as error:
        advice = "Correct train; call it by hand with batchscale.trial.start(learning_rate=0.1) to debug it."
        raise RunError(str(error).replace(DEBUG_ADVICE, advice)) from None
    finally:
        display.close()


def _parse(text: str, root: Path) -> "Experiment":
    from batchscale.spec.file import parse_experiment

    try:
        return parse_experiment(text, source=str(root / EXPERIMENT), folder=root)
    except SpecError as error:
        raise SpecError(f"The arguments of measure must make a valid experiment: {error}") from None


def _write_script(root: Path, script: FunctionScript) -> None:
    """Write the script of the function and the files that it reads.

    Raises:
        RunError: the folder has the script of another function.
    """
    path = root / SCRIPT
    if (root / EXPERIMENT).exists() and not path.exists():
        raise RunError(
            f"{one_line(root, 300)}: a folder of measure is its own. Found {EXPERIMENT}, which measure did not "
            "write; pass another folder."
        )
    if path.exists() and path.read_text(encoding="utf-8") != script.text:
        raise RunError(
            f"{one_line(root, 300)}: a folder belongs to one function and the values that it uses. Found another "
            f"function, or other values, in {SCRIPT}; pass another folder, or remove this one to measure anew."
        )
    process = {"folder": str(Path.cwd()), "path": [os.path.abspath(entry) for entry in sys.path]}  # noqa: PTH100 - zips
    write_output(root / PROCESS, json.dumps(process, indent=1) + "\n")
    if script.values_file:
        write_output(root / script.values_file, script.values)
    write_output(path, script.text)


def _check_outcome(outcome: "RunOutcome", root: Path, has_folder: bool) -> None:
    """Raise KeyboardInterrupt if the run was stopped, RunError if no trial could be trained."""
    from batchscale.run.loop import RunResult

    studies = outcome.status.studies
    if outcome.result is RunResult.STOPPED:
        how = "The same call continues it." if has_folder else "Pass folder= to be able to continue a measurement."
        raise KeyboardInterrupt(f"The measurement was interrupted. {how}")
    if not any(study.complete for study in studies):
        diverged = sum(study.infeasible for study in studies)
        raise RunError(
            f"At least one trial must be trained to its end. Found {diverged:,} trials that diverged and "
            f"{outcome.status.given_up:,} that failed; the records in {one_line(root / RECORDS, 300)} have the "
            "reasons. Search smaller learning rates."
        )
