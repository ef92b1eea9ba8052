"""The work of a PyTorch step as a CSV file for ``batchscale plan --work``: copy ``write_work`` into your script.

``python count_work.py work.csv`` writes that of the example network at two batch sizes.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def write_work(path: str, model: nn.Module, step: Callable[[int], object], batch_sizes: tuple[int, int]) -> None:
    """Write operations and memory of one step (forward, backward, update) at two batch sizes.

    On a GPU the peak of allocated memory is written too. ``kind`` is language, convolution or other; ``precision`` that
    of the matrix products: float32, tf32, bfloat16, float16 or float8.
    """
    kind, precision = "other", "float32"
    parameters = sum(parameter.numel() for parameter in model.parameters())
    rows = ["kind,precision,batch_size,flops,parameters,memory_bytes"]
    for batch_size in batch_sizes:
        step(batch_size)  # the first step also creates the optimizer's state
        has_gpu = torch.cuda.is_available()
        if has_gpu:
            torch.cuda.reset_peak_memory_stats()
        with FlopCounterMode(display=False) as counter:
            step(batch_size)
        memory = torch.cuda.max_memory_allocated() if has_gpu else ""
        rows.append(f"{kind},{precision},{batch_size},{counter.get_total_flops()},{parameters},{memory}")
    Path(path).write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(network.parameters(), 0.1)

    def train_step(batch_size: int) -> None:
        loss = F.cross_entropy(network(torch.zeros(batch_size, 64)), torch.zeros(batch_size, dtype=torch.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    write_work(sys.argv[1], network, train_step, (8, 64))
