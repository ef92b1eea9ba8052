"""A Keras model, on whatever backend is installed, learns which of two circles a point lies on."""

import keras
import numpy as np
from keras_callback import fit

from batchscale import trial

run = trial.start(learning_rate=0.1, batch_size=32, max_steps=60, every=20)
keras.utils.set_random_seed(run.seed)


def make_batch(size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    labels = chance.integers(0, 2, size)
    angles, radius = 2 * np.pi * chance.random(size), 1.0 + labels + 0.2 * chance.standard_normal(size)
    return np.stack([radius * np.cos(angles), radius * np.sin(angles)], 1).astype("float32"), labels


def endless():
    step = 0
    while True:
        step += 1
        yield make_batch(run.batch_size, seed=1000 + step)


model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(32, "tanh"), keras.layers.Dense(2)])
model.compile(keras.optimizers.SGD(run["learning_rate"]), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
points, labels = make_batch(500, seed=1)
fit(model, endless(), run, lambda: {"val/error": float((model.predict_on_batch(points).argmax(1) != labels).mean())})
