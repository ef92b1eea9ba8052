import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import SpecError
from batchscale.spec.durations import Unit
from batchscale.spec.experiment import Algorithm, StopRule
from batchscale.spec.file import parse_experiment, read_experiment

MINIMAL = """
goal = "val/classification_error < 0.1"
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "sgd"
"""
FULL = """
goal = "val/classification_error < 0.1"
batch_sizes = ["2..8192 by 4", "full"]
trials = 20
stop = "goal"
seed = 7
metrics = ["classification_error"]
[workload]
dataset = "mnist_subsets/mnist_6875"
model = "fc_64"
optimizer = "nesterov_momentum"
schedule = "linear"
file = "mine.py"
dataset_options = { fraction = 0.5 }
model_options = { widths = [8, 8] }
[budget]
examples = 100_000
at_least_steps = 10
per_batch_size = { 8 = 50_000 }
[evaluation]
count = 30
spacing = "log"
examples = { train = 0, val = 100, test = "all" }
[search]
algorithm = "sobol"
paired = true
repeats = 0
edge_margin = 0.1
max_attempts = 99
fixed = { momentum = 0.9 }
[search.space]
learning_rate = { type = "DOUBLE", scale = "LOG_SCALE", min_value = 1e-3, max_value = 1 }
[search.per_batch_size.8]
learning_rate = { scale = "LOG_SCALE", min_value = 1e-2, max_value = 10 }
"""


def test_workload_and_goal_are_enough():
    experiment = parse_experiment(MINIMAL)
    assert experiment.trials == 100
    assert experiment.stop is StopRule.RACE
    assert experiment.budget.unit is Unit.EPOCHS
    assert experiment.batch_sizes.sizes[0] == 1


def test_every_key_of_the_file_arrives():
    experiment = parse_experiment(FULL, folder=Path("there"))
    assert experiment.workload.file == Path("there/mine.py")
    assert experiment.workload.model_options == {"widths": (8, 8)}
    assert (experiment.budget.unit, experiment.budget.amount) == (Unit.EXAMPLES, 100_000)
    assert experiment.budget.per_batch_size == {8: 50_000}
    assert experiment.evaluation.examples == {"train": 0, "val": 100, "test": "all"}
    assert experiment.search.algorithm is Algorithm.SOBOL
    assert experiment.search.per_batch_size[8]["learning_rate"].max_value == 10
    assert experiment.search.fixed == {"momentum": 0.9}
    assert (experiment.seed, experiment.search.max_attempts, experiment.metrics) == (7, 99, ("classification_error",))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[workload]", "[wrokload]", r"unknown key 'wrokload'; did you mean 'workload'\?"),
        ('dataset = "digits"', 'datasets = "digits"', r"unknown key 'workload.datasets'; did you mean .*'dataset'"),
        ('dataset = "digits"', 'dataset = "../x"', r"key 'workload': A dataset name must be letters.*Found '\.\./x'"),
        ('dataset = "digits"', "dataset = 3", r"key 'workload.dataset' should be a valid string. Found 3"),
        ('goal = "val/classification_error < 0.1"', "", "key 'goal' is required but missing"),
        ('< 0.1"', '"', "key 'goal': A goal must be a metric of a split"),
        ("[workload]", "trials = 0\n[workload]", "key 'trials' should be greater than or equal to 1. Found 0"),
        ("[workload]", "trials = 3\nfinishers = 4\n[workload]", "finishers.*must not exceed trials = 3. Found 4"),
        ("[workload]", "batch_sizes = [0]\n[workload]", "key 'batch_sizes': .*Found 0"),
        ("[workload]", "batch_sizes = [-4]\n[workload]", "key 'batch_sizes': .*Found -4"),
        ("[workload]", 'stop = "never"\n[workload]', "key 'stop' should be 'budget', 'goal' or 'race'. Found 'never'"),
        (
            "[workload]",
            "budget = { steps = 1, epochs = 2 }\n[workload]",
            "give one of steps, examples, epochs and tokens",
        ),
        ("[workload]", "budget = { epochs = -2 }\n[workload]", "key 'budget.epochs' should be greater than 0"),
        ("[workload]", "budget = { per_batch_size = { x = 2 } }\n[workload]", "each key must be a batch size"),
        ("[workload]", "evaluation = { every = 5, count = 3 }\n[workload]", "either 'every', or 'count'"),
        ("[workload]", "evaluation = { examples = { val = -1 } }\n[workload]", "key 'evaluation.examples.val' should"),
        ("[workload]", "search = { fixed = { momentum = nan } }\n[workload]", "key 'search.fixed.momentum'"),
        ("[workload]", "search.space.momentum = { min_value = 0, max_value = 1 }\n[workload]", r"within \[0, 1\)"),
        ("[workload]", "search.space.learning_rate = { min_value = 2, max_value = 1 }\n[workload]", "above max_value"),
        ("[workload]", "a = [", "valid TOML.*line 4"),
        ("[workload]", "seed = " + "9" * 5000 + "\n[workload]", "valid TOML"),
        ('model = "fc_64"', 'model = "fc_64"\nmodel_options = { a = { b = 1 } }', "model_options.a: an option must be"),
        (
            'model = "fc_64"',
            'model = "fc_64"\nmodel_options = { a = [1, nan] }',
            "model_options.a: a number must be finite",
        ),
        ('model = "fc_64"', 'model = "fc_64"\nmodel_options = { a = 1e400 }', "a number must be finite.*Found inf"),
        ('model = "fc_64"', f'model = "fc_64"\ndataset_options = {{ a = {10**400} }}', "whole number of 1329 bits"),
        ('model = "fc_64"', f'model = "fc_64"\noptimizer_options = {{ a = [{2**63}] }}', "below 2.53.*64 bits"),
        ('model = "fc_64"', 'model = "fc_64"\nfile = "a\\u0000b"', r"'file' must be the path of a Python file.*a.x00b"),
        ("[workload]", f"batch_sizes = {list(range(1, 1100))}\n[workload]", "at most 1,000 of them. Found 1,099"),
        ("[workload]", "evaluation.count = 1000000\n[workload]", "key 'evaluation.count' should be less .*100000"),
    ],
)
def test_a_mistake_names_the_rule_the_value_and_the_key(old, new, message):
    with pytest.raises(SpecError, match=message) as caught:
        parse_experiment(MINIMAL.replace(old, new))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_workload_may_be_one_text():
    text = 'goal = "val/loss < 1"\nworkload = "mnist_subsets/mnist_6875/simple_cnn_base/sgd"'
    named = parse_experiment(text).workload.name
    assert (named.dataset, named.model, named.optimizer) == ("mnist_subsets/mnist_6875", "simple_cnn_base", "sgd")


