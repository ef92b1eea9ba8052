"""Own workloads: every way to register one, and what is said when its parts do not fit."""

import os
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import batchscale
from batchscale.errors import DataError, SpecError
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule, WorkloadSpec
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import SearchSpace
from batchscale.spec.workload_name import WorkloadName
from batchscale.study.trial import TrialTask
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine
from batchscale.workloads.metrics.declaration import task_metrics
from batchscale.workloads.registry import get_workload, workload_info
from batchscale.workloads.tasks import Task
from batchscale.workloads.user import registration
from batchscale.workloads.workload import Metric, Model, SampledSplit

sys.path.insert(0, str(Path(__file__).parent))
from generated import cheap_jit


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch):
    monkeypatch.setattr(registration, "_REGISTERED", {})
    monkeypatch.setattr(registration, "_LOADED", {})


def split(count=6, width=3, classes=2, seed=0):
    random = np.random.default_rng(seed)
    return {"inputs": random.normal(size=(count, width)), "labels": np.arange(count) % classes}


def data(**changes):
    return {"train": split(), "val": split(seed=1), **changes}


class Net(nnx.Module):
    def __init__(self, *, rngs):
        self.layer = nnx.Linear(3, 2, rngs=rngs)

    def __call__(self, inputs):
        return self.layer(inputs)


PAIR = (lambda key: {"w": jax.random.normal(key, (3, 2))}, lambda params, inputs: inputs @ params["w"])


FLOATING = {**split(), "labels": np.ones(6)}


def get(name="mine/net", optimizer="sgd", **options):
    return get_workload(WorkloadSpec(WorkloadName(*name.split("/"), optimizer), **options))


def outputs_of(workload, key=0, train=True):
    params, state = workload.model.init(jax.random.key(0))
    inputs = jnp.asarray(workload.dataset.splits["train"].arrays["inputs"])
    return workload.model.apply(params, state, inputs, train=train, key=jax.random.key(key))


@pytest.mark.parametrize("model", [Net, lambda rngs: Net(rngs=rngs), PAIR])
def test_modules_and_pairs_become_workloads_for_every_optimizer(model):
    batchscale.register_workload("mine/net", data=data(), model=model, task="classification")
    workload = get(optimizer="adam")
    assert outputs_of(workload)[0].shape == (6, 2)
    assert workload.dataset.input_dtype == jnp.float32  # numpy's float64 becomes what devices compute in
    assert "beta1" in workload.defaults
    info = workload_info(WorkloadSpec(WorkloadName("mine", "net", "adam")))
    assert info.num_train_examples == 6
    assert info.splits == ("train", "val")


@pytest.mark.parametrize("model", [Net, PAIR])
def test_a_users_model_takes_a_precision_and_no_other_option(model):
    batchscale.register_workload("mine/net", data=data(), model=model, task="classification")
    half = get(model_options={"precision": "bfloat16"})
    params, _ = half.model.init(jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    outputs = outputs_of(half)[0]
    assert outputs.dtype == jnp.bfloat16
    np.testing.assert_allclose(outputs.astype(jnp.float32), outputs_of(get())[0], atol=0.05)  # 8 bits of values near 1
    with pytest.raises(SpecError, match="one of float32, bfloat16"):
        get(model_options={"precision": "half"})
    with pytest.raises(SpecError, match="no options but precision"):
        get(model_options={"width": 3})


def test_a_pair_gets_train_and_key_if_it_takes_them():
    def apply(params, inputs, train, key):
        return inputs @ params["w"] + (jax.random.normal(key) if train else 0)

    batchscale.register_workload("mine/net", data=data(), model=(PAIR[0], apply), task="classification")
    workload = get()
    assert not np.array_equal(outputs_of(workload, 1)[0], outputs_of(workload, 2)[0])
    np.testing.assert_array_equal(outputs_of(workload, 1, train=False)[0], outputs_of(workload, 2, train=False)[0])


def test_flax_dropout_and_batch_norm_work_as_they_are():
    class Noisy(nnx.Module):
        def __init__(self, rngs):
            self.layer, self.norm = nnx.Linear(3, 2, rngs=rngs), nnx.BatchNorm(2, rngs=rngs)
            self.drop = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, inputs):
            return self.drop(self.norm(self.layer(inputs)))

    batchscale.register_workload("mine/net", data=data(), model=Noisy, task="classification")
    workload = get()
    first, state = outputs_of(workload, 1)
    assert not np.array_equal(first, outputs_of(workload, 2)[0])
    np.testing.assert_array_equal(first, outputs_of(workload, 1)[0])
    assert float(jnp.abs(state["norm"]["mean"]).max()) > 0
    np.testing.assert_array_equal(outputs_of(workload, 1, train=False)[0], outputs_of(workload, 2, train=False)[0])
    assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype("float32")}  # no random state in it


