"""Values for a planned training, its stages, and launch files that are parsed back as their programs parse them."""

import argparse
import ast
import itertools
import json
import math
import shlex

import polars as pl
import pytest

from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.laws import LawCurve, Laws, grid_laws
from batchscale.atlas.table import read_step_law
from batchscale.errors import PlanningError
from batchscale.planning.launch import (
    THEORIES,
    Basis,
    LaunchRequest,
    ScheduleKind,
    plan_launch,
    plan_measured,
)
from batchscale.planning.launch_files import PROGRAMS, DeviceShare, launch_file

PLAN = LaunchRequest(20e9, 1e9)


@pytest.fixture(scope="module")
def laws():
    return grid_laws(read_step_law())


def launch(laws, **changes):
    return plan_launch(LaunchRequest(**{"tokens": 20e9, "parameters": 1e9, **changes}), laws, "a law")


def test_values_are_those_of_laws_and_rules(laws):
    plan = launch(laws)
    by_law = laws.laws["b_opt"].predict(20e9, 1e9)
    assert plan.value("batch_size") == by_law.value and plan.batch_size % 8 == 0
    assert abs(plan.batch_size * 2048 / by_law.value - 1) < 4 * 2048 / by_law.value
    assert [item.basis for item in plan.values] == [Basis.LAW, Basis.LAW, Basis.PUBLISHED, Basis.PUBLISHED]
    batch = plan.batch_size * 2048
    half_life = batch * math.log(0.5) / math.log(plan.value("beta2"))
    assert half_life == pytest.approx(2**19 * math.log(0.5) / math.log(0.95))
    time_scale = batch / (plan.value("learning_rate") * plan.value("weight_decay") * 20e9)
    assert time_scale == pytest.approx(1.084 * 20**-0.527)
    assert plan.steps == math.ceil(20e9 / batch)


def test_a_given_batch_size_scales_the_rate_and_is_compared_with_the_critical_one(laws):
    best, given = launch(laws), launch(laws, batch_tokens=4 * laws.laws["b_opt"].predict(20e9, 1e9).value)
    assert given.value("learning_rate") == pytest.approx(2 * best.value("learning_rate"))
    assert given.values[0].basis is Basis.GIVEN and not given.notes
    above = launch(laws, batch_tokens=64e6)
    assert "above the critical one" in above.notes[0] and above.value("beta2") == 0.95


def test_without_laws_published_rules_stand_in():
    plan = plan_launch(PLAN, Laws({}, {}, None), "nothing")
    assert plan.value("batch_size") == pytest.approx(0.58 * 20e9**0.571)
    assert plan.value("learning_rate") == pytest.approx(1.79 * 1e9**-0.713 * 20e9**0.307)
    assert all(item.basis is Basis.PUBLISHED for item in plan.values)


def test_one_measured_curve_is_carried_to_the_planned_tokens():
    rows = [(size, 1e6 / 64 * (1 + 64 / size)) for size in (1, 2, 4, 8, 16, 64, 256, 1024)]
    frame = pl.DataFrame(rows, schema={"batch_size": pl.Int64, "steps": pl.Float64}, orient="row")
    curve = LawCurve("mine", analyze_points(frame), per_example=512)
    used = 1e6 / 64 * (1 + 64) * 512
    same = plan_measured(LaunchRequest(used, 1e7, 512, multiple_of=1), curve)
    more = plan_measured(LaunchRequest(16 * used, 1e7, 512, multiple_of=1), curve)
    assert same.value("batch_size") / 512 == pytest.approx(1.05 * 65 - 64, rel=0.02)  # tokens grow as B + 64
    ratio = more.value("batch_size") / same.value("batch_size")
    assert 16**0.383 < ratio < 16**0.571 and more.values[0].basis is Basis.MEASURED


@pytest.mark.parametrize("kind", [ScheduleKind.CONSTANT, ScheduleKind.WARMUP, ScheduleKind.LATE])
def test_stages_are_whole_grow_and_cover_the_training(laws, kind):
    plan = launch(laws, schedule=kind, multiple_of=16)
    starts = [stage.start for stage in plan.stages]
    assert starts[0] == 0 and starts == sorted(set(starts)) and starts[-1] < 20e9
    assert all(stage.batch_size % 16 == 0 for stage in plan.stages)
    ends = [*starts[1:], 20e9]
    trained = sum((end - stage.start) / (stage.batch_size * 2048) for stage, end in zip(plan.stages, ends, strict=True))
    assert trained <= plan.steps <= trained + len(plan.stages)


def test_a_warm_up_never_exceeds_the_critical_batch_size_by_its_law(laws):
    plan = launch(laws, schedule=ScheduleKind.WARMUP)
    assert len(plan.stages) == 4 and plan.stages[-1].batch_size == 8 * plan.stages[0].batch_size
    for stage in plan.stages[1:]:
        critical = laws.laws["b_crit"].predict(stage.start, 1e9).value
        assert stage.batch_size * 2048 == pytest.approx(critical, rel=1e-6)


