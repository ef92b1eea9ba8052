"""Estimated step times: the least time by hand, memory by hand, and intervals that measurements narrow."""

import math
from dataclasses import replace

import numpy as np
import pytest

from batchscale.errors import PlanningError
from batchscale.planning.accelerators import (
    Accelerator,
)
from batchscale.planning.assemble import PlanInputs, assemble_plan
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.efficiency import (
    LEAST_VARIANCE,
    Slowdown,
    Variances,
    precise_device,
    predict_efficiency,
    public_results,
)
from batchscale.planning.estimate import OWN, EstimateInputs, make_estimates
from batchscale.planning.language_model import LanguageModel
from batchscale.planning.machines import Machine
from batchscale.planning.memory import USABLE, MemoryNeed, Sharding, smallest_number
from batchscale.planning.roofline import least_times
from batchscale.planning.step_form import Layout
from batchscale.planning.step_times import StepTime
from batchscale.planning.work import StepWork

DEVICE = Accelerator("X", {"bfloat16": 1e14}, 80e9, 1e12, "ring", 1e11, False, 1e10)
WORK = StepWork("other", "bfloat16", 1e12, 1e9, 5e8)
GPT2 = {"layers": 12, "width": 768, "heads": 12, "sequence_length": 1024, "vocabulary": 50257}


def at(hosts, devices, share):
    return Layout(*(np.array([float(value)]) for value in (hosts, devices, share)))


def least(work, device=DEVICE, layout=None, overlap=0.0):
    return float(least_times(work, device, layout or at(1, 1, 8), overlap).seconds[0])


def test_a_step_takes_the_longer_of_arithmetic_and_memory():
    assert least(WORK) == pytest.approx(8e12 / 1e14)
    assert least(replace(WORK, bytes_per_example=2e10)) == pytest.approx(16e10 / 1e12)
    assert least(replace(WORK, bytes_per_update=1e11)) == pytest.approx(8e12 / 1e14 + 0.1)


def test_rings_exchange_gradients_within_and_between_hosts():
    gradients = 2 * 5e8
    within = 2 * 3 / 4 * gradients / 1e11
    between = 2 * 1 / 2 * gradients / 1e10
    alone = least(WORK)
    assert least(WORK, layout=at(1, 4, 8)) == pytest.approx(alone + within)
    assert least(WORK, layout=at(2, 8, 8)) == pytest.approx(alone + within + between)
    slice_ = replace(DEVICE, link_joins_hosts=True)
    assert least(WORK, slice_, at(2, 8, 8)) == pytest.approx(alone + 2 * 7 / 8 * gradients / 1e11)


@pytest.mark.parametrize("overlap", [0.0, 0.3, 1.0])
def test_overlap_runs_from_the_sum_to_the_maximum(overlap):
    alone, exchange = least(WORK), 2 * 1 / 2 * 2 * 5e8 / 1e10
    expected = alone + exchange - overlap * min(alone, exchange)
    no_link = replace(DEVICE, link_bytes_per_s=math.inf)
    assert least(WORK, no_link, at(2, 2, 8), overlap) == pytest.approx(expected)


def test_unknown_links_leave_one_device_and_one_host():
    bare = replace(DEVICE, link_bytes_per_s=None, network_bytes_per_s=None)
    assert math.isfinite(least(WORK, bare))
    assert math.isnan(least(WORK, bare, at(1, 2, 8)))


def test_sharding_divides_what_it_names():
    need = MemoryNeed(weights=2.0, gradients=3.0, optimizer=12.0, activations=1.0)
    bytes_of = {level: float(need.state(level, np.array([4.0]))[0]) for level in Sharding}
    assert bytes_of == {"none": 17.0, "optimizer": 8.0, "gradients": 5.75, "parameters": 4.25}


def test_the_smallest_number_is_the_first_that_holds_the_state_and_one_example():
    need = MemoryNeed(20e9, 20e9, 120e9, 5e9, recomputed=1e9)
    number = smallest_number(need, 80e9)
    assert number == math.ceil(160e9 / (USABLE * 80e9 - 1e9))
    assert smallest_number(replace(need, recomputed=90e9, activations=90e9), 80e9) is None