def test_a_ready_model_and_ready_metrics_are_taken_as_they_are():
    model = Model("net", lambda key: (PAIR[0](key), {}), lambda p, s, x, *, train, key: (x @ p["w"], s))
    metrics = task_metrics(Task.CLASSIFICATION)[1:]
    batchscale.register_workload("mine/net", data=data(), model=model, task="classification", metrics=metrics)
    assert get().model is model
    assert [type(metric) for metric in get().metrics] == [Metric]


def test_a_built_in_model_takes_own_data_and_an_own_model_built_in_data():
    batchscale.register_workload("mine/fc_8", data=data(), task="classification")
    workload = get("mine/fc_8", model_options={"dropout": 0.0})
    assert workload.model.init(jax.random.key(0))[0]["hidden"]["0"]["kernel"].shape == (3, 8)

    def flat(rngs):
        return Flat(rngs)

    class Flat(nnx.Module):
        def __init__(self, rngs):
            self.layer = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, inputs):
            return self.layer(inputs.reshape(len(inputs), -1))

    batchscale.register_workload("digits/flat", model=flat)
    assert get("digits/flat").dataset.num_outputs == 10


def test_an_iterator_of_batches_is_read_once_and_stays():
    batches = ({"inputs": np.ones((4, 3)) * i, "labels": np.zeros(4, int)} for i in range(5))
    batchscale.register_workload("mine/net", data=data(train=batches), model=Net, task="classification", num_outputs=2)
    assert get().dataset.num_train_examples == get().dataset.num_train_examples == 20


def test_an_own_loss_is_a_mean_over_examples_and_has_no_label_smoothing():
    def error(outputs, batch):
        return jnp.abs(outputs[:, 0] - batch["labels"])

    batchscale.register_workload("mine/net", data=data(), model=PAIR, loss=error)
    workload = get()
    assert [(metric.name, metric.maximize) for metric in workload.metrics] == [("loss", False)]
    assert "label_smoothing" not in workload.defaults
    outputs = jnp.asarray([[1.0, 0.0], [4.0, 0.0]])
    found = workload.loss(outputs, {"labels": jnp.asarray([0, 1])}, {})
    assert float(found.total) / float(found.weight) == 2.0
    (metric,) = workload.metrics
    spoiled = jnp.concatenate([outputs, jnp.full((1, 2), jnp.nan)])
    sums = metric.measure(spoiled, {"labels": jnp.asarray([0, 1, 0])}, jnp.asarray([1.0, 1.0, 0.0]))
    assert float(metric.value(sums)) == 2.0


def test_sampled_data_needs_the_number_of_outputs():
    noise = SampledSplit(lambda key, n: {"inputs": jnp.ones((n, 3)), "labels": jnp.zeros(n, jnp.int32)})
    batchscale.register_workload("mine/net", data={"train": noise, "val": noise}, model=Net, task="classification")
    with pytest.raises(SpecError, match="num_outputs"):
        get()


