"""The trial's side: one file, standard library only, any Python from 3.9 on; a dry run outside batchscale."""

import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trial_side import reports, start

import batchscale
from batchscale import trial

SIDE = Path(batchscale.__file__).parent / "trial.py"

LOOP = """
import trial
run = trial.start(learning_rate=0.1, max_steps=20, every=10)
for step, batch in run.steps([1, 2, 3]):
    if run.due(step):
        run.report(step, {"val/error": run["learning_rate"] * step})
run.save(lambda folder: 1 / 0)
"""


@pytest.fixture(autouse=True)
def handlers():
    """A trial takes over SIGTERM; this process gets it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def old_pythons() -> list[str]:
    names = [shutil.which(f"python3.{minor}") for minor in (9, 10)]
    works = [name for name in names if name and subprocess.run([name, "-V"], capture_output=True).returncode == 0]
    roots = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    return works + [str(path) for path in sorted(roots.glob("3.9*/bin/python3"))] or [sys.executable]


@pytest.mark.parametrize("python", old_pythons())
def test_a_copy_alone_is_a_dry_run_that_prints(tmp_path, python):
    shutil.copy(SIDE, tmp_path / "trial.py")
    (tmp_path / "loop.py").write_text(LOOP)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    answer = subprocess.run(
        [python, "loop.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=30
    )
    assert answer.stdout == "step 10 val/error=1\nstep 20 val/error=2\n", answer.stderr


def test_importing_it_loads_the_standard_library_only():
    code = "import batchscale.trial, json, sys; print(json.dumps(sorted({n.partition('.')[0] for n in sys.modules})))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    loaded = set(json.loads(output.stdout))
    assert not loaded & {"numpy", "pydantic", "jax", "polars", "typer", "scipy"}


def test_a_trial_trains_to_its_budget_and_reports_where_it_is_due(tmp_path, monkeypatch):
    run = start(tmp_path, monkeypatch)
    for step, batch in run.steps("abc"):
        assert batch == "abc"[(step - 1) % 3]
        if run.due(step):
            run.report(step, {"val/error": 1 / step, "train/error": float("nan")})
    assert run.step == 40
    found = reports(tmp_path)
    assert [line["step"] for line in found] == [10, 20, 30, 40]
    assert found[0]["metrics"] == {"val/error": 0.1, "train/error": None}
    assert "facts" in found[0] and "facts" not in found[1]


def test_a_save_counts_when_it_is_whole_and_a_resumed_trial_sees_the_batches_it_would_have_seen(tmp_path, monkeypatch):
    run = start(tmp_path, monkeypatch, max_steps=10)
    list(run.steps(range(7)))
    run.save(lambda folder: (folder / "x").write_text("10"))
    (tmp_path / "state/step-12.writing").mkdir()
    again = start(tmp_path, monkeypatch)
    loaded = []
    assert again.restore(lambda folder: loaded.append((folder / "x").read_text())) == 10
    assert loaded == ["10"]
    assert next(iter(again.steps(range(7), start=10))) == (11, 3)


class OwnOrder:
    """Batches in a shuffled order per epoch, with a state to save and restore, as stateful data loaders have."""

    def __init__(self) -> None:
        self.position = 0

    def __iter__(self):
        while True:
            epoch, place = divmod(self.position, 7)
            order = list(range(7))
            random.Random(epoch).shuffle(order)
            self.position += 1
            yield {"x": np.full(3, order[place]), "y": [order[place]]}


class SeededOrder(OwnOrder):
    """The same batches, from the first one on in every start."""

    def __iter__(self):
        self.position = 0
        return super().__iter__()


@pytest.mark.parametrize("style", ["anew", "anew, skip=True", "own order", "own order, skip=False", "of the step"])
def test_a_resumed_trial_trains_the_batches_of_an_uninterrupted_one(tmp_path, monkeypatch, style):
    """The conservation law: what a script trains does not depend on where it was interrupted."""
    options = {"skip": "True" in style} if "skip" in style else {}

    def train(until: int) -> list[int]:
        run = start(tmp_path, monkeypatch, max_steps=until)
        loader = OwnOrder() if style.startswith("own") else SeededOrder()

        def load(folder):
            if style.startswith("own"):
                loader.position = int((folder / "position").read_text())

        def save(folder):
            (folder / "position").write_text(str(loader.position))

        first = run.restore(load) or 0
        source = loader
        if style == "of the step":
            source = lambda step: next(itertools.islice(SeededOrder(), step - 1, None))  # noqa: E731
        return [int(batch["x"][0]) for _, batch in run.steps(source, start=first, save=save, **options)]

    whole = train(40)
    shutil.rmtree(tmp_path / "state")
    assert [*train(1), *train(9), *train(14), *train(30), *train(40)] == whole


def test_batches_that_cannot_be_compared_are_taken_as_beginning_anew(tmp_path, monkeypatch, capsys):
    class Opaque:
        number = 0

        def sum(self):
            raise TypeError("no numbers")

    run = start(tmp_path, monkeypatch, max_steps=3)
    list(run.steps([Opaque()] * 5, save=lambda _: None))
    again = start(tmp_path, monkeypatch, max_steps=5)
    assert len(list(again.steps([Opaque()] * 5, start=again.restore(lambda _: None)))) == 2
    assert "The source begins anew: its first 3 batches are dropped (skip=" in capsys.readouterr().err


def test_other_ranks_skip_as_rank_0_decided(tmp_path, monkeypatch):
    run = start(tmp_path, monkeypatch, max_steps=10)
    list(run.steps(list("abcdefg"), save=lambda _: None))
    monkeypatch.setenv("WORLD_SIZE", "2")
    for first, expected in (("abcdefg", "d"), ("xyz", "x")):
        (tmp_path / "decisions.jsonl").unlink(missing_ok=True)
        got = []
        for rank, source in ((0, list(first)), (1, list(first.upper()))):
            again = start(tmp_path, monkeypatch, rank=rank)
            got.append(next(again.steps(source, start=again.restore(lambda _: None)))[1])
        assert got == [expected, expected.upper()]


def gradients(run, micro_batch, inputs, targets, weights):
    """The mean gradient of a linear model, accumulated over parts, in float64."""
    total, parts = np.zeros_like(weights), run.accumulate(micro_batch)
    count = 0
    for part, scale in parts.parts(len(targets)):
        error = inputs[part] @ weights - targets[part]
        total += scale * (inputs[part].T @ error) / len(targets[part])  # the gradient of a mean loss
        count += 1
    assert count == parts.steps
    return total


@pytest.mark.parametrize("micro_batch", [1, 3, 8, 16, 37, 100])
def test_an_accumulated_batch_has_the_gradient_of_the_full_batch(tmp_path, monkeypatch, micro_batch):
    chance = np.random.default_rng(1)
    inputs, targets, weights = chance.normal(size=(37, 5)), chance.normal(size=37), chance.normal(size=5)
    full = inputs.T @ (inputs @ weights - targets) / 37
    run = start(tmp_path, monkeypatch, batch_size=37)
    assert gradients(run, micro_batch, inputs, targets, weights) == pytest.approx(full, rel=1e-12)  # float64 rounding
    monkeypatch.setenv("WORLD_SIZE", "3")  # processes average their gradients; their shares are 13, 12 and 12
    shares = np.split(np.arange(37), [13, 25])
    ranks = [start(tmp_path, monkeypatch, rank=rank, batch_size=37) for rank in range(3)]
    averaged = sum(
        gradients(run, micro_batch, inputs[share], targets[share], weights)
        for run, share in zip(ranks, shares, strict=True)
    )
    assert averaged / 3 == pytest.approx(full, rel=1e-12)


def test_parts_of_equal_size_make_up_the_batch_or_are_refused(tmp_path, monkeypatch):
    run = start(tmp_path, monkeypatch, batch_size=40)
    for most in range(1, 50):
        parts = run.accumulate(most, even=True)
        assert parts.micro_batch * parts.steps == 40 and parts.micro_batch <= most
        shared = run.accumulate(most, even=True, processes=4)
        assert 4 * shared.micro_batch * shared.steps == 40 and shared.micro_batch <= most
    assert run.accumulate(16, even=True)[:2] == (10, 4)
    with pytest.raises(ValueError, match=r"all processes equally many\. Found .* batch size 40 and 3 process"):
        run.accumulate(16, even=True, processes=3)
    with pytest.raises(ValueError, match="at least 1 example"):
        run.accumulate(0)


def test_a_source_that_ends_says_so(tmp_path, monkeypatch):
    run = start(tmp_path, monkeypatch)
    assert len(list(run.steps(iter(range(5))))) == 5
    assert reports(tmp_path) == [{"last": 5}]


def test_a_trial_of_another_protocol_is_refused(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match=r"copy batchscale/trial\.py again"):
        start(tmp_path, monkeypatch, protocol=99)


def test_an_unknown_metaparameter_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(KeyError, match=r"add it to \[search.space\]"):
        start(tmp_path, monkeypatch)["momentum"]
    monkeypatch.delenv(trial.VARIABLE)
    with pytest.raises(KeyError, match=r"trial\.start"):
        trial.start()["momentum"]


def test_other_ranks_follow_what_rank_0_decides_and_report_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    leader = start(tmp_path, monkeypatch, rank=0)
    (tmp_path / "control.json").write_text('{"until_step": 40, "stop": false}')

    def train(run):
        done = 0
        for step, _ in run.steps(lambda step: step):
            done = step
            if run.due(step):
                run.report(step, {"val/error": 1.0})
            if step == 20 and run.rank == 0:
                (tmp_path / "control.json").write_text('{"until_step": 40, "stop": true}')
        return done

    assert train(leader) == 20
    lines = len(reports(tmp_path))
    follower = start(tmp_path, monkeypatch, rank=1)
    assert train(follower) == 20
    assert len(reports(tmp_path)) == lines


AVERAGING = {"half_lives": [5.0, 50.0], "metric": "val/error", "maximize": False}


def test_a_script_reports_each_of_its_averages_and_the_best_one_counts(tmp_path, monkeypatch):
    run = start(tmp_path, monkeypatch, averaging=AVERAGING)
    assert run.half_lives == (5.0, 50.0)
    run.report(10, [{"val/error": 0.3, "train/error": 1.0}, {"val/error": 0.2, "train/error": 2.0}])
    run.report(20, [{"val/error": float("nan"), "train/error": 1.0}, {"val/error": 0.2, "train/error": 2.0}])
    averages = {"val/error_average_1": 0.3, "val/error_average_2": 0.2}
    assert reports(tmp_path)[0]["metrics"] == {"val/error": 0.2, "train/error": 2.0, **averages}
    assert reports(tmp_path)[1]["metrics"]["val/error"] == 0.2
    for wrong in ({"val/error": 0.3}, [{"val/error": 0.3}]):
        with pytest.raises(ValueError, match="list with the metrics of each of the 2 averages"):
            run.report(30, wrong)


def test_a_confirmation_reports_the_average_of_its_half_life(tmp_path, monkeypatch):
    values = {"learning_rate": 0.1, "averaging_half_life": 5.0}
    run = start(tmp_path, monkeypatch, averaging=AVERAGING, metaparameters=values)
    run.report(10, [{"val/error": 0.3}, {"val/error": 0.2}])
    assert reports(tmp_path)[0]["metrics"]["val/error"] == 0.3


def test_a_dry_run_has_no_averages(monkeypatch, capsys):
    monkeypatch.delenv(trial.VARIABLE, raising=False)
    run = trial.start(learning_rate=0.1)
    assert run.half_lives == ()
    run.report(10, [{"val/error": 0.5}])
    assert capsys.readouterr().out == "step 10 val/error=0.5\n"
