"""Sets that are read on the host: the same trial as with the arrays on the device."""

from dataclasses import replace

import jax
import numpy as np

from batchscale.training import evaluation
from batchscale.training.devices import Devices
from batchscale.training.study_engine import TrialTask
from batchscale.training.training_data import HostFeed, Position, example_seeds
from batchscale.workloads.workload import IndexedSplit


class HostSplit(IndexedSplit):
    """Arrays behind the interface of a set that is read example by example; remembers what it was asked."""

    def __init__(self, arrays):
        self.arrays, self.reads = arrays, []

    @property
    def num_examples(self):
        return len(self.arrays["labels"])

    def read(self, indices, seeds):
        self.reads.append((tuple(indices), None if seeds is None else tuple(seeds)))
        return {name: values[indices] for name, values in self.arrays.items()}


def fed_version(toy):
    splits = {name: HostSplit(split.arrays) for name, split in toy.dataset.splits.items()}
    return replace(toy, dataset=replace(toy.dataset, splits=splits))


def task(trial_id=1, until=40):
    return TrialTask(trial_id, {"learning_rate": 0.1, "momentum": 0.9}, seed=trial_id, until_step=until, from_step=-1)


def test_a_fed_trial_is_the_trial_on_the_device_also_in_a_population(toy, engine_of):
    expected = engine_of(toy, population=2).advance([task(1), task(2), task(3)])
    found = engine_of(fed_version(toy), population=2).advance([task(1), task(2), task(3)])
    for one, other in zip(found, expected, strict=True):
        for (_, a), (_, b) in zip(one.rows, other.rows, strict=True):
            # XLA orders the same sums differently where the batch comes as an argument
            np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-5, atol=1e-6)


def test_streamed_evaluation_measures_the_same(toy, engine_of, monkeypatch):
    (expected,) = engine_of(toy).advance([task(until=10)])
    monkeypatch.setattr(evaluation, "MAX_DEVICE_BYTES", 0)
    monkeypatch.setattr("batchscale.training.shared_programs.MAX_EVALUATION_BATCH", 16)  # 40 = 16 + 16 + 8, padded
    (found,) = engine_of(fed_version(toy)).advance([task(until=10)])
    for (_, a), (_, b) in zip(found.rows, expected.rows, strict=True):
        np.testing.assert_allclose([a[name] for name in b], list(b.values()), rtol=1e-5, atol=1e-6)


def test_what_is_read_depends_on_key_and_position_alone(toy):
    split = HostSplit(toy.dataset.splits["train"].arrays)
    one = Devices(jax.devices()[:1])
    feed = HostFeed(split, batch_size=7, slots=1, devices=one)
    first = feed.take([Position((1, 2), 0)], 3)
    ahead = feed.take([Position((1, 2), 21)], 2)  # read ahead
    fresh = HostFeed(split, batch_size=7, slots=1, devices=one).take([Position((1, 2), 21)], 2)
    np.testing.assert_array_equal(ahead["inputs"][:, :2], fresh["inputs"][:, :2])
    other = feed.take([Position((1, 3), 0)], 3)
    assert not np.array_equal(first["inputs"][:, :3], other["inputs"][:, :3])


def test_an_example_is_augmented_anew_in_every_epoch_and_trial():
    indices = np.arange(50)
    seeds = {
        seed
        for key in ((1, 2), (1, 3), (2, 2))
        for epoch in range(4)
        for seed in example_seeds(np.array(key, np.uint32), indices, np.full(50, epoch))
    }
    assert len(seeds) == 3 * 4 * 50
    assert min(seeds) >= 0