def test_prepare_runs_before_the_model_and_is_checked():
    def halve(batch):
        return {**batch, "inputs": batch["inputs"][:, :3] / 2}

    wide = {"train": split(width=5), "val": split(width=5)}
    batchscale.register_workload("mine/net", data=wide, model=Net, task="classification", prepare=halve)
    assert get().dataset.input_shape == (3,)
    batchscale.register_workload(
        "mine/net", data=wide, model=Net, task="classification", prepare=lambda batch: batch["images"]
    )
    with pytest.raises(SpecError, match="prepare fails"):
        get()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"data": data(train={"inputs": np.ones((6, 3))})}, "'inputs' and 'labels'"),
        ({"data": data(train={**split(), "labels": np.zeros(5, int)})}, "a row per example.*6.*5"),
        ({"data": data(train={**split(), "labels": np.array(["a"] * 6)})}, "must be numbers"),
        ({"data": data(val=split(width=4))}, r"like that of train: float32 of shape \(3,\).*\(4,\)"),
        ({"data": data(val={**split(), "inputs": np.ones((6, 3), np.int8)})}, "float32.*int8"),
        ({"data": data(train=7)}, "arrays by name"),
        (
            {"data": {"train": split(width=4), "val": split(width=4)}},
            r"model fails on float32 inputs of shape \(4, 4\)",
        ),
        (
            {"model": (PAIR[0], lambda params, inputs: inputs)},
            r"scores of shape \(4, 2\). Found float32 of shape \(4, 3\)",
        ),
        ({"model": (PAIR[0], lambda params, inputs: inputs[:, :2] > 0)}, "Found bool"),
        ({"model": (PAIR[0], lambda params, inputs: inputs / (1 // 0))}, "model fails on .*ZeroDivisionError"),
        ({"data": {"train": {**split(), "labels": np.ones(6)}, "val": split()}}, "like that of train"),
        (
            {"data": {"train": FLOATING, "val": FLOATING}, "num_outputs": 2},
            "whole numbers",
        ),
        ({"task": "multilabel", "num_outputs": 2}, r"0 or 1 of shape \(4, 2\)"),
        ({"task": None, "loss": lambda outputs, batch: batch["targets"]}, "loss or metrics fail.*targets"),
        ({"task": None, "loss": lambda outputs, batch: batch["labels"]}, "the loss must return a floating.*int32"),
        ({"task": None, "loss": lambda outputs, batch: jnp.mean(outputs)}, r"number per example \(of 4\).*shape \(\)"),
        ({"metrics": {"odd": lambda outputs, batch: batch["labels"] % 2}}, "odd must return a floating"),
        ({"model": 3}, "function of nnx.Rngs"),
        ({"model": (1, 2, 3)}, "two functions"),
    ],
)
def test_wrong_shapes_and_types_are_reported_before_compilation_with_what_was_expected(given, words, caplog):
    with jax.log_compiles(), pytest.raises(SpecError, match=words):
        batchscale.register_workload("mine/net", **{"data": data(), "model": Net, "task": "classification", **given})
        get()
    assert "compil" not in caplog.text.lower()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give data, a model, or both"),
        ({"model": Net}, "built-in"),
        ({"data": {"train": split()}, "model": Net, "task": "classification"}, "'train' and 'val'"),
        ({"data": data(), "model": Net}, "needs a task"),
        ({"data": data(), "model": Net, "task": "classification", "loss": len}, "not both"),
        ({"data": data(), "model": Net, "task": "ranking"}, "classification, multilabel, language, regression"),
        ({"data": data(train=iter(())), "model": Net, "task": "classification"}, "at least one"),
    ],
)
def test_an_incomplete_registration_is_refused_at_once(given, words):
    with pytest.raises(SpecError, match=words):
        batchscale.register_workload("mine/net", **given)


def test_a_name_needs_both_parts():
    with pytest.raises(SpecError, match="dataset name"):
        batchscale.register_workload("net", data=data(), model=Net, task="classification")


def file_spec(path, name="mine/net/sgd"):
    return WorkloadSpec(WorkloadName.parse(name), file=path)


BODY = """
import numpy as np, batchscale
arrays = {"inputs": np.ones((4, 3), np.float32), "labels": np.zeros(4, np.int32)}
batchscale.register_workload("mine/fc_4", data={"train": arrays, "val": arrays}, task="classification", num_outputs=2)
"""


