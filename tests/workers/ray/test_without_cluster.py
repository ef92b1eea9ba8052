"""What the Ray runner decides before and beside a cluster; needs no Ray."""

import asyncio
import importlib.util
import platform
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from study_fakes import fake_experiment, fake_setup
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import RunError
from batchscale.machine import name_host
from batchscale.spec.experiment import RayPlan, RunPlan
from batchscale.spec.trainer import TrainerSpec
from batchscale.study.failure import Failure
from batchscale.workers.messages import Stop, encode_instruction
from batchscale.workers.process_runner import ProcessRunner
from batchscale.workers.ray import runner as runner_module
from batchscale.workers.ray.actor import WorkerActor
from batchscale.workers.ray.handle import RayWorker, Stage, check_messages, check_node, find_version_problem, free_place
from batchscale.workers.ray.pool import Demand, Node, RayWorkerPool, choose_demand, read_nodes
from batchscale.workers.ray.runner import RayRunner, check_ray
from batchscale.workers.ray.setup import make_ray_setup
from batchscale.workers.runner import LossReason, WorkerInfo

NODE = {"node": "a1", "host": "n1", "version": "0.0", "sees_marker": True, "pid": 7}


def described(node_id: str, alive: bool = True, **resources: float) -> dict:
    return {"NodeID": node_id, "NodeManagerHostname": f"host-{node_id}", "Alive": alive, "Resources": resources}


def test_dead_nodes_do_not_count():
    nodes = read_nodes([described("a", CPU=4.0), described("b", alive=False, CPU=8.0)])
    assert list(nodes) == ["a"]
    assert nodes["a"].host == "host-a"


@pytest.mark.parametrize(
    ("demand", "workers"),
    [
        (Demand(), 8),
        (Demand(num_cpus=3), 2),
        (Demand(num_cpus=1, num_gpus=1), 2),
        (Demand(num_cpus=0, num_gpus=0.5), 4),
        (Demand(num_cpus=0.1), 80),
        (Demand(resources={"TPU": 4.0}), 1),
        (Demand(resources={"other": 1.0}), 0),
        (Demand(num_cpus=0), 1),
    ],
)
def test_a_node_holds_as_many_workers_as_the_scarcest_resource_allows(demand, workers):
    assert Node("a", "n", {"CPU": 8.0, "GPU": 2.0, "TPU": 4.0}).capacity(demand) == workers


@pytest.mark.parametrize(
    ("plan", "devices", "gpus", "expected"),
    [
        (RayPlan(), 1, 0, Demand(1.0, 0.0)),
        (RayPlan(), 4, 0, Demand(4.0, 0.0)),
        (RayPlan(), 2, 8, Demand(1.0, 2.0)),
        (RayPlan(num_gpus=0.5), 1, 8, Demand(1.0, 0.5)),
        (RayPlan(num_gpus=0.0), 2, 8, Demand(2.0, 0.0)),
        (RayPlan(num_cpus=3.0), 1, 0, Demand(3.0, 0.0)),
        (RayPlan(resources={"TPU": 4.0}), 4, 0, Demand(1.0, 0.0, {"TPU": 4.0})),
    ],
)
def test_the_demand_is_that_of_the_file_or_a_device_each(plan, devices, gpus, expected):
    nodes = read_nodes([described("a", CPU=8.0), described("b", CPU=8.0, GPU=float(gpus))])
    assert choose_demand(plan, devices, nodes) == expected


def test_places_of_a_node_are_used_again():
    workers = [RayWorker(WorkerInfo(str(place)), None, node="a", place=place) for place in (0, 2)]
    assert free_place(workers, "a") == 1
    assert free_place(workers, "b") == 0


def test_a_worker_that_waits_for_a_place_is_given_up_when_the_run_stops():
    """It would begin after all others were sent to stop, and the run would wait for its states in vain."""
    killed, sent = [], []
    ray = SimpleNamespace(kill=killed.append, exceptions=SimpleNamespace(RayError=RuntimeError))
    runner, pool = object.__new__(RayRunner), object.__new__(RayWorkerPool)
    ProcessRunner.__init__(runner)
    send = SimpleNamespace(remote=lambda number, message: sent.append((number, message)))
    waiting, placed = RayWorker(WorkerInfo("0"), "its actor"), RayWorker(WorkerInfo("1"), SimpleNamespace(send=send))
    placed.stage, placed.sent = Stage.STARTING, 1
    runner._workers.update({"0": waiting, "1": placed})
    pool.workers, pool.calls, pool._ray = runner._workers, {"look": waiting, "begin": placed}, ray
    runner._pool = pool
    runner.stop()
    runner.stop()
    assert (killed, pool.calls) == (["its actor"], {"begin": placed})
    assert sent == [(1, encode_instruction(Stop()))]
    assert list(runner._workers) == ["1"]


