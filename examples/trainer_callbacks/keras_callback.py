"""A callback that lets batchscale measure ``model.fit`` of Keras, on any of its backends.

``fit(model, batches, run, measure)`` with an endless iterator of batches; ``measure()`` gives the metrics.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import keras
import numpy as np

from batchscale import trial


class BatchscaleCallback(keras.callbacks.Callback):
    """Measures where it is due, reports, and ends or pauses the training when batchscale says so."""

    def __init__(self, run: trial.Run, measure: Callable[[], dict[str, float]]) -> None:
        super().__init__()
        self._run, self._measure = run, measure

    def on_train_batch_end(self, batch, logs=None):
        self._run.step += 1
        if self._run.due(self._run.step):
            self._run.report(self._run.step, self._measure())
        if not self._run.goes_on():
            self.model.stop_training = True


def fit(model: keras.Model, batches: Iterator, run: trial.Run, measure: Callable[[], dict[str, float]]) -> None:
    """Train from the trial's save, and save at the end of what was asked for."""

    def load(folder: Path) -> None:
        model.load_weights(folder / "model.weights.h5")
        state = dict(np.load(folder / "optimizer.npz"))
        model.optimizer.build(model.trainable_variables)
        for place, variable in enumerate(model.optimizer.variables):
            variable.assign(state[str(place)])

    def save(folder: Path) -> None:
        model.save_weights(folder / "model.weights.h5")
        values = {
            str(place): keras.ops.convert_to_numpy(variable) for place, variable in enumerate(model.optimizer.variables)
        }
        np.savez(folder / "optimizer.npz", **values)

    start = run.restore(load) or 0
    for _ in range(start):
        next(batches)  # the batches of the steps that are done
    callbacks = [BatchscaleCallback(run, measure)]
    model.fit(batches, steps_per_epoch=run.max_steps - start, epochs=1, verbose=0, callbacks=callbacks)
    run.save(save)
