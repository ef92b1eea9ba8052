"""Gradient accumulation in the libraries of docs/trainers.md: accumulated = full batch, another size is refused.

Scripts are dry runs with the libraries of `make test-torch`; each prints one loss per measurement.
"""

import os
import subprocess
from pathlib import Path

import pytest

import batchscale

CALLBACKS = Path(__file__).parents[2] / "examples/trainer_callbacks"
SOURCE = str(Path(batchscale.__file__).parents[1])
HEAD = """
import sys
import torch
from batchscale import trial
from torch.utils.data import DataLoader, TensorDataset
micro_batch = int(sys.argv[1])
run = trial.start(learning_rate=0.1, batch_size=24, max_steps=6, every=2)
torch.manual_seed(run.seed)
torch.set_default_dtype(torch.float64)
x = torch.randn(480, 5)
y = (x.sum(1, keepdim=True) > 0).to(x.dtype)
model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
optimizer = torch.optim.SGD(model.parameters(), run["learning_rate"], momentum=0.9)
loss_of = torch.nn.functional.mse_loss
def evaluate():
    with torch.no_grad():
        return {"val/loss": float(loss_of(model(x), y))}
"""
PYTORCH = """
parts = run.accumulate(micro_batch)
for step, (inputs, targets) in run.steps(DataLoader(TensorDataset(x, y), run.batch_size)):
    optimizer.zero_grad()
    for part, scale in parts.parts(len(targets)):
        (scale * loss_of(model(inputs[part]), targets[part])).backward()
    optimizer.step()
    if run.due(step):
        run.report(step, evaluate())
"""
ACCELERATE = """
from accelerate import Accelerator
parts = run.accumulate(micro_batch, even=True)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=parts.steps)
loader = DataLoader(TensorDataset(x, y), parts.micro_batch)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
micro_batches = iter(loader)
for step, _ in run.steps(lambda step: None):
    for _ in range(parts.steps):
        inputs, targets = next(micro_batches)
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
    if run.due(step):
        run.report(step, evaluate())
"""
LIGHTNING = """
import lightning
from lightning_callback import BatchscaleCallback, fit
class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, _):
        return loss_of(self.model(batch[0]), batch[1])
    def validation_step(self, batch, _):
        return {"loss": loss_of(self.model(batch[0]), batch[1])}
    def configure_optimizers(self):
        return optimizer
parts = run.accumulate(micro_batch, even=True)
trainer = lightning.Trainer(
    max_steps=run.max_steps, accumulate_grad_batches=parts.steps + int(sys.argv[2]), accelerator="cpu", devices=1,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[BatchscaleCallback(run, {"loss": "val/loss"}, [(x, y)])])
fit(trainer, Module(), DataLoader(TensorDataset(x, y), parts.micro_batch), run)
"""
HUGGINGFACE = """
from huggingface import BatchscaleCallback, make_arguments, train
from transformers import Trainer
class Wrapped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model
    def forward(self, inputs, labels):
        outputs = self.model(inputs)
        return {"loss": loss_of(outputs, labels), "logits": outputs}
arguments = make_arguments(run, micro_batch, use_cpu=True, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0)
arguments.gradient_accumulation_steps += int(sys.argv[2])
rows = [{"inputs": a, "labels": b} for a, b in zip(x, y)]
trainer = Trainer(model=Wrapped(), args=arguments, train_dataset=rows, eval_dataset=rows,
    callbacks=[BatchscaleCallback(run, {"eval_loss": "val/loss"})])
train(trainer, run)
"""
SCRIPTS = {"pytorch": PYTORCH, "accelerate": ACCELERATE, "lightning": LIGHTNING, "huggingface": HUGGINGFACE}

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


def run_script(tmp_path, name: str, micro_batch: int, more: int = 0) -> subprocess.CompletedProcess:
    folder = os.environ.get("BATCHSCALE_TRAINERS")
    if folder is None:
        pytest.skip("the libraries of the examples are installed by `make test-torch`")
    (tmp_path / "train.py").write_text(HEAD + SCRIPTS[name])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((SOURCE, str(CALLBACKS)))}
    command = [f"{folder}/python", "train.py", str(micro_batch), str(more)]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)


@pytest.mark.parametrize("name", SCRIPTS)
def test_accumulated_steps_give_the_losses_of_full_batches(tmp_path, name):
    """Also with parts of uneven size where the library allows it; batch size 24, parts of at most 7."""
    answers = [run_script(tmp_path, name, micro_batch) for micro_batch in (24, 7)]
    assert [answer.returncode for answer in answers] == [0, 0], answers[0].stderr + answers[1].stderr
    full, parts = ([line for line in answer.stdout.splitlines() if line.startswith("step ")] for answer in answers)
    assert [line.split()[1] for line in full] == ["2", "4", "6"]
    for line, other in zip(full, parts, strict=True):  # float64, printed with six digits
        assert float(line.rpartition("=")[2]) == pytest.approx(float(other.rpartition("=")[2]), rel=2e-6)


@pytest.mark.parametrize("name", ["lightning", "huggingface"])
def test_a_step_of_another_size_is_refused(tmp_path, name):
    answer = run_script(tmp_path, name, 8, more=1)
    assert answer.returncode != 0
    assert "must train 24 examples" in answer.stderr and "32" in answer.stderr
