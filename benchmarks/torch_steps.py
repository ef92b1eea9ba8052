"""Steps to the goal of a fully connected network on MNIST in PyTorch: a check of ours by other hands' code.

    python benchmarks/torch_steps.py MNIST_FOLDER --widths 1024 --batch-size 512 --rates 1.2,1.45 [--evaluate-every 10]

Needs PyTorch and numpy only. Data split, weights, dropout and goal are those of ``mnist/fc_*/sgd``; the random numbers
are other ones, so that single trials differ and only their average can be compared.
"""

import argparse
import gzip
import itertools
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

GOAL, DROPOUT, NUM_VALIDATION = 0.03, 0.4, 5_000
MAX_EPOCHS, MIN_STEPS = 32, 5_000


def read_arrays(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels from 0 to 1 and labels of the official training files."""
    images = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    labels = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())[8:]
    pixels = np.frombuffer(images, np.uint8).reshape(len(labels), -1).astype(np.float32) / 255
    return torch.from_numpy(pixels), torch.from_numpy(np.frombuffer(labels, np.uint8).astype(np.int64))


class Network:
    """ReLU layers with dropout; weights uniform with variance 2 / inputs, 1 / inputs for the output layer."""

    def __init__(self, sizes: Sequence[int], seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.parameters = []
        for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
            bound = math.sqrt((3 if layer == len(sizes) - 2 else 6) / inputs)
            weights = torch.empty(inputs, outputs).uniform_(-bound, bound, generator=draw)
            self.parameters += [weights.requires_grad_(), torch.zeros(outputs, requires_grad=True)]

    def __call__(self, values: torch.Tensor, *, train: bool) -> torch.Tensor:
        """The logits."""
        *hidden, weights, bias = self.parameters
        for layer in range(0, len(hidden), 2):
            values = functional.dropout(torch.relu(values @ hidden[layer] + hidden[layer + 1]), DROPOUT, train)
        return values @ weights + bias


def draw_batches(count: int, size: int, seed: int) -> Iterator[torch.Tensor]:
    """Batches without replacement, epoch after epoch; what is left at an epoch's end opens the next one."""
    draw, left = torch.Generator().manual_seed(seed), torch.empty(0, dtype=torch.int64)
    while True:
        left = torch.cat([left, torch.randperm(count, generator=draw)])
        while len(left) >= size:
            yield left[:size]
            left = left[size:]


def steps_to_goal(
    data: tuple[torch.Tensor, torch.Tensor], widths: Sequence[int], batch_size: int, rate: float, every: int, seed: int
) -> int | None:
    """The first measured step with a validation error below the goal; None if the budget ends before."""
    (val_x, train_x), (val_y, train_y) = ((a[:NUM_VALIDATION], a[NUM_VALIDATION:]) for a in data)
    torch.manual_seed(seed)
    network = Network([train_x.shape[1], *widths, 10], seed)
    budget = max(MIN_STEPS, MAX_EPOCHS * len(train_x) // batch_size)
    for step, chosen in enumerate(draw_batches(len(train_x), batch_size, seed), 1):
        loss = functional.cross_entropy(network(train_x[chosen], train=True), train_y[chosen])
        gradients = torch.autograd.grad(loss, network.parameters)
        with torch.no_grad():
            for values, gradient in zip(network.parameters, gradients, strict=True):
                values -= rate * gradient
            if step % every == 0:
                wrong = (network(val_x, train=False).argmax(1) != val_y).float().mean()
                if wrong < GOAL:
                    return step
        if step >= budget:
            return None
    return None


def main() -> None:
    """Print one line per learning rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mnist", type=Path)
    parser.add_argument("--widths", default="1024")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--rates", default="1.0")
    parser.add_argument("--evaluate-every", type=int, default=10)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = read_arrays(given.mnist)
    widths = [int(width) for width in given.widths.split(",")]
    for seed, rate in enumerate(float(text) for text in given.rates.split(",")):
        steps = steps_to_goal(data, widths, given.batch_size, rate, given.evaluate_every, seed)
        print(f"batch size {given.batch_size}, learning rate {rate:g}: {steps} steps", flush=True)


if __name__ == "__main__":
    main()