@pytest.mark.parametrize("workload", ['"digits"', '"a/b"', "3", "[]", "true"])
def test_a_workload_that_is_no_table_and_no_name_is_refused_with_both_forms(workload):
    with pytest.raises(SpecError, match=r"key 'workload' must be a table .* or a text \"DATASET/MODEL/OPTIMIZER\""):
        parse_experiment(f'goal = "val/loss < 1"\nworkload = {workload}')


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "UTF-8"),
        (b"x" * 2_000_000, "exceed 1000000 bytes"),
        (b"# only a comment", "'workload' is required"),
        (b"", "'workload' is required"),
    ],
)
def test_a_file_that_is_no_experiment_is_refused_with_its_path(tmp_path, content, message):
    path = tmp_path / "experiment.toml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=f"{re.escape(str(path))}.*{message}"):
        read_experiment(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(SpecError, match="cannot be read"):
            read_experiment(path)


def test_a_byte_order_mark_is_accepted(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_bytes(b"\xef\xbb\xbf" + MINIMAL.encode())
    assert read_experiment(path).workload.name.dataset == "digits"


@given(st.text())
def test_any_text_is_an_experiment_or_a_clear_refusal(text):
    try:
        parse_experiment(text)
    except SpecError as error:
        assert "\n" not in str(error)


@given(st.sampled_from(FULL.splitlines()), st.integers(0, 60), st.text(max_size=3))
def test_a_damaged_file_is_an_experiment_or_a_clear_refusal(line, position, text):
    try:
        parse_experiment(FULL.replace(line, line[:position] + text + line[position:], 1))
    except SpecError as error:
        assert "\n" not in str(error)


def test_a_workload_may_be_given_by_its_name():
    named = parse_experiment('goal = "val/classification_error < 0.1"\nworkload = "digits/fc_64/sgd"\n')
    assert named.workload == parse_experiment(MINIMAL).workload
    grouped = parse_experiment('goal = "val/x < 0.1"\nworkload = "mnist_subsets/mnist_6875/fc_64/sgd"\n')
    assert grouped.workload.name.dataset == "mnist_subsets/mnist_6875"
    with pytest.raises(SpecError, match="workload"):
        parse_experiment('goal = "val/x < 0.1"\nworkload = "digits"\n')


@pytest.mark.parametrize("where", ["search.space", "search.per_batch_size.64"])
def test_a_metaparameter_is_searched_or_fixed_but_not_both(where):
    both = f"{MINIMAL}[search.fixed]\nlearning_rate = 0.1\n[{where}.learning_rate]\nmin = 0.1\nmax = 1.0\n"
    with pytest.raises(SpecError, match=f"searched or fixed. Found 'learning_rate' in {where} and in search.fixed"):
        parse_experiment(both)


@pytest.mark.parametrize(("text", "devices"), [("1", 1), ("4", 4), ('"all"', None)])
def test_a_run_says_how_many_devices_train_a_trial(text, devices):
    experiment = parse_experiment(f"{MINIMAL}\n[run]\ndevices_per_trial = {text}\nexact = true")
    assert (experiment.run.devices_per_trial, experiment.run.exact) == (devices, True)


@pytest.mark.parametrize("text", ["0", "-1", '"some"', "1.5", "true"])
def test_a_number_of_devices_that_is_none_is_refused(text):
    with pytest.raises(SpecError, match=r"run\.devices_per_trial"):
        parse_experiment(f"{MINIMAL}\n[run]\ndevices_per_trial = {text}")