def test_a_file_registers_and_is_run_again_only_when_it_changes(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(BODY)
    spec = file_spec(path, "mine/fc_4/sgd")
    assert get_workload(spec).dataset.num_outputs == 2
    first = registration.find_user_workload(spec.name, path)
    workload_info(spec)
    assert registration.find_user_workload(spec.name, path) is first
    path.write_text(BODY.replace("num_outputs=2", "num_outputs=5"))
    os.utime(path, ns=(1, 1))
    assert get_workload(spec).dataset.num_outputs == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\nraise KeyError('oh')\n", "fails at line 2: KeyError: 'oh'"),
        ("def broken(:\n", "SyntaxError"),
        (BODY, "does not register the workload 'mine/net'; did you mean 'mine/fc_4'"),
        (BODY + BODY, "twice"),
    ],
)
def test_a_file_that_fails_says_where(tmp_path, text, words):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(SpecError, match=words):
        workload_info(file_spec(path))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SpecError, match=r"none at .*nowhere\.py"):
        workload_info(file_spec(tmp_path / "nowhere.py"))


def test_the_built_in_data_of_an_own_model_is_looked_for_in_the_given_folder(tmp_path):
    batchscale.register_workload("mnist/net", model=Net, task="classification")
    with pytest.raises(DataError, match=re.escape(str(tmp_path))):
        workload_info(WorkloadSpec(WorkloadName("mnist", "net", "sgd")), tmp_path)


class Reader:
    """Numbers that depend on their index alone, and what was asked for."""

    def __init__(self, count=40, width=3, wrong_after=None):
        self.num_examples = count
        self.width, self.wrong_after = width, wrong_after
        self.asked = []

    def read(self, indices):
        self.asked.append(np.array(indices))
        inputs = np.sin(np.outer(indices + 1, np.arange(1, self.width + 1)))
        labels = np.stack([inputs.sum(axis=1), inputs[:, 0]], axis=1)
        late = self.wrong_after is not None and len(self.asked) > self.wrong_after
        return {"inputs": inputs[:-1] if late else inputs, "labels": labels}


def test_a_regression_has_the_mean_squared_error_as_loss_and_no_label_smoothing():
    arrays = {"inputs": np.eye(3, dtype=np.float32), "labels": np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])}
    batchscale.register_workload("mine/net", data={"train": arrays, "val": arrays}, model=PAIR, task="regression")
    workload = get()
    outputs, targets = np.array([[1.0, 1.0], [2.0, 0.0], [4.0, 9.0]]), arrays["labels"]
    assert "label_smoothing" not in workload.defaults
    assert (workload.dataset.num_outputs, [metric.name for metric in workload.metrics]) == (
        2,
        ["squared_error", "absolute_error"],
    )
    batch = {name: jnp.asarray(values, jnp.float32) for name, values in arrays.items()}
    found = workload.loss(jnp.asarray(outputs), batch, {})
    assert float(found.total / found.weight) == pytest.approx(np.mean((outputs - targets) ** 2), rel=1e-6)  # float32
    for metric, expected in zip(workload.metrics, (np.square, np.abs), strict=True):
        sums = metric.measure(jnp.asarray(outputs), batch, jnp.ones(3))
        assert float(metric.value(sums)) == pytest.approx(np.mean(expected(outputs - targets)), rel=1e-6)


@pytest.mark.parametrize("task", [Task.CLASSIFICATION, Task.MULTILABEL, Task.REGRESSION])
def test_masked_examples_count_neither_in_the_loss_nor_in_metrics(task):
    random = np.random.default_rng(0)
    outputs = random.normal(size=(5, 2)).astype(np.float32)
    labels = {
        Task.CLASSIFICATION: np.array([0, 1, 1, 0, 1]),
        Task.MULTILABEL: random.integers(0, 2, (5, 2)),
        Task.REGRESSION: random.normal(size=(5, 2)),
    }[task]
    mask = np.array([1, 0, 1, 1, 0])
    kept = mask > 0
    masked = {"inputs": np.zeros((5, 3), np.float32), "labels": jnp.asarray(labels), "mask": mask}
    alone = {"inputs": np.zeros((3, 3), np.float32), "labels": jnp.asarray(labels[kept])}

    @cheap_jit
    def measure(outputs, batch):
        loss, ones = task.make_loss({})(outputs, batch, {}), jnp.ones(len(outputs))
        metrics = [metric.value(metric.measure(outputs, batch, ones)) for metric in task_metrics(task)]
        return loss.total, loss.weight, metrics

    (total, weight, with_mask), expected = measure(outputs, masked), measure(outputs[kept], alone)
    assert (float(total), float(weight)) == pytest.approx((float(expected[0]), float(expected[1])))
    for found, without in zip(with_mask, expected[2], strict=True):
        assert float(found) == pytest.approx(float(without), rel=1e-6)  # float32 sums in another order


