"""A callback that lets batchscale measure a Lightning module: ``Trainer(callbacks=[BatchscaleCallback(…)], …)``.

Give the trainer ``max_steps=run.max_steps``, ``enable_checkpointing=False`` and a training loader that does not end
early; with ``parts = run.accumulate(16, even=True)``, a loader of ``parts.micro_batch`` examples and
``accumulate_grad_batches=parts.steps``. `fit` goes on from the trial's save.
"""

import signal
from pathlib import Path

import lightning
import torch

from batchscale import trial


class BatchscaleCallback(lightning.Callback):
    """Validates where a measurement is due, reports it, and ends or pauses the training when batchscale says so."""

    def __init__(self, run: trial.Run, names: dict[str, str], validation: object) -> None:
        """``names`` maps what ``validation_step`` returns to metrics: ``{"val_loss": "val/loss"}``."""
        self._run, self._names, self._validation = run, names, validation
        self._on_sigterm, self._examples = signal.getsignal(signal.SIGTERM), 0

    def on_train_start(self, trainer, module):
        signal.signal(signal.SIGTERM, self._on_sigterm)  # Lightning's own would end the fit without a save

    def on_train_batch_end(self, trainer, module, outputs, batch, *_):
        self._examples += len(batch[-1]) * trainer.world_size
        if trainer.global_step == self._run.step:
            return  # a micro-batch; the step goes on
        step, size, self._examples = trainer.global_step, self._examples, 0
        if size > self._run.batch_size or (step == 1 and size < self._run.batch_size):
            raise ValueError(f"Step {step} must train {self._run.batch_size} examples. It trained {size}.")
        self._run.step = step
        if self._run.due(step):
            self._run.report(step, self._validate(trainer, module))
        if not self._run.goes_on():
            trainer.should_stop = True

    def _validate(self, trainer, module) -> dict[str, float]:
        """The module's own ``validation_step``, which returns a mapping here, averaged over all examples."""
        totals, count = dict.fromkeys(self._names.values(), 0.0), 0
        module.eval()
        with torch.no_grad():
            for index, batch in enumerate(self._validation):
                found = module.validation_step(trainer.strategy.batch_to_device(batch), index)
                size = len(batch[-1])
                totals = {ours: totals[ours] + size * float(found[theirs]) for theirs, ours in self._names.items()}
                count += size
        module.train()
        return {name: total / count for name, total in totals.items()}


def fit(trainer: lightning.Trainer, module: lightning.LightningModule, loader: object, run: trial.Run) -> None:
    """Train from the trial's save, and save at the end of what was asked for."""
    found: list[Path] = []
    run.restore(found.append)
    trainer.fit(module, loader, ckpt_path=str(found[0] / "last.ckpt") if found else None)
    run.save(lambda folder: trainer.save_checkpoint(folder / "last.ckpt"))
