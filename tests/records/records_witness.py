"""An independent reader of the layout: plain csv and json, written from the published description alone.

Like the only public reader it takes every folder of a workload for a batch size and every folder of a study for a
trial, and fails on anything else.
"""

import csv
import json
import os


def folders(path):
    return [name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name))]


def read_trial(path):
    with open(os.path.join(path, "metadata.json")) as file:
        metadata = json.load(file)
    with open(os.path.join(path, "measurements.csv"), newline="") as file:
        rows = list(csv.reader(file))
    header, body = rows[0], rows[1:]
    assert header[0] == "step"
    assert all(len(row) == len(header) for row in body)
    steps = [int(row[0]) for row in body]
    assert steps == sorted(set(steps))
    values = [[float(cell) if cell else None for cell in row[1:]] for row in body]
    return {**metadata, "metrics": header[1:], "step": steps, "values": values}


def read_study(path):
    with open(os.path.join(path, "study.json")) as file:
        study = json.load(file)
    study["trials"] = {int(name): read_trial(os.path.join(path, name)) for name in folders(path)}
    assert all(key == trial["trial_id"] for key, trial in study["trials"].items())
    return study


def read_workload(path):
    studies = {int(name): read_study(os.path.join(path, name)) for name in folders(path)}
    assert all(key == study["batch_size"] for key, study in studies.items())
    return studies
