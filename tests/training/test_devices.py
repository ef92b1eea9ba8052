"""One trial on several devices: what it gives is what one device gives.

Cases run in processes of their own, which XLA gives eight devices of the processor; those whose bits are compared have
one to themselves, with programs as users have them.
"""

import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sharded_states import Case

from batchscale.training.devices import LOGICAL_SHARDS, split_batch

HERE = Path(__file__).parent
NUMBERS = (1, 2, 4, 8)
EXACT_NUMBERS = (1, 2, 3, 8)
SLOW_NAMES = ("fc_8", "ghost_fc", "simple_cnn_base", "resnet_8", "resnet_50", "transformer_base", "gpt_100k", "lstm")
GHOSTS = ("ghost_fc", "resnet_50")
ROUNDING = 2e-6
"""float32 rounds to 6e-8. Sums of some hundred products in another order, over four steps at a small learning rate."""

OWN_REORDERING = 4
"""Where a model loses more digits, one device shows it by itself: its microbatches differ from its whole batch. Devices
may differ by a few times as much, since they cut the batch in other places."""


def cases_of(model):
    """Fourteen examples: they divide by two devices, not by four or eight, nor by a ghost batch of four."""
    plain = Case(model)
    accumulated = 4 if model in GHOSTS else 3
    return [
        *(replace(plain, devices=devices) for devices in NUMBERS),
        *(replace(plain, devices=devices, exact=True) for devices in EXACT_NUMBERS),
        replace(plain, microbatch=accumulated),
        replace(plain, devices=2, microbatch=accumulated),
        replace(plain, devices=4, fed=True),
        replace(plain, devices=2, population=2),
    ]


def few_cases_of(model):
    """The same laws in few programs: eight devices have whole, smaller and empty slices; the last case has it all.

    Averages of the weights and branches are part of the states; averages at the ends of branches are measured.
    """
    plain = Case(model, branched=True)
    return [
        plain,
        replace(plain, devices=8),
        *(replace(plain, devices=devices, exact=True) for devices in (1, 3)),
        replace(plain, devices=2, microbatch=4, fed=True, population=2),
    ]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(few_cases_of("ghost_fc"), id="few"),
        *(pytest.param(cases_of(name), id=name, marks=pytest.mark.slow) for name in SLOW_NAMES),
    ],
)
def found(request, tmp_path_factory):
    """The states and measurements of every case of a model."""
    out = tmp_path_factory.mktemp("cases")
    cases = request.param
    path = os.pathsep.join(entry for entry in sys.path if entry)
    for exact in (True, False):
        names = [case.name for case in cases if case.exact is exact]
        command = [sys.executable, str(HERE / "sharded_states.py"), str(out), *names]
        subprocess.run(command, check=True, timeout=1700, env=os.environ | {"PYTHONPATH": path})
    return {case: dict(np.load(out / f"{case.name}.npz")) for case in cases}


def is_special(case):
    return bool(case.microbatch or case.fed or case.population > 1)


def assert_close(found, cases):
    """Each array of these cases within rounding of one device's, or within what reordering does there."""
    expected = next(values for case, values in found.items() if case == Case(case.model, branched=case.branched))
    reordered = next((values for case, values in found.items() if case.microbatch and case.devices == 1), expected)
    assert cases
    for case in cases:
        assert found[case].keys() == expected.keys()
        for name, value in expected.items():
            if value.size:
                exact = value.astype(np.float64)
                own = np.abs(reordered[name].astype(np.float64) - exact).max()
                bound = max(ROUNDING * np.abs(exact).max(), OWN_REORDERING * own)
                values = found[case][name].astype(np.float64)
                np.testing.assert_allclose(values, exact, rtol=0, atol=bound, err_msg=f"{case}, {name}")


@pytest.mark.timeout(1800)
def test_any_number_of_devices_gives_the_state_and_measurements_of_one(found):
    assert_close(found, [case for case in found if case.devices > 1 and not case.exact and not is_special(case)])


@pytest.mark.timeout(1800)
def test_exact_sums_have_the_same_bits_on_any_number_of_devices(found):
    first, *others = (case for case in found if case.exact)
    assert_close(found, [first])
    for case in others:
        for name, value in found[first].items():
            np.testing.assert_array_equal(found[case][name], value, err_msg=f"{case}, {name}")


@pytest.mark.timeout(1800)
def test_accumulated_fed_and_together_with_other_trials_it_is_the_same(found):
    assert_close(found, [case for case in found if case.devices > 1 and is_special(case)])


def test_shards_hold_every_example_once_in_order_and_whole_ghost_batches():
    for batch_size, devices, multiple, exact in itertools.product(
        (1, 2, 7, 14, 64, 100, 1000), (1, 2, 3, 8), (1, 4, 32), (False, True)
    ):
        shards = split_batch(batch_size, devices, multiple, exact)
        assert sum(shards.counts) == batch_size
        assert list(shards.counts) == sorted(shards.counts, reverse=True)
        assert shards.size % multiple == 0
        assert len(shards.counts) == devices * shards.per_device
        assert shards.num_busy == sum(
            any(shards.counts[i * shards.per_device : (i + 1) * shards.per_device]) for i in range(devices)
        )


def test_exact_shards_do_not_depend_on_the_devices():
    sizes = {(split_batch(100, devices, 4, exact=True).size, LOGICAL_SHARDS) for devices in range(1, 20)}
    assert len(sizes) == 1
