"""A callback that lets batchscale measure a ``transformers.Trainer``: add it, and set what `make_arguments` sets.

``trainer = Trainer(args=make_arguments(run), callbacks=[BatchscaleCallback(run, names)], …)``, then
``train(trainer, run)``.
"""

from pathlib import Path

from transformers import Trainer, TrainerCallback, TrainingArguments

from batchscale import trial


class BatchscaleCallback(TrainerCallback):
    """Evaluates where a measurement is due, reports it, and ends or pauses the training when batchscale says so."""

    def __init__(self, run: trial.Run, names: dict[str, str]) -> None:
        """``names`` maps what evaluation reports to metrics of batchscale: ``{"eval_loss": "val/loss"}``."""
        self._run, self._names = run, names

    def on_step_end(self, args, state, control, **_):
        self._run.step = state.global_step
        control.should_evaluate = self._run.due(state.global_step)
        if not control.should_evaluate and not self._run.goes_on():
            control.should_training_stop = control.should_save = True
        return control

    def on_evaluate(self, args, state, control, metrics, **_):
        if self._run.due(state.global_step):
            self._run.report(state.global_step, {ours: metrics[theirs] for theirs, ours in self._names.items()})
            if not self._run.goes_on():
                control.should_training_stop = control.should_save = True
        return control


def make_arguments(run: trial.Run, **more) -> TrainingArguments:
    """Arguments under which a trial is what batchscale asked for; the callback says when to evaluate and to save."""
    return TrainingArguments(
        output_dir=run.document.get("checkpoint", "dry_run"),
        max_steps=run.max_steps,
        per_device_train_batch_size=run.batch_size,
        learning_rate=run["learning_rate"],
        seed=run.seed,
        eval_strategy="no",
        save_strategy="no",
        save_total_limit=1,
        report_to=[],
        disable_tqdm=True,
        **more,
    )


def train(trainer: Trainer, run: trial.Run) -> None:
    """Train from the newest checkpoint of this trial, if there is one."""
    saves = Path(trainer.args.output_dir).glob("checkpoint-*") if run.document.get("resume") else ()
    newest = max(saves, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
    trainer.train(resume_from_checkpoint=None if newest is None else str(newest))