def test_every_schedule_states_its_theory_and_its_opponents():
    assert set(THEORIES) == set(ScheduleKind)
    assert all("ontradict" in THEORIES[kind] for kind in ScheduleKind if kind is not ScheduleKind.STEPS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokens": 1e3}, "one step or more"),
        ({"schedule": ScheduleKind.STEPS}, "must start at 0"),
        ({"schedule": ScheduleKind.STEPS, "stages": ((1e9, 1e5),)}, "must start at 0"),
        ({"schedule": ScheduleKind.STEPS, "stages": ((0, 1e5), (3e10, 2e5))}, "before the training ends"),
    ],
)
def test_impossible_trainings_are_explained(laws, changes, message):
    with pytest.raises(PlanningError, match=message):
        launch(laws, **changes)


def parse_megatron(text, sequence):
    """Arguments and schedule as Megatron-LM reads them: thresholds are tokens, made samples by the sequence."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    parser = argparse.ArgumentParser()
    for name, kind in (
        ("seq-length", int), ("micro-batch-size", int), ("global-batch-size", int), ("step-batch-size-schedule", str),
        ("train-samples", int), ("lr-decay-samples", int), ("lr", float), ("adam-beta2", float),
        ("weight-decay", float),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=kind)
    args = parser.parse_args(shlex.split(" ".join(lines)))
    pairs = [entry.split(":") for entry in (args.step_batch_size_schedule or "").split()]
    return args, [(int(float(start)) // sequence, int(batch)) for start, batch in pairs]


def test_megatron_reads_the_schedule_back(laws):
    plan = launch(laws, schedule=ScheduleKind.WARMUP)
    args, schedule = parse_megatron(launch_file(plan, "megatron-lm", DeviceShare(4, 2)), 2048)
    assert schedule == [(stage.start // 2048, stage.batch_size) for stage in plan.stages]
    assert args.global_batch_size is None  # Megatron-LM refuses both
    assert args.train_samples == math.ceil(20e9 / 2048) and args.micro_batch_size == 2
    assert args.lr == pytest.approx(plan.value("learning_rate"), rel=1e-3)
    constant, none = parse_megatron(launch_file(launch(laws), "megatron-lm"), 2048)
    assert constant.global_batch_size == launch(laws).batch_size and none == []


def test_olmo_core_reads_the_schedule_back_at_the_rate_of_the_largest_batch(laws):
    plan = launch(laws, schedule=ScheduleKind.WARMUP)
    tree = ast.parse(launch_file(plan, "olmo-core"))
    values = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
    words = {word.arg: word.value for word in values["BATCH_SIZE_SCHEDULER"].keywords}
    sizes = ast.literal_eval(words["batch_sizes"])
    starts = [call.args[0].value for call in words["schedule"].elts]
    assert all(call.func.attr == "tokens" for call in words["schedule"].elts)
    assert list(zip(starts, sizes, strict=True)) == [(stage.start, stage.batch_size * 2048) for stage in plan.stages]
    assert all(large % small == 0 and large > small for small, large in itertools.pairwise(sizes))
    assert ast.literal_eval(values["GLOBAL_BATCH_SIZE"]) == sizes[0]
    rate = ast.literal_eval(next(word.value for word in values["OPTIM"].keywords if word.arg == "lr"))
    # the callback multiplies by √(new/old) at each stage: at the last one the rate is the suggested one
    assert rate * math.sqrt(sizes[-1] / sizes[0]) == pytest.approx(plan.value("learning_rate"), rel=1e-3)
    with pytest.raises(PlanningError, match="whole factors"):
        own = launch(laws, schedule=ScheduleKind.STEPS, stages=((0, 2048 * 16), (1e9, 2048 * 24)))
        launch_file(own, "olmo-core")


def test_nanochat_reads_the_batch_size_back(laws):
    plan = launch(laws)
    words = shlex.split(launch_file(plan, "nanochat").splitlines()[1])
    assert words[:3] == ["python", "-m", "scripts.base_train"]
    parser = argparse.ArgumentParser()
    for name in ("total-batch-size", "num-iterations", "max-seq-len"):
        parser.add_argument(f"--{name}", type=int)
    args = parser.parse_args(words[3:])
    assert args.total_batch_size == 2 ** round(math.log2(plan.batch_size * 2048))
    assert args.num_iterations * args.total_batch_size >= 20e9


def test_huggingface_reads_the_values_back(laws):
    plan = launch(laws)
    values = json.loads(launch_file(plan, "huggingface", DeviceShare(2, 4)))
    assert values["per_device_train_batch_size"] * values["gradient_accumulation_steps"] * 2 == plan.batch_size
    assert values["max_steps"] == plan.steps and values["adam_beta2"] == pytest.approx(plan.value("beta2"), abs=1e-5)
    assert values["weight_decay"] == pytest.approx(plan.value("weight_decay"), rel=1e-3)


def test_programs_without_schedules_and_uneven_devices_are_refused(laws):
    for name in ("nanochat", "huggingface"):
        with pytest.raises(PlanningError, match="has no batch-size schedule"):
            launch_file(launch(laws, schedule=ScheduleKind.LATE), name)
    for name in PROGRAMS:
        with pytest.raises(PlanningError, match="--multiple-of 3"):
            launch_file(launch(laws), name, DeviceShare(3))
    with pytest.raises(PlanningError, match="megatron-lm"):
        launch_file(launch(laws), "megatron")
