"""A regression in numpy, measured without a fixed horizon: averages of its weights, and branches that anneal.

``python train.py`` alone is a dry run that prints.
"""

from pathlib import Path

import numpy as np

from batchscale import trial

run = trial.start(learning_rate=0.1, batch_size=8, max_steps=400, every=40)
truth = 1 / np.arange(1, 21)
weights = np.zeros(20)
averages = [np.zeros(20) for _ in run.half_lives]


def draw(step: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the batch of a step: noisy answers of a linear model."""
    rng = np.random.default_rng((run.seed, step))
    inputs = rng.normal(size=(run.batch_size, 20))
    return inputs, inputs @ truth + rng.normal(size=run.batch_size)


def save(folder: Path) -> None:
    """Write the weights and their averages."""
    np.save(folder / "weights.npy", [weights, *averages])


def load(folder: Path) -> None:
    """Read what ``save`` wrote."""
    for array, stored in zip([weights, *averages], np.load(folder / "weights.npy"), strict=True):
        array[:] = stored


def main() -> None:
    """Train, average, anneal, measure."""
    start = run.restore(load) or 0
    for step, (inputs, answers) in run.steps(draw, start=start, save=save, load=load):
        rate = run["learning_rate"] * run.annealing(step)  # 1 on the trunk, and without [branches]
        weights[:] -= rate * inputs.T @ (inputs @ weights - answers) / run.batch_size
        for average, half_life in zip(averages, run.half_lives, strict=True):
            share = (1 - 0.5 ** (1 / half_life)) / (1 - 0.5 ** (step / half_life))
            average += share * (weights - average)
        if run.due(step):
            run.report(step, [{"val/loss": np.sum((each - truth) ** 2)} for each in averages or [weights]])


main()
