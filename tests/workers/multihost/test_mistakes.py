"""A user's mistake on two hosts: both end soon, with exit code 2 and one sentence. Real commands with their pipes."""

import json
import os
import subprocess
import sys

import pytest
from forked_hosts import free_ports

TRAIN = [
    *("train", "digits/linear/sgd", "-b", "50", "--steps", "20", "--evaluate-every", "10"),
    *("--set", "learning_rate=0.1"),
]
NEVER_S = 100_000  # whoever waits for the others to join does not end within the time of a test
pytestmark = pytest.mark.timeout(400)


def run_pair(folder, words):
    """Exit codes, standard outputs and standard errors of the command on two hosts, each in a folder of its own."""
    names = [f"127.0.0.1:{port}" for port in free_ports(2)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = os.environ | {"PYTHONPATH": path}
    processes = []
    for place in range(2):
        (folder / str(place)).mkdir(parents=True, exist_ok=True)
        cluster = json.dumps({"processes": names, "process": place, "join_s": NEVER_S, "lost_after_s": 10})
        command = [sys.executable, "-m", "batchscale", *map(str, words(place)), "--cluster", cluster]
        pipe = subprocess.PIPE
        processes.append(
            subprocess.Popen(command, cwd=folder / str(place), env=environment, stdout=pipe, stderr=pipe, text=True)
        )
    try:
        outputs = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [process.returncode for process in processes], *map(list, zip(*outputs, strict=True))


def missing_data(place):
    return [*TRAIN[:1], "mnist/linear/sgd", *TRAIN[2:], "--data-dir", "."]


def missing_text(folder):
    """Only one host has the file that the data set is made of: found when all have joined JAX."""
    experiment = """
goal = "val/cross_entropy_error < 0.1"
batch_sizes = [8]
budget.steps = 20000
search.fixed = {learning_rate = 0.1}
[workload]
dataset = "text"
model = "transformer_narrow_and_shallow"
optimizer = "sgd"
dataset_options = {path = "sentences.txt", vocabulary_size = 300, sequence_length = 16}
"""
    for place in range(2):
        (folder / str(place)).mkdir()
        (folder / str(place) / "e.toml").write_text(experiment)
    (folder / "0" / "sentences.txt").write_text("the quick brown fox jumps over the lazy dog.\n" * 400)
    return lambda _place: ["train", "e.toml", "-b", "8", "--steps", "20"]


CASES = {
    "nothing to resume": (lambda _: lambda _place: [*TRAIN, "--resume", "--out", "r"], "--resume needs a trial"),
    "no data on any host": (lambda _: missing_data, "mnist"),
    "no data on one host": (missing_text, "sentences.txt"),
    "an option of one host": (
        lambda _: lambda place: [*TRAIN, *(["--devices", "x"] if place else [])],
        "--devices must be a whole number",
    ),
    "an option of the chief": (
        lambda _: lambda place: [*TRAIN, *([] if place else ["--set", "momentum"])],
        "--set must be name=number",
    ),
    "a file of a run": (lambda _: lambda place: ["run", f"{place}.toml", "--out", "r"], ".toml"),
    "a mirror": (
        lambda _: lambda _place: [*TRAIN, "--out", "r", "--mirror", "file:///proc/none/mirror"],
        "file:///proc/none/mirror: cannot write",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_users_mistake_ends_all_hosts_with_one_sentence(tmp_path, case):
    make, words = CASES[case]
    command = make(tmp_path)
    codes, shown, errors = run_pair(tmp_path, command)
    assert codes == [2, 2], errors
    assert shown == ["", ""]
    for text in errors:
        assert len([line for line in text.splitlines() if line.startswith("Error: ")]) == 1, errors
        assert words in text, errors
        assert not any(sign in text for sign in ("Traceback", "*** ", "@     0x")), errors  # nor frames of C++
    assert not list(tmp_path.rglob("study.json"))


def test_standard_output_has_json_lines_alone(tmp_path):
    codes, shown, errors = run_pair(tmp_path, lambda _place: [*TRAIN, "--json", "--out", "r"])
    assert codes == [0, 0], errors
    assert "Gloo" in errors[0]  # it prints to file descriptor 1
    lines = [json.loads(line) for line in shown[0].splitlines()]
    assert [line["step"] for line in lines] == [0, 10, 20]
    assert {(line["trial"], line["action"]) for line in lines} == {(1, "started")}
    assert shown[1] == ""
    codes, shown, errors = run_pair(tmp_path, lambda _place: [*TRAIN, "--json", "--out", "r"])
    assert codes == [0, 0], errors
    (again,) = [json.loads(line) for line in shown[0].splitlines()]
    assert (again["action"], again["step"]) == ("finished", 20)
    measured = {key: value for key, value in lines[-1].items() if "/" in key}
    assert {key: value for key, value in again.items() if "/" in key} == pytest.approx(measured, rel=1e-6)
