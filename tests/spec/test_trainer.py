"""The ``[trainer]`` table: what it may say, and that everything wrong is said before anything starts."""

import pytest

from batchscale.errors import SpecError
from batchscale.spec.file import parse_experiment
from batchscale.spec.plan import make_plan
from batchscale.spec.trainer import ReportSource, placeholders, render
from batchscale.trainers.command import describe_trainer, show_command

HEAD = """
goal = "val/error < 0.2"
batch_sizes = [8]
[workload]
dataset = "mine"
model = "net"
optimizer = "sgd"
[budget]
steps = 100
[search.space.learning_rate]
scale = "LOG_SCALE"
min_value = 0.01
max_value = 1.0
"""


def read(trainer: str = 'command = ["sh", "-c", "true"]', head: str = HEAD):
    return parse_experiment(f"{head}\n[trainer]\n{trainer}\n")


def plan_of(trainer: str, head: str = HEAD):
    experiment = read(trainer, head)
    return make_plan(experiment, describe_trainer(experiment))


def test_a_command_is_rendered_with_values_that_read_back():
    plan = plan_of('command = ["sh", "--lr={learning_rate}", "{batch_size}", "{{x}}"]')
    program, rate, *rest = show_command(plan)
    assert [program, *rest] == ["sh", "8", "{x}"]
    assert float(rate.removeprefix("--lr=")) == pytest.approx(0.1, rel=1e-15)


def test_trials_are_not_measured_at_step_0():
    assert plan_of('command = ["sh"]').studies[0].evaluation_steps[0] > 0


def test_epochs_need_the_size_of_the_training_set():
    head = HEAD.replace("steps = 100", "epochs = 2")
    with pytest.raises(SpecError, match="epochs needs a training set"):
        plan_of('command = ["sh"]', head)
    assert plan_of('command = ["sh"]\nnum_train_examples = 80', head).studies[0].train_steps == 20


def test_any_split_may_be_the_goals():
    head = HEAD.replace("val/error < 0.2", "test/accuracy > 0.9")
    assert plan_of('command = ["sh"]', head).studies[0].goal.maximize


def test_devices_are_workers():
    assert read('command = ["sh", "{device}"]\ndevices = ["cuda:0", "cuda:1"]').trainer.workers == 2


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ('command = "python train.py"', "valid list"),
        ("command = []", "at least 1"),
        ('command = [" "]', "program to start"),
        ('command = ["sh", "a\\u0000b"]', "NUL"),
        ('command = ["sh", "{learning_rat}"]', "did you mean 'learning_rate'"),
        ('command = ["sh", "{unfinished"]', "written twice"),
        ('command = ["sh"]\nenv = { X = "{nonsense}" }', "trainer.env.X"),
        ('command = ["sh"]\nenv = { "A=B" = "1" }', "not contain '='"),
        ('command = ["sh", "{device}"]', "trainer.devices"),
        ('command = ["sh"]\nresum = true', "did you mean 'resume'"),
        ('command = ["sh"]\nworkers = 3\ndevices = ["0", "1"]', "must not exceed the devices"),
        ('command = ["sh"]\ntimeout_s = 0', "greater than 0"),
        ('command = ["/no/such/program"]', "no program here"),
        ('command = ["python3", "no_such_script.py"]', "which does not exist"),
        ('command = ["sh"]\n[trainer.reports]', "one of pattern, csv and jsonl"),
        ('command = ["sh"]\n[trainer.reports]\npatern = "x"', "did you mean 'pattern'"),
        (
            'command = ["sh", "{learning_rate}{batch_size}"]\n[trainer.reports]\npattern = "{step} {val/loss}"',
            "val/error",
        ),
        ('command = ["sh"]\n[trainer.reports]\npattern = "{step} {val/error}"', "no placeholder {batch_size}"),
        ('command = ["sh", "{learning_rate}{batch_size}"]\n[trainer.reports]\ncsv = "m.csv"', "a file of its own"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_rule(trainer, words):
    with pytest.raises(SpecError) as error:
        plan_of(trainer)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('model = "net"', 'model = "net"\nschedule = "linear"'), "'workload.schedule' is for our own engine"),
        (
            ("[budget]", "[evaluation]\nexamples = { val = 10 }\n[budget]"),
            "'evaluation.examples' is for our own engine",
        ),
        (
            ("[search.space.learning_rate]", "[search.space.seed]"),
            "must not be named like a value",
        ),
    ],
)
def test_what_only_our_engine_does_is_refused(change, words):
    with pytest.raises(SpecError, match=words):
        plan_of('command = ["sh"]', HEAD.replace(*change))


def test_a_search_space_is_needed():
    with pytest.raises(SpecError, match=r"'search\.space' is needed"):
        read(head=HEAD.partition("[search.space")[0])


def test_a_script_is_a_part_of_the_experiment_by_what_it_contains(tmp_path):
    text = f'{HEAD}\n[trainer]\ncommand = ["python3", "train.py"]\n'
    (tmp_path / "train.py").write_text("1")
    before = parse_experiment(text, folder=tmp_path).trainer.identity()
    (tmp_path / "train.py").write_text("2")
    assert parse_experiment(text, folder=tmp_path).trainer.identity() != before
    assert parse_experiment(text + "workers = 3\n", folder=tmp_path).trainer.identity() != before
    (tmp_path / "train.py").write_text("1")
    assert parse_experiment(text + "workers = 3\n", folder=tmp_path).trainer.identity() == before


def test_reports_say_how_they_are_read():
    trainer = read('command = ["sh"]\n[trainer.reports]\njsonl = "{folder}/x"\nnames = { loss = "val/loss" }').trainer
    assert trainer.reports.source is ReportSource.JSON_LINES and trainer.reports.names == {"loss": "val/loss"}


def test_placeholders_are_found_and_filled():
    assert placeholders("{a}-{{b}}-{c}") == ["a", "c"]
    assert render("{a}{{}}", {"a": "1"}, "x") == "1{}"
