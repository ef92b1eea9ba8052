"""What must be known of a trainer's workload to check an experiment, and the checks that only a trainer needs."""

from batchscale.errors import SpecError
from batchscale.search.units import to_value
from batchscale.spec.experiment import Experiment
from batchscale.spec.goal import SPLITS
from batchscale.spec.plan import Plan, WorkloadInfo
from batchscale.spec.space import SearchSpace
from batchscale.spec.trainer import TRIAL_PLACEHOLDERS, ReportSource, check_trainer
from batchscale.study.trial import TrialTask
from batchscale.trainers.command import AttemptFiles, fill_values, make_document, render_command, require_program
from batchscale.trainers.readers import compile_pattern


def trainer_facts(experiment: Experiment) -> WorkloadInfo:
    """The facts of a workload that a script trains: what the file says, for nothing else is known of it.

    Raises:
        SpecError: the trainer's table names a placeholder, a program or a metric that is not there.
    """
    trainer, goal = experiment.trainer, experiment.goal
    assert trainer is not None
    spaces = (experiment.search.space, *experiment.search.per_batch_size.values())
    names = {*experiment.search.fixed, *(name for space in spaces for name in space.names)}
    clash = sorted(names & set(TRIAL_PLACEHOLDERS))
    if clash:
        raise SpecError(
            f"search: '{clash[0]}' is what every trial has anyway and no metaparameter. Choose another name."
        )
    check_trainer(trainer, names)
    if trainer.reports.source is ReportSource.PATTERN:
        found = compile_pattern(trainer.reports.text)[1]
        if goal.metric not in found:
            raise SpecError(
                f"trainer.reports.pattern must have the goal's metric, {{{goal.metric}}}. Found {', '.join(found)}."
            )
    require_program(trainer)
    metrics = dict.fromkeys(experiment.metrics or (), False) | {goal.metric_name: goal.maximize}
    return WorkloadInfo(
        name=experiment.workload.name,
        metrics=metrics,
        num_train_examples=trainer.num_train_examples,
        defaults=dict.fromkeys(sorted(names)),
        default_space=lambda _steps: SearchSpace(),
        splits=SPLITS,
    )


def show_command(plan: Plan) -> list[str]:
    """The words of the command that the first trial would be started with, at the middle of the search space."""
    trainer, study = plan.experiment.trainer, plan.studies[0]
    assert trainer is not None
    values = {config.name: to_value(config, 0.5) for config in study.space}
    task = TrialTask(1, {**study.fixed, **values}, study.seed, study.train_steps, -1)
    folder = trainer.folder / "…"
    files = AttemptFiles(folder, folder / "state")
    document = make_document(study, task, None, files, device=trainer.devices[0] if trainer.devices else None)
    return render_command(trainer, fill_values(document, files.document))
