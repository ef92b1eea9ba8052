"""A plain PyTorch loop that batchscale measures: the lines with ``run`` are all that was added.

A fully connected network on the digits that come with batchscale; ``python train.py`` alone is a dry run that prints.
"""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from batchscale import trial
from batchscale.workloads.datasets.builtin.digits import read_splits

run = trial.start(learning_rate=0.1, momentum=0.9, batch_size=32, max_steps=400, every=40)
torch.manual_seed(run.seed)


def load_split(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images as rows of pixels from 0 to 1, and labels."""
    images, labels = read_splits()[name]
    return torch.tensor(images.reshape(len(images), -1) / 16, dtype=torch.float32), torch.tensor(labels).long()


def start_linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A layer with values of variance ``gain`` over its inputs."""
    layer = nn.Linear(inputs, outputs)
    nn.init.uniform_(layer.weight, -math.sqrt(3 * gain / inputs), math.sqrt(3 * gain / inputs))
    nn.init.zeros_(layer.bias)
    return layer


train_images, train_labels = load_split("train")
val_images, val_labels = load_split("val")
model = nn.Sequential(start_linear(64, 64, 2.0), nn.ReLU(), nn.Dropout(0.4), start_linear(64, 10, 1.0))
optimizer = torch.optim.SGD(model.parameters(), run["learning_rate"], run["momentum"], nesterov=True)


def batch_of(step: int) -> torch.Tensor:
    """The examples of a step: each epoch in an order of its own, which follows from the seed alone."""
    places = torch.arange((step - 1) * run.batch_size, step * run.batch_size)
    epochs = places // len(train_images)
    orders = {
        int(epoch): torch.randperm(
            len(train_images), generator=torch.Generator().manual_seed(run.seed * 100_003 + int(epoch))
        )
        for epoch in epochs.unique()
    }
    indices = places % len(train_images)
    return torch.cat([orders[int(epoch)][indices[epochs == epoch]] for epoch in epochs.unique()])


def save(folder: Path) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    torch.save(state, folder / "state.pt")


def load(folder: Path) -> None:
    state = torch.load(folder / "state.pt")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])


@torch.no_grad()
def evaluate() -> dict[str, float]:
    model.eval()
    logits = model(val_images)
    model.train()
    return {
        "val/classification_error": float((logits.argmax(1) != val_labels).float().mean()),
        "val/cross_entropy_error": float(F.cross_entropy(logits, val_labels)),
    }


start = run.restore(load) or 0
for step, chosen in run.steps(batch_of, start=start, save=save):
    loss = F.cross_entropy(model(train_images[chosen]), train_labels[chosen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if not torch.isfinite(loss):
        run.diverged(step)
    if run.due(step):
        run.report(step, evaluate())
