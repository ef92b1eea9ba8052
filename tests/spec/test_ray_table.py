"""``[run.ray]``: what a worker takes of its node."""

import pytest

from batchscale.errors import SpecError
from batchscale.spec.experiment import RayPlan
from batchscale.spec.file import parse_experiment

TOP = 'goal = "val/loss < 1"\nworkload = "d/m/o"\n'
TRAINER = """[trainer]
command = ["x", "{learning_rate}"]
[search.space]
learning_rate = { min_value = 1, max_value = 2 }
"""


def test_what_is_left_out_is_settled_when_the_cluster_is_seen():
    assert parse_experiment(TOP).run.ray == RayPlan(None, None, {})


def test_whole_numbers_and_fractions_are_amounts():
    found = parse_experiment(f"{TOP}[run.ray]\nnum_cpus = 4\nnum_gpus = 0.5\nresources = {{ TPU = 4 }}\n").run.ray
    assert found == RayPlan(4.0, 0.5, {"TPU": 4.0})


def test_a_script_may_say_where_it_is_trained_but_not_on_how_many_devices():
    assert parse_experiment(f"{TOP}{TRAINER}[run.ray]\nnum_gpus = 1\n").run.ray.num_gpus == 1.0
    with pytest.raises(SpecError, match=r"run\.devices_per_trial.* our own engine"):
        parse_experiment(f"{TOP}{TRAINER}[run]\ndevices_per_trial = 2\n")


@pytest.mark.parametrize("line", ["num_gpus = -1", "num_cpus = inf", "resources = { TPU = 0 }", "cpus = 1"])
def test_what_makes_no_sense_is_refused(line):
    with pytest.raises(SpecError, match=r"run\.ray"):
        parse_experiment(f"{TOP}[run.ray]\n{line}\n")


def test_states_and_data_may_have_places_of_their_own():
    assert parse_experiment(f'{TOP}[run.ray]\ncheckpoints = "s3://b/x"\n').run.ray.checkpoints == "s3://b/x"
    with pytest.raises(SpecError, match=r"run\.ray\.checkpoints must be a remote path"):
        parse_experiment(f'{TOP}[run.ray]\ncheckpoints = "/shared/states"\n')


@pytest.mark.parametrize(
    ("lines", "advice"),
    [
        ('[run.ray]\ndata_from = "/shared/mnist.tar"\n', "'run.ray.data_from' was removed.*--data-dir"),
        ("[run]\nhosts_per_trial = 2\n", "'run.hosts_per_trial' was removed.*--runner ray or --runner slurm"),
        ('[run]\nhosts_per_trial = "all"\n', "'run.hosts_per_trial' was removed"),
    ],
)
def test_a_removed_key_is_named_with_what_to_use_instead(lines, advice):
    with pytest.raises(SpecError, match=advice):
        parse_experiment(f"{TOP}{lines}")
