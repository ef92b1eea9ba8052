"""The trial's side: one file, standard library only, any Python from 3.9 on; a dry run outside batchscale."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

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


def start(tmp_path, monkeypatch, rank=None, **changes) -> trial.Run:
    document = {
        "protocol": 1,
        "batch_size": 8,
        "seed": 1,
        "trial_id": 3,
        "max_steps": 40,
        "until_step": 40,
        "measure_at": [10, 20, 30, 40],
        "metaparameters": {"learning_rate": 0.1},
        "reports": str(tmp_path / "reports.jsonl"),
        "control": str(tmp_path / "control.json"),
        "checkpoint": str(tmp_path / "state"),
        "resume": True,
        **changes,
    }
    (tmp_path / "trial.json").write_text(json.dumps(document))
    monkeypatch.setenv(trial.VARIABLE, str(tmp_path / "trial.json"))
    return trial.start(rank)


def reports(tmp_path) -> list[dict]:
    return [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]


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
