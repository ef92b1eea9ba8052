"""The file for PyTorch scripts: equal to a direct computation, with accumulation and on two processes; the self-test.

Each case is a script in the environment of `make test-torch` that imports the file alone, as a copy beside it would be.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import batchscale
from batchscale.prediction.noise_scale import split_norms

FILE = Path(batchscale.__file__).parent / "gradient_noise.py"

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

HEAD = """
import json, math, os, sys
import torch
from torch import nn
from gradient_noise import GradientNoise, KnownQuadratic, self_test
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
x, y = torch.randn(4096, 5), torch.randint(0, 3, (4096,))
loss_of = nn.functional.cross_entropy

def direct(rows):
    "The gradient of each example, one row each, by a loop over examples."
    gradients = []
    for i in rows:
        model.zero_grad()
        loss_of(model(x[i : i + 1]), y[i : i + 1]).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]).double())
    model.zero_grad()
    return torch.stack(gradients)
"""


def run(tmp_path, script, *words, processes=1):
    folder = os.environ.get("BATCHSCALE_TRAINERS")
    if folder is None:
        pytest.skip("PyTorch is installed by `make test-torch`")
    shutil.copy(FILE, tmp_path / "gradient_noise.py")
    (tmp_path / "script.py").write_text(HEAD + script)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--master-addr", "127.0.0.1"]
    torchrun += ["--master-port", "0", "--rdzv-endpoint", "127.0.0.1:0", "--rdzv-backend", "c10d"]
    command = [f"{folder}/python", *(torchrun if processes > 1 else []), "script.py", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)  # nothing of ours is needed
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith(("{", "["))))


ACCUMULATED = """
sizes = json.loads(sys.argv[1])
total = sum(sizes)
gradients = direct(range(total))
starts = [sum(sizes[:i]) for i in range(len(sizes))]
small = [float(gradients[s : s + n].mean(0).square().sum()) for s, n in zip(starts, sizes)]
noise = GradientNoise(model)
for s, n in zip(starts, sizes):
    (loss_of(model(x[s : s + n]), y[s : s + n]) * (n / total) * 1024).backward()  # 1024: a GradScaler's factor
noise.step(sizes if len(set(sizes)) > 1 else sizes[0], loss_scale=1024)
estimate = noise.estimate()
print(json.dumps({"small": small, "big": float(gradients.mean(0).square().sum()), "metrics": noise.metrics()}))
"""


@pytest.mark.parametrize("sizes", [[8, 8, 8, 8], [8, 8, 5]])
def test_accumulated_parts_give_the_norms_of_single_examples(tmp_path, sizes):
    result = run(tmp_path, ACCUMULATED, json.dumps(sizes))
    harmonic = 1 / np.mean([1 / size for size in sizes])
    signal, trace = split_norms(np.mean(result["small"]), np.array(result["big"]), harmonic, sum(sizes))
    assert result["metrics"]["train/gradient_norm_squared"] == pytest.approx(signal, rel=1e-4)
    assert result["metrics"]["train/gradient_noise_trace"] == pytest.approx(trace, rel=1e-4)


IN_PROCESSES = """
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
distributed.init_process_group("gloo")
rank = distributed.get_rank()
gradients = direct(range(32))
small = [float(gradients[s : s + 8].mean(0).square().sum()) for s in range(0, 32, 8)]
wrapped = DistributedDataParallel(model)
noise = GradientNoise(wrapped)
for part in range(2):
    s = 16 * rank + 8 * part
    with wrapped.no_sync() if part == 0 else __import__("contextlib").nullcontext():
        (loss_of(wrapped(x[s : s + 8]), y[s : s + 8]) / 2).backward()
noise.step(8)
result = {"small": small, "big": float(gradients.mean(0).square().sum()), "metrics": noise.metrics()}

def train_step(quadratic, parts):
    for part in parts:
        (quadratic(part).mean() / len(parts)).backward()

def sums_over_processes(quadratic, parts):
    train_step(quadratic, parts)
    for p in quadratic.parameters():
        p.grad *= distributed.get_world_size()

result["good"] = self_test(train_step, wrap=DistributedDataParallel)
result["bad"] = self_test(sums_over_processes, wrap=DistributedDataParallel)
if rank == 0:
    print(json.dumps(result))