def test_a_worker_that_does_not_see_the_marker_stores_no_states(tmp_path):
    ray_setup = make_ray_setup(replace(fake_setup(), checkpoint_dir=tmp_path / "states", options={"environment": "{}"}))
    ray_setup.write_markers()
    assert ray_setup.marker.read_text() == ray_setup.secret
    assert ray_setup.begin("w", sees_marker=True, node_workers=2).setup.checkpoint_dir == tmp_path / "states"
    assert ray_setup.begin("w", sees_marker=False, node_workers=2).setup.checkpoint_dir is None
    assert ray_setup.begin("w", sees_marker=True, node_workers=2).setup.options == {}
    ray_setup.remove_markers()
    ray_setup.remove_markers()
    assert not ray_setup.marker.exists()


def test_scripts_share_the_memory_of_their_own_node():
    setup = replace(fake_setup(), experiment=fake_experiment(trainer=TrainerSpec(("python3",))))
    assert make_ray_setup(setup).begin("w", sees_marker=False, node_workers=3).setup.options["workers"] == "3"


def test_another_version_on_a_node_is_a_problem(monkeypatch):
    monkeypatch.setattr("batchscale.workers.ray.handle.__version__", "1.0")
    assert find_version_problem({**NODE, "version": "1.0"}) is None
    assert "Node n1 cannot train" in find_version_problem({**NODE, "version": "0.9"})
    assert "Found none: install" in find_version_problem({**NODE, "version": ""})


def test_answers_of_other_machines_are_checked():
    assert check_node(NODE) == NODE
    assert check_messages(([b"x"], None)) == ([b"x"], None)
    assert check_messages(([], ("It ended.", ("a", "b")))) == ([], Failure("It ended.", ("a", "b")))
    for wrong in (None, [], {**NODE, "pid": "7"}, {**NODE, "more": 1}, {"node": "a"}, {**NODE, "sees_marker": 1}):
        with pytest.raises(RunError, match="same there"):
            check_node(wrong)
    ends = (3, "ended", ("ended",), ("ended", "a"), ("ended", (1,)), (1, ()))
    for wrong in (None, [], ([b"x"],), (["x"], None), ((b"x",), None), *(([b"x"], end) for end in ends)):
        with pytest.raises(RunError, match="same there"):
            check_messages(wrong)


def test_all_devices_of_a_node_are_no_number(monkeypatch):
    monkeypatch.setattr(runner_module, "require_ray", lambda: None)
    with pytest.raises(RunError, match="devices_per_trial = 'all'; give the number"):
        check_ray(fake_experiment(run=RunPlan(devices_per_trial=None)))


def test_without_the_library_the_error_names_what_to_install(monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ray" else found(name))
    file = tmp_path / "e.toml"
    file.write_text('goal = "val/classification_error < 0.1"\nworkload = "digits/fc_64/sgd"\n')
    result = CliRunner().invoke(make_app(), ["run", str(file), "--out", str(tmp_path / "out"), "--runner", "ray"])
    text = str(result.exception) + result.output
    assert result.exit_code != 0
    assert "pip install 'batchscale[ray]'" in text
    assert not (tmp_path / "out").exists()


def test_a_node_has_the_name_that_its_workers_say(monkeypatch):
    context = SimpleNamespace(get_node_id=lambda: "a1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get_runtime_context=lambda: context))
    monkeypatch.setattr(platform, "node", lambda: "as-others-say")

    async def describe():
        return await WorkerActor().describe_node(None, "")

    assert asyncio.run(describe())["host"] == name_host() == "as-others-say"


def test_the_actor_can_be_sent_to_a_node_that_has_nothing():
    source = Path(runner_module.__file__).with_name("actor.py").read_text()
    lines = [line for line in source.splitlines() if line.startswith(("import ", "from "))]
    assert lines
    assert not any("batchscale" in line or "ray" in line for line in lines)


def test_an_answer_that_is_lost_with_its_node_is_the_loss_of_the_worker():
    kinds = ("RayActorError", "ObjectLostError", "RayTaskError", "RuntimeEnvSetupError")
    exceptions = SimpleNamespace(**{name: type(name, (Exception,), {}) for name in kinds})

    def get(_reference):
        raise exceptions.ObjectLostError("The object cannot be reconstructed")

    runner, worker, lost = object.__new__(RayRunner), RayWorker(WorkerInfo("w"), None), []
    runner._ray, runner._stopping = SimpleNamespace(exceptions=exceptions, get=get), False
    runner._pool = SimpleNamespace(lose=lambda *words, stopping: lost.append((*words, stopping)) or [])
    assert runner._handle_answer(worker, None) == []
    assert lost == [(worker, LossReason.PREEMPTED, Failure("The object cannot be reconstructed"), False)]
