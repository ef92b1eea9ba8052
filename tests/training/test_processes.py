"""One trial over several processes, as over several hosts: what it gives is what one device gives, for every family."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sharded_states import Case

HERE = Path(__file__).parent
NAMES = ("fc_8", "ghost_fc", "simple_cnn_base", "resnet_8", "transformer_base", "gpt_100k", "lstm")
COUNTS = (2, 4)
ROUNDING = 2e-6
"""float32 rounds to 6e-8. Sums of some hundred products in another order, over four steps at a small learning rate."""

OWN_REORDERING = 4
"""As in `test_devices`: a few times what one device's own microbatches differ from its whole batch."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def run_cases(out, count, cases):
    """The states of the cases, trained by so many processes."""
    out.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, str(HERE / "sharded_states.py"), str(out), *(case.name for case in cases)]
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | {"PYTHONPATH": path} | ({"SHARDED_PROCESS": f"{i}/{count}/{port}"} if count > 1 else {}),
        )
        for i in range(count)
    ]
    try:
        assert [process.wait(1700) for process in processes] == [0] * count
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {case: dict(np.load(out / f"{case.name}.npz")) for case in cases}


def assert_close(found, expected, reordered, name):
    """All arrays within rounding of one device's, or within what reordering does there."""
    for key, value in expected.items():
        exact = value.astype(np.float64)
        own = np.abs(reordered[key].astype(np.float64) - exact).max(initial=0)
        bound = max(ROUNDING * np.abs(exact).max(initial=0), OWN_REORDERING * own)
        np.testing.assert_allclose(found[key].astype(np.float64), exact, rtol=0, atol=bound, err_msg=f"{name}, {key}")


@pytest.fixture(scope="module", params=NAMES)
def found(request, tmp_path_factory):
    """By number of processes: the plain, the exact and the accumulated trial, of fourteen examples a batch."""
    plain = Case(request.param)
    accumulated = 4 if plain.model == "ghost_fc" else 3  # whole ghost batches
    cases = [plain, replace(plain, exact=True), replace(plain, microbatch=accumulated)]
    folder = tmp_path_factory.mktemp("cases")
    return {count: run_cases(folder / str(count), count, cases) for count in (1, *COUNTS)}


def test_any_number_of_processes_gives_the_state_and_measurements_of_one(found):
    plain, _, accumulated = found[1]
    for count in COUNTS:
        for case in (plain, accumulated):
            assert_close(found[count][case], found[1][plain], found[1][accumulated], f"{count}, {case}")


def test_exact_sums_have_the_same_bits_on_any_number_of_processes(found):
    _, exact, _ = found[1]
    for count in COUNTS:
        for name, value in found[1][exact].items():
            np.testing.assert_array_equal(found[count][exact][name], value, err_msg=f"{count}, {name}")


def test_two_processes_with_two_devices_each_are_as_one_device(tmp_path):
    """Each has eight devices, on however few threads: those that are not used hold nothing up."""
    plain = Case("fc_8")
    alone = run_cases(tmp_path / "1", 1, [plain, replace(plain, exact=True), replace(plain, microbatch=3)])
    spread = [replace(plain, devices=2), replace(plain, devices=2, exact=True)]
    together = run_cases(tmp_path / "2", 2, spread)
    expected, exact, reordered = alone.values()
    assert_close(together[spread[0]], expected, reordered, "two devices of two processes")
    for name, value in exact.items():
        np.testing.assert_array_equal(together[spread[1]][name], value, err_msg=name)