def test_accumulation_and_recomputation_follow_from_memory():
    need = MemoryNeed(1e9, 1e9, 6e9, activations=16e9, recomputed=1e9)
    roomy = least_times(replace(WORK, memory=need), DEVICE, at(1, 1, 8), 0.0)
    assert (roomy.passes[0], roomy.recompute[0], roomy.sharding[0]) == (2, False, "none")  # (72 - 8) / 16 = 4 at once
    tight = least_times(replace(WORK, memory=need), replace(DEVICE, memory_bytes=20e9), at(1, 1, 8), 0.0)
    assert (tight.passes[0], tight.recompute[0]) == (1, True)
    assert tight.seconds[0] == pytest.approx(4 / 3 * roomy.seconds[0])


def test_the_shape_of_gpt_2_gives_its_parameters_and_operations():
    model = LanguageModel.model_validate(GPT2)
    assert model.count == pytest.approx(124.4e6, rel=0.01)  # 124,439,808 with positions, biases and norms
    attention = 12 * 12 * 768 * 1024
    assert model.work().flops_per_example == pytest.approx(1024 * (6 * model.count + attention))
    assert model.memory().state(Sharding.NONE, np.ones(1))[0] == pytest.approx(16 * model.count)


def test_the_curve_of_tokens_follows_the_critical_batch_size():
    model = LanguageModel.model_validate({**GPT2, "tokens": 1e9, "critical_batch_tokens": 2.0**20})
    for point in model.curve().points:
        tokens = point.batch_size * 1024
        assert point.steps * tokens == pytest.approx(1e9 * (1 + tokens / 2**20))
        assert point.source == "predicted"


def conditional(variances, results, target):
    """The mean and variance of a joint normal with a very wide common mean: a second way to the kriging formulas."""
    everyone = [*results, target]
    joint = variances.covariance(everyone, everyone) + 1e6
    joint += (variances.single + LEAST_VARIANCE) * np.eye(len(everyone))
    inner, cross = joint[:-1, :-1], joint[-1, :-1]
    solved = np.linalg.solve(inner, cross)
    return solved @ np.array([r.value for r in results]), joint[-1, -1] - solved @ cross


def test_an_efficiency_is_the_conditional_mean_of_a_joint_normal():
    from scipy.special import stdtrit

    variances = Variances(0.1, 0.03, 0.02, 0.01)
    names = (("a", "x", 0.5), ("a", "y", 0.9), ("b", "x", 0.7), ("c", "y", 1.4))
    public = [Slowdown("other", workload, device, value) for workload, device, value in names]
    measured = [Slowdown("other", "mine", "x", 1.1)]
    mean, variance = conditional(variances, [*public, *measured], Slowdown("other", "mine", "y", 0.0))
    efficiency = predict_efficiency("other", "mine", "y", measured, public, variances)
    assert math.log(efficiency.factor) == pytest.approx(mean, abs=1e-4)
    assert efficiency.half_width == pytest.approx(stdtrit(3, 0.95) * math.sqrt(variance), rel=1e-4)


def test_a_measurement_moves_and_narrows_the_estimate_most_on_its_own_device():
    h100, a100 = precise_device("H100 SXM", "bfloat16"), precise_device("A100 40GB", "bfloat16")
    slow = Slowdown("language", OWN, a100, math.log(5.0))
    before = predict_efficiency("language", OWN, h100)
    elsewhere = predict_efficiency("language", OWN, h100, [slow])
    same = predict_efficiency("language", OWN, a100, [slow])
    assert before.factor < elsewhere.factor < 8.0
    assert same.factor == pytest.approx(5.0, rel=0.1)
    assert before.half_width > elsewhere.half_width > same.half_width


