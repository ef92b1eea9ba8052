"""Measure the gradient noise scale of a PyTorch training with gradient accumulation, after a self-test of its norms.

python examples/torch_noise_scale.py
"""

import torch
from torch import nn

from batchscale.gradient_noise import GradientNoise, self_test

PARTS, EXAMPLES_PER_PART = 4, 16


def accumulate(losses_of, parts):
    """Call backward for each part, as the training below does."""
    for part in parts:
        (losses_of(part).mean() / len(parts)).backward()


torch.manual_seed(0)
centres = 2 * torch.randn(10, 20)
labels = torch.randint(0, 10, (4096,))
examples = torch.cat([centres[labels] + 2 * torch.randn(4096, 20), labels[:, None]], dim=1)
model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)


def losses_of(part):
    """Return the loss of each example."""
    return nn.functional.cross_entropy(model(part[:, :20]), part[:, 20].long(), reduction="none")


assert self_test(accumulate, EXAMPLES_PER_PART, PARTS) == []
noise = GradientNoise(model)
for _ in range(4):
    for batch in examples[torch.randperm(4096)].split(PARTS * EXAMPLES_PER_PART):
        optimizer.zero_grad()
        accumulate(losses_of, batch.split(EXAMPLES_PER_PART))
        noise.step(EXAMPLES_PER_PART)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
print("all steps:", noise.estimate())
print("last 128 steps:", noise.estimate(last_steps=128))
