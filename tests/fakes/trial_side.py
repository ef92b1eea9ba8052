"""A trial as batchscale gives it to a script, and the lines that the script reports."""

import json

from batchscale import trial


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
