"""Step times: what is timed is the steps told, warm, and it is written where planning reads it."""

import pytest

from batchscale.errors import PlanningError, RunError
from batchscale.planning.step_model import fit_step_model
from batchscale.planning.step_times import STEP_TIME_SCHEMA, append_step_times, read_step_times
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.calibration import Effort, time_steps
from batchscale.workloads.registry import get_workload


@pytest.fixture(scope="module")
def timings():
    """Steps at a small and at a large batch size."""
    workload = get_workload(WorkloadSpec(WorkloadName("digits", "fc_128_128_128", "sgd")), None)
    return [time_steps(workload, batch_size, Effort(4, 0.05)) for batch_size in (8, 512)]


def test_a_step_is_timed_so_often_and_so_long(timings):
    for timing in timings:
        assert len(timing.step_times_s) == 4 and all(seconds > 0 for seconds in timing.step_times_s)
        assert timing.steps_per_repetition >= 1 and timing.compile_s >= 0


def test_a_larger_batch_takes_longer(timings):
    """64 times the work: far more than a busy machine can hide in the least of several repetitions."""
    small, large = (min(timing.step_times_s) for timing in timings)
    assert large > small


def test_too_few_repetitions_are_refused():
    with pytest.raises(RunError, match="at least 3 times"):
        Effort(2, 1.0)


def row(**values):
    known = {
        "workload": "d/m/o",
        "device": "cpu",
        "hosts": 1,
        "devices_per_host": 1,
        "batch_size": 8,
        "step_time_s": 0.1,
    }
    return {**dict.fromkeys(STEP_TIME_SCHEMA), **known, **values}


def test_rows_are_added_to_the_file_and_read_by_planning(tmp_path):
    path = tmp_path / "steps.csv"
    append_step_times(path, [row()])
    append_step_times(path, [row(batch_size=16, step_time_s=0.15), row(batch_size=64, step_time_s=0.4)])
    times = read_step_times(path)
    assert [one.batch_size for one in times] == [8, 16, 64]
    assert fit_step_model(times).form.per_example


def test_a_file_with_other_columns_is_left_alone(tmp_path):
    path = tmp_path / "steps.csv"
    text = "device,hosts,devices_per_host,batch_size,step_time_s\ncpu,1,1,8,0.1\n"
    path.write_text(text)
    with pytest.raises(PlanningError, match="give another --out"):
        append_step_times(path, [row()])
    assert path.read_text() == text