distributed.destroy_process_group()
"""


def test_two_processes_with_accumulation_give_the_norms_of_single_examples(tmp_path):
    result = run(tmp_path, IN_PROCESSES, processes=2)
    signal, trace = split_norms(np.mean(result["small"]), np.array(result["big"]), 8, 32)
    assert result["metrics"]["train/gradient_norm_squared"] == pytest.approx(signal, rel=1e-4)
    assert result["metrics"]["train/gradient_noise_trace"] == pytest.approx(trace, rel=1e-4)
    assert result["good"] == []
    assert len(result["bad"]) == 1 and "is 2 times the known one, the processes" in result["bad"][0]


SELF_TEST = """
PARTS = 8
def step(scale=1.0, reduce="mean", divide=True, clip=None, report=1.0):
    def train_step(quadratic, parts):
        for part in parts:
            (scale * getattr(quadratic(part), reduce)() / (len(parts) if divide else 1)).backward()
        norm = None
        if clip is not None:
            nn.utils.clip_grad_norm_(quadratic.parameters(), clip)
            norm = clip
        gradient = torch.cat([p.grad.flatten() for p in quadratic.parameters()])
        return float(gradient.norm()) * report
    return train_step

print(json.dumps({
    "good": self_test(step(), 4, PARTS),
    "reported 8 times": self_test(step(report=8), 4, PARTS),
    "reported an 8th": self_test(step(report=1 / 8), 4, PARTS),
    "scaled 8 times": self_test(step(scale=8.0), 4, PARTS),
    "not divided": self_test(step(divide=False), 4, PARTS),
    "sum": self_test(step(reduce="sum"), 4, PARTS),
    "clipped": self_test(step(clip=1.0), 4, PARTS),
}))
"""


def test_the_self_test_finds_a_factor_of_8_and_names_likely_causes(tmp_path):
    problems = run(tmp_path, SELF_TEST)
    assert problems.pop("good") == []
    assert problems["reported 8 times"] == [
        "The norm that the trainer reports is 8 times the known one, the number of parts: a sum stands where a mean "
        "should, or is not divided."
    ]
    assert "is 1/8 of the known one" in problems["reported an 8th"][0]
    assert len(problems["scaled 8 times"]) == 3
    assert "8 times the known one, the number of parts" in problems["not divided"][0]
    assert "4 times the known one, the examples of a part" in problems["sum"][0]
    assert any("was it clipped" in problem for problem in problems["clipped"])


COVERAGE = """
truth, inside, resolved, errors, values = 400 / 100, 0, 0, [], []
torch.manual_seed(1)
for repeat in range(200):
    quadratic = KnownQuadratic(dimension=100, distance=5.0)  # |G|^2 = 25, tr = 100
    noise = GradientNoise(quadratic, block_steps=1)
    for step in range(20):
        quadratic.zero_grad()
        for part in range(2):
            (quadratic(torch.randn(2, 100)).mean() / 2).backward()
        noise.step(2)
        if step == 9:  # a checkpoint
            saved = json.loads(json.dumps(noise.state_dict()))
            noise.close()
            noise = GradientNoise(quadratic)
            noise.load_state_dict(saved)
    estimate = noise.estimate()
    values.append([estimate.gradient_norm_squared, estimate.noise_trace])
    if estimate.noise_scale is not None:
        resolved += 1
        inside += estimate.low <= 4.0 <= estimate.high
    noise.close()
print(json.dumps({"values": values, "inside": inside, "resolved": resolved, "text": str(estimate)}))
"""


def test_averages_are_unbiased_and_intervals_cover_the_known_noise_scale(tmp_path):
    result = run(tmp_path, COVERAGE)
    values = np.array(result["values"])
    errors = values.std(axis=0, ddof=1) / len(values) ** 0.5
    assert np.all(np.abs(values.mean(axis=0) - [25, 100]) < 4 * errors)
    assert result["resolved"] == 200
    assert 182 <= result["inside"] <= 198  # of 200 at 95 %: 2.6 standard deviations of a binomial number
    assert result["text"].startswith("gradient noise scale: ")


ADAM = """
optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.9, 0.9))
noise = GradientNoise(model, optimizer)
for step in range(3):
    moments = [optimizer.state[p].get("exp_avg_sq") for p in model.parameters()]
    if step == 2:
        state = [optimizer.state[p] for p in model.parameters()]
        scale = [(1 / ((s["exp_avg_sq"] / (1 - 0.9 ** float(s["step"]))).sqrt() + 1e-8)).flatten() for s in state]
        noise.close()
        gradients = direct(range(32))
        noise = GradientNoise(model, optimizer)
        scale = torch.cat(scale).double()
        small = [float((scale * gradients[s : s + 8].mean(0).square()).sum()) for s in range(0, 32, 8)]
        big = float((scale * gradients.mean(0).square()).sum())
    optimizer.zero_grad()
    for s in range(0, 32, 8):
        (loss_of(model(x[s : s + 8]), y[s : s + 8]) / 4).backward()
    noise.step(8)
    optimizer.step()
