"""Make the runner of a run from its settings, its experiment file and its cluster."""

import json
import os
import signal
from pathlib import Path

from batchscale.errors import RunError
from batchscale.records.tree.layout import RunPaths
from batchscale.run.settings import RunSettings
from batchscale.run.signals import StopFlag
from batchscale.spec.plan import Plan
from batchscale.study.study import StudyRun
from batchscale.workers.environment import check_devices, computing_like_a_worker, default_workers, memory_limit
from batchscale.workers.fork_server import TRAINING_ENGINE
from batchscale.workers.inline import InlineRunner, load_later
from batchscale.workers.local import LocalRunner, LocalSettings
from batchscale.workers.multihost.runner import chief_host_maker, follow_chief
from batchscale.workers.ray.address import AUTO
from batchscale.workers.ray.runner import RayRunner, RaySettings, check_ray
from batchscale.workers.runner import TRAINER_ENGINE, Runner, Setup, trainer_options
from batchscale.workers.slurm.runner import SlurmRunner, SlurmSettings

_ROUND = "round"


def make_runner(runs: list[StudyRun], plan: Plan, root: Path, settings: RunSettings, flag: StopFlag) -> Runner:
    """Return the runner that trains these studies; no worker is started if they are all done."""
    paths, experiment = RunPaths(root), plan.experiment
    requested = settings.workers or (None if experiment.trainer is None else experiment.trainer.workers)
    workers = requested or default_workers(num_devices(plan, settings))
    setup = _make_setup(plan, paths, settings, workers)
    if settings.hosts is not None:
        return InlineRunner(setup, lambda: flag.is_set, chief_host_maker(settings.hosts, lambda: _stop_soon(flag)))
    if all(run.done for run in runs):  # nothing is trained: the engine takes seconds to load
        return InlineRunner(setup, lambda: flag.is_set, load_later)
    if settings.make_runner is not None:
        return settings.make_runner(setup)
    if settings.runner == "inline":
        return InlineRunner(setup, lambda: flag.is_set)
    if settings.runner == "ray":
        return RayRunner(setup, RaySettings(settings.ray_address or AUTO, requested))
    if settings.runner == "slurm":
        folder, logs = paths.exchange.resolve(), paths.logs.resolve()
        return SlurmRunner(setup, SlurmSettings(workers, folder, logs, experiment.run.slurm))
    return LocalRunner(setup, LocalSettings(workers, paths.logs, memory_limit(workers), settings.fork_server))


def _make_setup(plan: Plan, paths: RunPaths, settings: RunSettings, workers: int) -> Setup:
    engine, options = settings.engine, settings.engine_options
    if plan.experiment.trainer is not None and engine == TRAINING_ENGINE:
        # a job of SLURM has its share of a node to itself, and the environment there
        share = {"workers": "1"} if settings.runner == "slurm" else trainer_options(os.environ, workers)
        share["passed"] = json.dumps({name: os.environ[name] for name in plan.experiment.trainer.pass_env})
        engine, options = TRAINER_ENGINE, share | options
    return Setup(
        plan.experiment,
        settings.data_dir,
        paths.checkpoints.resolve(),
        engine,
        int(settings.keep_states_gb * 1e9 / len(plan.studies)),
        options,
        num_devices(plan, settings),
    )


def num_devices(plan: Plan, settings: RunSettings) -> int:
    """Return how many devices train a trial together, on the machines of the workers."""
    requested, slurm = plan.experiment.run.devices_per_trial, plan.experiment.run.slurm
    if settings.runner == "ray":
        return check_ray(plan.experiment)
    if settings.runner != "slurm":
        return check_devices(requested, settings.workers)
    if settings.workers is None:
        raise RunError("--runner slurm needs --workers, the number of jobs in the queue. Found none; give a number.")
    available = slurm.num_gpus or slurm.cpus or 1
    if requested is not None and requested > available:
        raise RunError(
            f"run.devices_per_trial is at most what a worker requests from SLURM. Found {requested} of {available}; "
            "request more gpus (or cpus), or for 'all'."
        )
    return requested or available


def _stop_soon(flag: StopFlag) -> None:
    """Stop this host too, because another host of the cluster stops."""
    if not flag.is_set:
        flag.set(signal.SIGTERM)


def announce_round(settings: RunSettings, is_there: bool) -> None:
    """Let the other hosts of a cluster, if there are any, follow one more round of an adaptive experiment, or end."""
    if settings.hosts is not None:
        settings.hosts.share(_ROUND, b"next" if is_there else b"")


def follow_run(plan: Plan, settings: RunSettings, flag: StopFlag) -> None:
    """Train the chief's trials together with it, as another host of its cluster; nothing is written here."""
    assert settings.hosts is not None
    devices = check_devices(plan.experiment.run.devices_per_trial)
    setup = Setup(plan.experiment, settings.data_dir, num_devices=devices)
    with computing_like_a_worker(devices):  # as the chief does: each host updates its own copy of a state
        follow_chief(settings.hosts, setup, lambda: flag.is_set)
        while plan.experiment.adaptive is not None and settings.hosts.share(_ROUND, b""):
            follow_chief(settings.hosts, setup, lambda: flag.is_set)