def test_the_interval_of_language_models_covers_public_results_left_out():
    """Each workload is predicted by the others: 90 % intervals that cover between 75 and 100 % of 21 results."""
    results = [result.slowdown for result in public_results() if result.slowdown.kind == "language"]
    inside = 0
    for result in results:
        rest = [other for other in results if other.workload != result.workload]
        efficiency = predict_efficiency(result.kind, result.workload, result.device, public=rest)
        inside += abs(result.value - math.log(efficiency.factor)) <= efficiency.half_width
    assert len(results) >= 10
    assert inside / len(results) >= 0.75


CURVE = PlanCurve(tuple(CurvePoint(size, 64_000 / size + 50) for size in (64, 256, 1024)))
MACHINES = (
    Machine("small", "NVIDIA A100 40GB", 8, 2, 20.0, "USD"),
    Machine("large", "NVIDIA H100 SXM", 8, 2, 60.0, "USD"),
)


def inputs_of(**changes):
    work = LanguageModel.model_validate({**GPT2, "sequence_length": 2048}).work()
    return PlanInputs(CURVE, machines=MACHINES, estimate=EstimateInputs(work), **changes)


def test_a_plan_without_any_measurement_says_estimated():
    plan = assemble_plan(inputs_of())
    assert set(plan.table["step_time_from"]) == {"estimated"}
    assert plan.table["step_time_high_s"].is_not_null().all()
    assert set(plan.table["machine"]) == {"small", "large"}


def test_measured_step_times_win_and_narrow_the_rest():
    before = assemble_plan(inputs_of())
    measured = StepTime("NVIDIA A100-SXM4-40GB", 1, 8, 256, 0.9, 0.89, 0.91)
    after = assemble_plan(inputs_of(step_times=(measured,)))
    kinds = {(row["machine"], row["hosts"], row["batch_size"]): row["step_time_from"] for row in after.table.to_dicts()}
    assert kinds["small", 1, 256] == "measured"
    assert kinds["large", 1, 256] == kinds["small", 2, 1024] == "estimated"
    for name in ("small", "large"):
        assert after.estimates[name].efficiency.half_width < before.estimates[name].efficiency.half_width
    assert after.estimates["small"].efficiency.half_width < after.estimates["large"].efficiency.half_width


def test_a_measurement_below_the_least_time_is_refused():
    too_fast = StepTime("H100 SXM", 1, 8, 1024, 1e-4)
    with pytest.raises(PlanningError, match="cannot take less"):
        assemble_plan(inputs_of(step_times=(too_fast,)))


def test_short_steps_are_estimated_like_small_programs():
    tiny = StepWork("language", "bfloat16", 1e9, 1e6, 1e6)
    estimates, _ = make_estimates(EstimateInputs(tiny), MACHINES, largest_batch=64)
    assert estimates["small"].work.kind == "other"


def test_a_machine_without_a_row_or_a_precision_is_left_out_with_the_reason():
    machines = (*MACHINES, Machine("odd", "Cerebras", 1, 1, 9.0, "USD"), Machine("tpu", "TPU v5e", 8, 1, 9.0, "USD"))
    in_float32 = replace(WORK, precision="float32")
    estimates, reasons = make_estimates(EstimateInputs(in_float32), machines)
    assert set(estimates) == {"small", "large"}
    assert any("Cerebras" in reason for reason in reasons) and any("float32" in reason for reason in reasons)


def two_devices(near=1.0, far=1.02):
    """A plan on two kinds of devices whose costs differ by a little."""
    machines = (
        Machine("small", "NVIDIA A100 40GB", 8, 1, 20.0, "USD"),
        Machine("large", "NVIDIA H100 SXM", 8, 1, 20.0 * near, "USD"),
    )
    base = assemble_plan(replace(inputs_of(), machines=machines))
    costs = {name: base.by_device[device].cheapest["expected_cost"] for name, device in DEVICES.items()}
    even = replace(machines[1], price_per_host_hour=20.0 * far * costs["small"] / costs["large"])
    return assemble_plan(replace(inputs_of(), machines=(machines[0], even)))