print(json.dumps({"small": small, "big": big, "metrics": noise.metrics()}))
"""


def test_norms_in_the_scale_of_adam_are_those_of_single_examples(tmp_path):
    result = run(tmp_path, ADAM)
    signal, trace = split_norms(np.mean(result["small"]), np.array(result["big"]), 8, 32)
    assert result["metrics"]["train/preconditioned_norm_squared"] == pytest.approx(signal, rel=1e-3)
    assert result["metrics"]["train/preconditioned_noise_trace"] == pytest.approx(trace, rel=1e-3)


MIXED_PRECISION = """
gradients = direct(range(32))
small = [float(gradients[s : s + 8].mean(0).square().sum()) for s in range(0, 32, 8)]
result = {"small": small, "big": float(gradients.mean(0).square().sum())}
optimizer = torch.optim.SGD(model.parameters(), 0.0)
for order in ("before", "after"):
    noise = GradientNoise(model, block_steps=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, growth_interval=2)  # the scale grows on the way
    scales = []
    for step in range(6):
        optimizer.zero_grad()
        for s in range(0, 32, 8):
            loss = loss_of(model(x[s : s + 8]), y[s : s + 8]) / 4
            scaler.scale(loss * (1e38 if step == 4 else 1)).backward()  # step 4 overflows
        scales.append(scaler.get_scale())
        if order == "after":
            scaler.unscale_(optimizer)
        noise.step(8, loss_scale=scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
    result[order] = [noise.skipped_steps, noise.metrics(), noise.estimate().reason, scales]
    noise.close()
print(json.dumps(result))
"""


def test_with_a_grad_scaler_norms_are_those_of_single_examples_and_overflows_are_left_out(tmp_path):
    result = run(tmp_path, MIXED_PRECISION)
    signal, trace = split_norms(np.mean(result["small"]), np.array(result["big"]), 8, 32)
    skipped, metrics, _, scales = result["before"]
    assert skipped == 1 and len(set(scales)) > 1
    assert metrics["train/gradient_norm_squared"] == pytest.approx(signal, rel=1e-4)
    assert metrics["train/gradient_noise_trace"] == pytest.approx(trace, rel=1e-4)
    assert "not consistent" in result["after"][2]  # unscaled between the parts and the batch


SHARDED = """
from torch import distributed
from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel
distributed.init_process_group("gloo")
answers = []
for wrap in (fully_shard, lambda net: FullyShardedDataParallel(net, device_id=torch.device("cpu"))):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    try:
        GradientNoise(wrap(net))
    except ValueError as error:
        answers.append(str(error))
if distributed.get_rank() == 0:
    print(json.dumps(answers))
distributed.destroy_process_group()
"""


def test_sharded_parameters_are_refused_at_the_start(tmp_path):
    answers = run(tmp_path, SHARDED, processes=2)
    assert len(answers) == 2
    assert "sharded parameters (DTensor, FSDPSequential)" in answers[0]
    assert "sharded parameters (FullyShardedDataParallel)" in answers[1]


REFUSED = """
answers = {}
noise = GradientNoise(model, block_steps=1)
for name, words in {"no backward": (8,), "another number": ([8, 8],)}.items():
    if name == "another number":
        loss_of(model(x[:8]), y[:8]).backward()
    try:
        noise.step(*words)
    except ValueError as error:
        answers[name] = str(error)
for step in range(6):  # one part
    model.zero_grad()
    loss_of(model(x[:8]), y[:8]).backward()
    noise.step(8)
answers["one part"] = noise.estimate().reason
noise.close()
noise = GradientNoise(model, block_steps=1)
for step in range(6):
    model.zero_grad()
    for part in (slice(0, 8), slice(8, 16)):
        (loss_of(model(x[part]), y[part]) / 2).backward()
    for p in model.parameters():
        p.grad *= 8  # a batch that is 8 times too long
    noise.step(8)
answers["8 times"] = noise.estimate().reason
model.zero_grad()
(loss_of(model(x[:8]), y[:8]) * math.inf).backward()
(loss_of(model(x[:8]), y[:8]) * math.inf).backward()
noise.step(8)
answers["skipped"] = noise.skipped_steps
print(json.dumps(answers))
"""


def test_what_cannot_be_measured_is_said(tmp_path):
    answers = run(tmp_path, REFUSED)
    assert "no backward pass reached" in answers["no backward"]
    assert "1 passes were seen" in answers["another number"]
    assert "at least two parts" in answers["one part"]
    assert "not consistent" in answers["8 times"]
    assert answers["skipped"] == 1


def test_the_example_passes_its_self_test_and_resolves_the_noise_scale(tmp_path):
    folder = os.environ.get("BATCHSCALE_TRAINERS")
    if folder is None:
        pytest.skip("PyTorch is installed by `make test-torch`")
    example = Path(__file__).parents[2] / "examples/torch_noise_scale.py"
    environment = {**os.environ, "PYTHONPATH": str(FILE.parents[1])}
    done = subprocess.run(
        [f"{folder}/python", example], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert all("gradient noise scale: " in line and "95 % interval" in line for line in lines) and len(lines) == 2
