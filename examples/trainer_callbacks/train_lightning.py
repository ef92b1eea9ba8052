"""A Lightning module learns which of two circles a point lies on."""

import lightning
import torch
import torch.nn.functional as F
from lightning_callback import BatchscaleCallback, fit
from torch import nn

from batchscale import trial

run = trial.start(learning_rate=0.1, batch_size=32, max_steps=60, every=20)
lightning.seed_everything(run.seed, verbose=False)


def make_batch(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (size,), generator=generator)
    angles = 2 * torch.pi * torch.rand(size, generator=generator)
    radius = 1.0 + labels + 0.2 * torch.randn(size, generator=generator)
    return torch.stack([radius * angles.cos(), radius * angles.sin()], 1), labels


class Batches(torch.utils.data.IterableDataset):
    """The batches from the step that the trial has come to: a resumed trial sees what it would have seen."""

    def __iter__(self):
        for step in range(run.step, run.max_steps):
            yield make_batch(run.batch_size, seed=1000 + step)


class Circles(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

    def training_step(self, batch, _):
        return F.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch, _):
        logits = self.layers(batch[0])
        return {"error": (logits.argmax(1) != batch[1]).float().mean(), "loss": F.cross_entropy(logits, batch[1])}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), run["learning_rate"])


callback = BatchscaleCallback(run, {"error": "val/error", "loss": "val/loss"}, [make_batch(500, seed=1)])
trainer = lightning.Trainer(
    max_steps=run.max_steps, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[callback],
)  # fmt: skip
fit(trainer, Circles(), torch.utils.data.DataLoader(Batches(), batch_size=None), run)
