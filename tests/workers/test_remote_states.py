"""States of running trials at a remote path: kept, found by another worker, and never needed."""

from dataclasses import replace
from uuid import uuid4

import pytest
from study_fakes import fake_experiment, fake_setup

from batchscale.errors import RunError, StorageError
from batchscale.records.remote_store import RemoteStore
from batchscale.run.preflight import make_checked_plan
from batchscale.spec.experiment import RayPlan, RunPlan
from batchscale.spec.file import parse_experiment
from batchscale.spec.trainer import TrainerSpec
from batchscale.study.trial import TrialTask
from batchscale.workers.messages import Begin
from batchscale.workers.ray.setup import make_ray_setup
from batchscale.workers.remote_setup import MARKER, find_states_problem, remove_marker, write_marker
from batchscale.workers.runner import Setup
from batchscale.workers.training_engine import make_engine
from batchscale.workers.worker import Worker

QUADRATIC = """
goal = "val/loss < 1e-9"
batch_sizes = [4]
trials = 1
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
dataset_options = { dimension = 10 }
[budget]
steps = 40
[evaluation]
every = 10
examples = { train = 0, val = 1, test = 0 }
[search]
repeats = 0
[search.space]
learning_rate = { type = "DOUBLE", scale = "LOG_SCALE", min_value = 1e-2, max_value = 1.0 }
"""


@pytest.fixture
def url():
    """A remote path of this test alone, in memory."""
    return f"memory://states-{uuid4().hex}"


def remote_setup(url, **changes):
    experiment = fake_experiment(run=RunPlan(ray=RayPlan(checkpoints=url)), **changes)
    return replace(fake_setup(), experiment=experiment)


def test_a_worker_continues_from_the_state_of_another(url):
    experiment = parse_experiment(QUADRATIC)
    (study,) = make_checked_plan(experiment, None).studies
    setup = Setup(experiment, states_url=url)

    def task(until, from_step=-1):
        return TrialTask(1, {"learning_rate": 0.1}, 5, until, from_step)

    (whole,) = make_engine(Setup(experiment), study, None).advance([task(40)], lambda: False, None)
    first = make_engine(setup, study, None)
    first.advance([task(20)], lambda: False, None)
    first.save(1)
    second = make_engine(setup, study, None)
    (rest,) = second.advance([task(40, from_step=20)], lambda: False, None)
    assert rest.rows == whole.rows[3:]
    assert rest.timing["num_steps"] == 20, "the first twenty steps were not trained again"
    assert RemoteStore(url).get("4/1.npz")
    second.discard(1)
    assert RemoteStore(url).get("4/1.npz") is None


def test_the_driver_shows_itself_at_the_path_before_anything_starts(url):
    ray_setup = make_ray_setup(remote_setup(url))
    ray_setup.write_markers()
    assert ray_setup.marker is None
    assert find_states_problem(url, ray_setup.secret) == ""
    begin = ray_setup.begin("w", sees_marker=False, node_workers=1)
    assert (begin.setup.states_url, begin.remote.secret) == (url, ray_setup.secret)
    ray_setup.remove_markers()
    assert RemoteStore(url).get(MARKER) is None


def test_a_path_that_cannot_be_written_is_an_error_of_the_driver():
    with pytest.raises(StorageError, match="nosuchprotocol://x"):
        make_ray_setup(remote_setup("nosuchprotocol://x")).write_markers()


def test_a_script_keeps_its_own_states(url):
    with pytest.raises(RunError, match=r"run\.ray\.checkpoints .*\[trainer\]"):
        make_ray_setup(remote_setup(url, trainer=TrainerSpec(("python3",))))


@pytest.mark.parametrize("mark", ["right", "another run's", "none"])
def test_a_worker_that_reaches_another_path_reports_it_and_holds_states_in_memory(url, mark):
    ray_setup = make_ray_setup(remote_setup(url))
    if mark != "none":
        write_marker(url, ray_setup.secret if mark == "right" else "x")
    begin = ray_setup.begin("w", sees_marker=False, node_workers=1)
    begin, problem = Worker(None)._verify(Begin(begin.setup, "w", begin.remote))
    remove_marker(url)
    assert bool(problem) == (mark != "right")
    assert begin.setup.states_url == (url if mark == "right" else None)