def test_data_that_is_read_by_index_trains_as_the_same_arrays_do():
    reader = Reader()
    arrays = {split: Reader(count).read(np.arange(count)) for split, count in (("train", 40), ("val", 10))}
    batchscale.register_workload("mine/net", data={"train": reader, "val": Reader(10)}, model=PAIR, task="regression")
    batchscale.register_workload("held/net", data=arrays, model=PAIR, task="regression")
    found = {}
    for name in ("mine/net", "held/net"):
        workload = get(name)
        study = Study(
            workload=workload.name, batch_size=8, train_steps=20, evaluation_steps=(0, 20), space=SearchSpace(()),
            fixed={}, trials=1, max_attempts=1, goal=Goal("val/squared_error", 0.0), stop=StopRule.BUDGET, seed=0,
        )  # fmt: skip
        engine = StudyEngine(workload, study, EvaluationPlan(count=1), EngineSettings(population=1))
        (progress,) = engine.advance([TrialTask(1, {"learning_rate": 0.1}, seed=3, until_step=20, from_step=-1)])
        found[name] = dict(progress.rows)
    assert reader.asked and max(map(len, reader.asked)) < 40 + 1
    for step, values in found["held/net"].items():
        # the same examples in the same order: only the order of sums may differ
        assert found["mine/net"][step] == pytest.approx(dict(values), rel=1e-4)
    assert found["held/net"][20]["val/squared_error"] < found["held/net"][0]["val/squared_error"] / 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (type("Endless", (), {"read": lambda self, indices: {}})(), "must have num_examples"),
        (type("Empty", (), {"num_examples": 0, "read": lambda self, indices: {}})(), "at least one example"),
        (type("Bare", (), {"num_examples": 9, "read": lambda self, indices: indices})(), "arrays by name"),
        (type("Half", (), {"num_examples": 9, "read": lambda self, indices: {"inputs": indices}})(), "'labels'"),
        (type("Fails", (), {"num_examples": 9, "read": lambda self, indices: 1 / 0})(), "read fails on index 0"),
    ],
)
def test_a_reader_that_cannot_be_read_is_refused_by_name(given, words):
    batchscale.register_workload("mine/net", data={"train": given, "val": Reader()}, model=PAIR, task="regression")
    with pytest.raises(SpecError, match=re.escape(words)) as error:
        get()
    assert "split train" in str(error.value)


def test_a_reader_that_gives_too_few_rows_later_is_named():
    broken = Reader(wrong_after=10)
    batchscale.register_workload("mine/net", data={"train": broken, "val": Reader()}, model=PAIR, task="regression")
    train = get().dataset.splits["train"]
    with pytest.raises(DataError, match="a row for each of 4 indices"):
        for _ in range(11):
            train.read(np.arange(4), None)


def test_seeds_are_given_to_a_reader_that_takes_them():
    class Seeded:
        num_examples = 4

        def read(self, indices, seeds):
            shift = np.zeros(len(indices)) if seeds is None else seeds % 7
            return {"inputs": np.stack([shift] * 3, axis=1), "labels": np.zeros((len(indices), 2))}

    batchscale.register_workload("mine/net", data={"train": Seeded(), "val": Seeded()}, model=PAIR, task="regression")
    train = get().dataset.splits["train"]
    assert train.read(np.arange(2), None)["inputs"].sum() == 0
    assert train.read(np.arange(2), np.array([5, 6]))["inputs"][:, 0].tolist() == [5, 6]
