"""Small records in memory, and the same as a tree on disk, from one description of trials."""

import csv
import json
import math

import polars as pl

from batchscale.records.frames import STUDY_SCHEMA, TRIAL_SCHEMA, Records
from batchscale.records.metadata.columns import study_metadata_row
from batchscale.records.metadata.study import StudyMetadata
from batchscale.spec.workload_name import WorkloadName

NAME = WorkloadName("toy", "net", "sgd")
METRIC = "val/error"
SPACE = {"learning_rate": {"type": "DOUBLE", "scale": "LOG_SCALE", "min_value": 0.001, "max_value": 10.0}}


def trial(trial_id, measurements, *, status="COMPLETE", steps=None, parameters=None):
    """``measurements``: {step: value} of METRIC, or {step: {metric: value}}."""
    rows = {step: value if isinstance(value, dict) else {METRIC: value} for step, value in measurements.items()}
    return {
        "trial_id": trial_id,
        "status": status,
        "steps": max(rows) if steps is None else steps,
        "parameters": {"learning_rate": 0.1} if parameters is None else parameters,
        "rows": rows,
    }


def study(batch_size, trials, *, train_steps=1000, early_stopping=False, space=None, own=None):
    return {
        "batch_size": batch_size,
        "train_steps": train_steps,
        "early_stopping": early_stopping,
        "space": SPACE if space is None else space,
        "own": own,
        "trials": trials,
    }


def make_records(workloads, kind=pl.Float64):
    """Records of ``{WorkloadName: [study, …]}``, or of the studies of NAME."""
    if isinstance(workloads, list):
        workloads = {NAME: workloads}
    studies, trials, sources = [], [], {}
    parameters = sorted({p for ss in workloads.values() for s in ss for t in s["trials"] for p in t["parameters"]})
    for name, members in workloads.items():
        key = {"dataset": name.dataset, "model": name.model, "optimizer": name.optimizer}
        rows = []
        for one in members:
            place = key | {"batch_size": one["batch_size"]}
            own = None if one["own"] is None else study_metadata_row(StudyMetadata.from_json(one["own"], "study.json"))
            facts = {k: one[k] for k in ("train_steps", "early_stopping")}
            studies.append(place | facts | {"parameter_configs": json.dumps(one["space"]), "facts": own, "extra": "{}"})
            for t in one["trials"]:
                head = {k: t[k] for k in ("trial_id", "status", "steps")} | {"facts": None, "extra": "{}"}
                trials.append(place | head | {p: t["parameters"].get(p) for p in parameters})
                rows += [
                    {"batch_size": one["batch_size"], "trial_id": t["trial_id"], "step": step} | values
                    for step, values in t["rows"].items()
                ]
        metrics = list(dict.fromkeys(k for row in rows for k in row if "/" in k))
        schema = {"batch_size": pl.Int64, "trial_id": pl.Int64, "step": pl.Int64} | dict.fromkeys(metrics, kind)
        frame = pl.DataFrame(rows, schema=schema, strict=False)
        sources[name] = frame.lazy
    return Records(
        pl.DataFrame(studies, schema=dict(STUDY_SCHEMA)),
        pl.DataFrame(trials, schema=dict(TRIAL_SCHEMA) | dict.fromkeys(parameters, pl.Float64)),
        sources,
    )


def write_tree(root, workloads):
    """The same description as a records tree, by csv and json alone."""
    if isinstance(workloads, list):
        workloads = {NAME: workloads}
    for name, members in workloads.items():
        for one in members:
            folder = root / name.dataset / name.model / name.optimizer / str(one["batch_size"])
            folder.mkdir(parents=True)
            data = {
                "batch_size": one["batch_size"],
                "dataset": name.dataset,
                "early_stopping": one["early_stopping"],
                "model": name.model,
                "optimizer": name.optimizer,
                "parameter_configs": one["space"],
                "train_steps": one["train_steps"],
            }
            (folder / "study.json").write_text(json.dumps(data | ({"batchscale": one["own"]} if one["own"] else {})))
            for t in one["trials"]:
                _write_trial(folder / str(t["trial_id"]), t)
    return root


def _write_trial(folder, t):
    folder.mkdir()
    metadata = {k: t[k] for k in ("trial_id", "status", "steps", "parameters")}
    (folder / "metadata.json").write_text(json.dumps(metadata))
    metrics = list(dict.fromkeys(k for values in t["rows"].values() for k in values))
    with (folder / "measurements.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *metrics])
        for step, values in sorted(t["rows"].items()):
            cells = [values.get(m) for m in metrics]
            writer.writerow([step, *("" if c is None else "nan" if math.isnan(c) else repr(c) for c in cells)])


def curve_studies(steps_by_size, *, factors=(1.0, 1.05, 1.1, 1.3, 2.0), train_steps=None, own=None):
    """Studies whose trials reach METRIC < 0.1 at steps × factor, measured at that step and the one before it.

    Learning rates lie on both sides of the first trial's in turn, so that no end of the range is the better one.
    """
    studies = []
    for size, steps in steps_by_size.items():
        trials = [
            trial(
                i + 1,
                {0: 1.0, max(round(steps * f) - 1, 1): 0.2, max(round(steps * f), 2): 0.05},
                parameters={"learning_rate": 0.01 * size**0.5 * 0.8 ** ((i + 1) // 2 * (-1) ** i)},
            )
            for i, f in enumerate(factors)
        ]
        studies.append(study(size, trials, train_steps=train_steps or round(10 * steps), own=own))
    return studies
