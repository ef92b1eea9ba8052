"""A callback that lets batchscale measure a Lightning module: ``Trainer(callbacks=[BatchscaleCallback(…)], …)``.

Give the trainer ``max_steps=run.max_steps``, ``enable_checkpointing=False`` and a training loader that does not end
early; `fit` goes on from the trial's save.
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
        self._on_sigterm = signal.getsignal(signal.SIGTERM)

    def on_train_start(self, trainer, module):
        signal.signal(signal.SIGTERM, self._on_sigterm)  # Lightning's own would end the fit without a save

    def on_train_batch_end(self, trainer, module, *_):
        step = self._run.step = trainer.global_step
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
                batch = trainer.strategy.batch_to_device(batch)
                found, size = module.validation_step(batch, index), len(batch[-1])
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
