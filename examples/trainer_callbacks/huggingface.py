"""A callback that lets batchscale measure a ``transformers.Trainer``: add it, and set what `make_arguments` sets.

``trainer = Trainer(args=make_arguments(run, micro_batch=16), callbacks=[BatchscaleCallback(run, names)], …)``, then
``train(trainer, run)``.
"""

import os
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from batchscale import trial


class BatchscaleCallback(TrainerCallback):
    """Evaluates where a measurement is due, reports it, and ends or pauses the training when batchscale says so."""

    def __init__(self, run: trial.Run, names: dict[str, str]) -> None:
        """``names`` maps what evaluation reports to metrics of batchscale: ``{"eval_loss": "val/loss"}``."""
        self._run, self._names = run, names

    def on_train_begin(self, args, state, control, **_):
        """Refuse a step of another size than the one that is recorded."""
        size = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        if size != self._run.batch_size:
            raise ValueError(f"A step must train {self._run.batch_size} examples. The arguments give {size} "
                             f"({args.train_batch_size} per process, {args.gradient_accumulation_steps} accumulated, "
                             f"{args.world_size} process(es)): use make_arguments(run, micro_batch=…).")  # fmt: skip

    def on_step_end(self, args, state, control, **_):
        self._run.step = state.global_step
        control.should_evaluate = self._run.due(state.global_step)
        if not control.should_evaluate and not self._run.goes_on():
            control.should_training_stop = control.should_save = True

    def on_evaluate(self, args, state, control, metrics, **_):
        if self._run.due(state.global_step):
            self._run.report(state.global_step, {ours: metrics[theirs] for theirs, ours in self._names.items()})
            if not self._run.goes_on():
                control.should_training_stop = control.should_save = True


def make_arguments(run: trial.Run, micro_batch: int | None = None, **more) -> TrainingArguments:
    """Arguments for steps of ``run.batch_size`` examples, of which at most ``micro_batch`` are on a device at once."""
    world = int(os.environ.get("WORLD_SIZE", "1"))  # of torchrun; without it, one process uses all GPUs
    devices = world if world > 1 or more.get("use_cpu") else max(1, torch.cuda.device_count())
    parts = run.accumulate(micro_batch or run.batch_size, even=True, processes=devices)
    values = {"output_dir": run.document.get("checkpoint", "dry_run"), "max_steps": run.max_steps, "seed": run.seed,
              "per_device_train_batch_size": parts.micro_batch, "gradient_accumulation_steps": parts.steps,
              "learning_rate": run["learning_rate"], "eval_strategy": "no", "save_strategy": "no",
              "save_total_limit": 1, "report_to": [], "disable_tqdm": True}  # fmt: skip
    return TrainingArguments(**{**values, **more})


def train(trainer: Trainer, run: trial.Run) -> None:
    """Train from the newest checkpoint of this trial, if there is one."""
    saves = Path(trainer.args.output_dir).glob("checkpoint-*") if run.document.get("resume") else ()
    newest = max(saves, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