DEVICES = {"small": "NVIDIA A100 40GB", "large": "NVIDIA H100 SXM"}


def test_the_first_measurement_is_worth_most_when_devices_are_close():
    close, apart = two_devices(far=1.02).first_measurement, two_devices(far=20.0).first_measurement
    assert close.saves > 0
    assert apart.saves < close.saves / 10
    assert close.before > close.elsewhere > close.after > 1
    assert close.cost == pytest.approx(close.time_s / 3600 * close.choice["price_per_hour"])


def test_the_worth_of_a_measurement_agrees_with_a_direct_simulation():
    """Two devices of equal cost with independent slowdowns: knowing one saves E[X] - E[min(X, 1)], X log-normal."""
    from batchscale.planning.first_measurement import _worth

    spread = 0.4
    worth = _worth(np.array([100.0, 100.0]), np.diag([spread**2, spread**2]))
    draws = np.exp(np.random.default_rng(1).normal(0, spread, 400_000))
    mean = math.exp(spread**2 / 2)  # of either, before anything is known
    after = np.where(draws < 1, draws, mean).mean()
    assert worth == pytest.approx(100 * (mean - after), rel=0.1)


def test_devices_stop_paying_where_doubling_costs_more_than_it_saves():
    from batchscale.planning.more_devices import last_that_pays, more_devices, stop_sentences

    flat = PlanCurve(tuple(CurvePoint(size, 64_000 / size + 500) for size in (64, 256, 1024)))
    machines = (Machine("m", "NVIDIA H100 SXM", 8, 64, 60.0, "USD"),)
    plan = assemble_plan(replace(inputs_of(), curve=flat, machines=machines))
    frame = more_devices(plan.table)
    times = {row["hosts"]: row["hours"] for row in frame.to_dicts()}
    limit = last_that_pays(times)
    doublings = [2**i for i in range(7) if 2 ** (i + 1) in times]
    worse = [hosts for hosts in doublings if times[hosts] / times[2 * hosts] < math.sqrt(2)]
    assert limit == min(worse)
    assert frame.filter("stop")["hosts"].to_list() == [limit]
    costs = {row["hosts"]: row["cost"] for row in frame.to_dicts()}
    assert costs[2 * limit] / costs[limit] > times[limit] / times[2 * limit]  # it costs more than it saves
    assert f"pay up to {8 * limit:,}" in stop_sentences(frame)[0]


def test_the_picture_has_one_machine_of_each_device_and_doublings_only():
    from batchscale.figures.kinds.more_devices import more_devices_frame, plot_more_devices

    machines = (*MACHINES, replace(MACHINES[1], name="slow", devices_per_host=1), replace(MACHINES[0], max_hosts=6))
    plan = assemble_plan(replace(inputs_of(), machines=(*machines[1:3], machines[3])))
    frame = more_devices_frame(plan)
    assert set(frame["machine"]) == {"small", "large"}
    assert set(frame["hosts"]) == {1, 2, 4}
    assert plot_more_devices(frame).to_dict()["$schema"]


def test_without_a_critical_batch_size_a_published_law_is_used_and_named():
    model = LanguageModel.model_validate({**GPT2, "tokens": 20e9})
    critical = 0.0471 * 2048 * 20e9**0.462  # Power Lines
    curve = model.curve()
    assert "Power Lines" in curve.goal
    for point in curve.points:
        tokens = point.batch_size * 1024
        assert point.steps == pytest.approx(20e9 / tokens + 20e9 / critical)
        assert point.low == pytest.approx(20e9 / tokens + 20e9 / (2 * critical))


