"""The peer of ``whole_curve.py``: PyTorch loops searched by Optuna's quasi-random sampler, raced in worker processes.

Needs nothing of batchscale. Each process takes one batch size after the other, the costly ones first.
"""

import copy
import json
import multiprocessing
import sys
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

import numpy as np
import optuna
import torch
import torch.nn.functional as F
from torch import nn

FIRST_ROUND = 64


class Trial:
    """A model in training, and its measurements."""

    def __init__(self, job, data, size, values, seed):
        torch.manual_seed(seed)
        widths = [data["train_inputs"].shape[1], *job["widths"]]
        layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.model = nn.Sequential(*layers, nn.Linear(widths[-1], int(data["train_labels"].max()) + 1))
        self.values, self.size, self.step, self.best = values, size, 0, float("inf")
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=values["learning_rate"], momentum=values.get("momentum", 0.0),
            nesterov=job["nesterov"],
        )  # fmt: skip
        self.generator = torch.Generator().manual_seed(seed)
        self.order = torch.empty(0, dtype=torch.long)
        self.reached, self.diverged = None, False

    def train(self, job, data, steps, until, counts):
        """Train to a step, with an evaluation at each of the steps on the way; end at the goal or at a divergence."""
        inputs, labels = data["train_inputs"], data["train_labels"]
        for stop in [step for step in steps if self.step < step <= until]:
            while self.step < stop:
                while len(self.order) < self.size:
                    self.order = torch.cat([self.order, torch.randperm(len(inputs), generator=self.generator)])
                rows, self.order = self.order[: self.size], self.order[self.size :]
                self.optimizer.zero_grad(set_to_none=True)
                loss = F.cross_entropy(self.model(inputs[rows]), labels[rows])
                loss.backward()
                self.optimizer.step()
                self.step += 1
                counts["steps"] += 1
            value = self.evaluate(job, data)
            counts["evaluations"] += 1
            if not np.isfinite(value):
                self.diverged = True
                return
            self.best = min(self.best, value)
            if value < job["target"]:
                self.reached = self.step
                return

    @torch.inference_mode()
    def evaluate(self, job, data):
        """The goal's metric on all validation examples."""
        outputs = self.model(data["val_inputs"])
        if job["metric"] == "classification_error":
            return float((outputs.argmax(1) != data["val_labels"]).float().mean())
        return float(F.cross_entropy(outputs, data["val_labels"]))


def round_ends(steps):
    """The steps at which the trials of a race wait for each other: a 64th of the budget, then twice as many each."""
    ends, share = [], FIRST_ROUND
    while share >= 1:
        ends.append(steps[min(bisect_left(steps, max(1, steps[-1] / share)), len(steps) - 1)])
        share //= 2
    return sorted(set(ends))


def sample(study, seed):
    """Quasi-random metaparameters for every trial of a study."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.QMCSampler(qmc_type="halton", scramble=True, seed=seed, warn_independent_sampling=False)
    search = optuna.create_study(sampler=sampler)
    spaces = {}
    for name, (low, high, scale) in study["space"].items():
        reverse = "REVERSE" in scale
        low, high = (1 - high, 1 - low) if reverse else (low, high)
        spaces[name] = (optuna.distributions.FloatDistribution(low, high, log="LOG" in scale), reverse)
    points = []
    for _ in range(study["trials"]):
        trial = search.ask({name: space for name, (space, _) in spaces.items()})
        search.tell(trial, 0.0)
        points.append({name: 1 - trial.params[name] if spaces[name][1] else trial.params[name] for name in spaces})
    return [{**study["fixed"], **point} for point in points]


def race(job, data, study, number):
    """Race the trials of a study until enough have finished, and train the best again with new seeds."""
    steps, counts = [step for step in study["steps"] if step > 0], {"steps": 0, "evaluations": 0, "trials": 0}
    trials = [
        Trial(job, data, study["batch_size"], values, job["seed"] + i)
        for i, values in enumerate(sample(study, job["seed"] + number))
    ]
    finish = steps[-1]
    for end in round_ends(steps):
        for trial in sorted((t for t in trials if t.reached is None and not t.diverged), key=lambda t: t.best):
            trial.train(job, data, steps, min(end, finish), counts)
            done = sorted(t.reached for t in trials if t.reached is not None)
            if len(done) >= job["finishers"]:
                finish = min(finish, done[job["finishers"] - 1])
    counts["trials"] = len(trials)
    finished = sorted((t for t in trials if t.reached is not None), key=lambda t: t.reached)
    for trial in finished[: job["confirm_best"]] if job["confirm"] else []:
        for seed in range(job["confirm"]):
            again = Trial(job, data, study["batch_size"], copy.copy(trial.values), 1000 * (seed + 1) + job["seed"])
            again.train(job, data, steps, steps[-1], counts)
            counts["trials"] += 1
    return study["batch_size"], finished[0].reached if finished else None, counts


def work(path, number):
    """One study, in a worker process."""
    torch.set_num_threads(1)
    job = json.loads(Path(path).read_text())
    data = {name: torch.from_numpy(values) for name, values in np.load(job["data"]).items()}
    return race(job, data, job["studies"][number], number)


def main():
    """Race all studies and print the totals."""
    path, cores = sys.argv[1], int(sys.argv[2])
    studies = json.loads(Path(path).read_text())["studies"]
    costs = [study["steps"][-1] * (1 + study["batch_size"] / 64) for study in studies]
    order = sorted(range(len(studies)), key=lambda number: -costs[number])
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        results = pool.starmap(work, [(path, number) for number in order], chunksize=1)
    totals = {name: sum(counts[name] for *_, counts in results) for name in ("trials", "steps", "evaluations")}
    print(json.dumps({**totals, "curve": {str(size): steps for size, steps, _ in sorted(results, key=lambda r: r[0])}}))


if __name__ == "__main__":
    main()
