"""An independent reader of the layout: plain csv and json, written from the published description alone.

Like the only public reader it takes every folder of a workload for a batch size and every folder of a study for a
trial, and fails on anything else.
"""

import csv
import json


def folders(path):
    return [child for child in path.iterdir() if child.is_dir()]


def read_trial(path):
    metadata = json.loads((path / "metadata.json").read_text())
    with (path / "measurements.csv").open(newline="") as file:
        header, *body = list(csv.reader(file))
    assert header[0] == "step"
    assert all(len(row) == len(header) for row in body)
    steps = [int(row[0]) for row in body]
    assert steps == sorted(set(steps))
    values = [[float(cell) if cell else None for cell in row[1:]] for row in body]
    return {**metadata, "metrics": header[1:], "step": steps, "values": values}


def read_study(path):
    study = json.loads((path / "study.json").read_text())
    study["trials"] = {int(child.name): read_trial(child) for child in folders(path)}
    assert all(key == trial["trial_id"] for key, trial in study["trials"].items())
    return study


def read_workload(path):
    studies = {int(child.name): read_study(child) for child in folders(path)}
    assert all(key == study["batch_size"] for key, study in studies.items())
    return studies