def test_a_job_gets_the_micro_batch_and_an_own_script_its_memory():
    from batchscale.planning.jobs.fill_in import fill_in
    from batchscale.planning.jobs.job import TrainCommand, make_job

    need = MemoryNeed(1e9, 1e9, 6e9, activations=4e9, recomputed=1e9)
    work = replace(inputs_of().estimate.work, memory=need)
    plan = assemble_plan(replace(inputs_of(), estimate=EstimateInputs(work)))
    row = next(row for row in plan.table.to_dicts() if row["accumulation"] > 1)
    assert row["micro_batch"] * row["accumulation"] >= row["per_device_batch"]
    job = make_job(row, TrainCommand("d/m/o", row["batch_size"], 10, microbatch=row["micro_batch"]))
    assert f"--microbatch {row['micro_batch']}" in job.command_line
    assert f"{row['accumulation']} passes of {row['micro_batch']}" in job.memory
    assert fill_in(job, "slurm")


@pytest.mark.parametrize(
    ("layers", "width", "heads", "parameters", "devices", "recompute", "published"),
    [
        (24, 2048, 16, 1.316e9, 8, False, 14),
        (24, 2048, 16, 1.316e9, 64, False, 20),
        (32, 2560, 20, 2.652e9, 8, False, 10),
        (32, 4096, 32, 6.659e9, 8, False, 6),
        (40, 5120, 40, 12.854e9, 64, False, 2),
        (48, 7168, 64, 29.975e9, 8, True, 3),
    ],
)
def test_memory_has_room_for_the_micro_batches_that_others_trained_with(
    layers, width, heads, parameters, devices, recompute, published
):
    """Micro-batches of llm-foundry's benchmarks on 80 GB with all state sharded: within a factor of two of the room."""
    from batchscale.planning.memory import ways_to_fit

    shape = {"layers": layers, "width": width, "heads": heads, "parameters": parameters}
    need = LanguageModel.model_validate({**shape, "sequence_length": 2048, "vocabulary": 50432}).memory()
    ways = ways_to_fit(need, 80e9, np.array([float(devices)]))
    (way,) = [w for w in ways if w.sharding is Sharding.PARAMETERS and w.recompute == recompute]
    assert 0.5 <= way.room[0] / published <= 2


def test_steps_shorter_than_any_checked_one_lie_between_theirs_and_the_shortest():
    from batchscale.planning.estimate import shortest_checked

    tiny = StepWork("other", "bfloat16", 1e6, 1e3, 1e4)
    estimate = make_estimates(EstimateInputs(tiny), MACHINES, largest_batch=64)[0]["small"]
    layout = at(1, 1, 64)
    (seconds,), (width,) = estimate.predict(layout)
    ends = [
        estimate.efficiency.factor * value for value in (estimate.least(layout).seconds[0], shortest_checked("other"))
    ]
    assert seconds == pytest.approx(math.sqrt(ends[0] * ends[1]))
    assert seconds * math.exp(-width) < ends[0] < ends[1] < seconds * math.exp(width)


def test_a_bare_curve_does_not_hide_the_interval_of_an_estimate():
    table = assemble_plan(inputs_of()).table
    ratio = (table["step_time_high_s"] / table["step_time_s"]).to_numpy()
    assert (table["time_high_s"] / table["time_s"]).to_numpy() == pytest.approx(ratio)


def test_the_latency_of_a_timed_device_predicts_another_one():
    """The design document's T4 runs predict its V100 runs (0.92 s), whose step times are not passed."""
    ddsp = StepWork("other", "float32", 29.4e9, 0.0, 4_849_150)
    rows = ((1, 1, 8, 0.770), (1, 1, 16, 0.891), (1, 1, 32, 1.184), (1, 2, 64, 1.264), (4, 2, 128, 1.080))
    times = [StepTime("NVIDIA T4", *row) for row in rows]
    machines = (Machine("v", "NVIDIA V100", 4, 2, 9.0, "USD"),)
    estimates, _ = make_estimates(EstimateInputs(ddsp), machines, times, largest_batch=128)
    (seconds,), (width,) = estimates["v"].predict(at(2, 8, 16))
    assert estimates["v"].latency_s == pytest.approx(0.63, rel=0.1)
    assert seconds == pytest.approx(0.92, rel=0.3)
    assert seconds * math.exp(-width) < 0.92 < seconds * math.exp(width)
