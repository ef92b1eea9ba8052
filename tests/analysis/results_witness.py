"""An independent answer to "how many steps to the goal": plain csv and json over a tree, nothing of ours."""

import csv
import json


def folders(path):
    return [entry for entry in path.iterdir() if entry.is_dir()]


def first_step(path, metric, value, maximize):
    with (path / "measurements.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            if row[metric] == "":
                continue
            measured = float(row[metric])
            if measured > value if maximize else measured < value:
                return int(row["step"])
    return None


def steps_to_result(workload, metric, value, maximize=False):
    """{batch size: (steps, trial id, trials, reached, infeasible)} of one workload folder."""
    answer = {}
    for study in folders(workload):
        best, complete, reached, infeasible = (None, None), 0, 0, 0
        for trial in folders(study):
            metadata = json.loads((trial / "metadata.json").read_text())
            infeasible += metadata["status"] == "INFEASIBLE"
            if metadata["status"] != "COMPLETE":
                continue
            complete += 1
            step = first_step(trial, metric, value, maximize)
            if step is None:
                continue
            reached += 1
            if best[0] is None or (step, metadata["trial_id"]) < best:
                best = (step, metadata["trial_id"])
        answer[int(study.name)] = (*best, complete, reached, infeasible)
    return answer
