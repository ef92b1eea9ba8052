"""New experiments from a browser: what the form makes, and what is not taken from it."""

import tomllib

import pytest

from batchscale.errors import SpecError
from batchscale.spec.experiment import StopRule
from batchscale.spec.file import parse_experiment
from batchscale.web.experiment_check import check_text, try_text
from batchscale.web.experiment_form import default_form, form_toml

TOML = form_toml(default_form())


def test_the_fields_make_a_file_that_the_command_line_reads():
    experiment = parse_experiment(TOML)
    assert str(experiment.workload.name) == "digits/fc_64/nesterov_momentum"
    assert experiment.trials == 20 and experiment.budget.at_least_steps == 1000


def test_ranges_become_a_search_space():
    text = form_toml({"range_learning_rate": "0.001 to 3", "range_momentum": "0.5 to 0.99"})
    assert check_text(text).search.space.names == ("learning_rate", "momentum")


@pytest.mark.parametrize("value", ['"\n[trainer]\ncommand = ["sh"]\n', "1\n[trainer]", "1]\nseed = 3 #", "0x", "", "١"])
@pytest.mark.parametrize(
    "field", ["workload", "goal", "batch_sizes", "trials", "stop", "seed", "budget", "schedule", "range_learning_rate"]
)
def test_a_field_never_becomes_another_key(field, value):
    made = tomllib.loads(form_toml({field: value}))
    assert set(made) <= {*tomllib.loads(TOML), "search"} and made["seed"] != 3
    assert try_text(form_toml({field: value})).problem or (value == "" and field in ("schedule", "range_learning_rate"))


@pytest.mark.parametrize(
    "more",
    [
        '[trainer]\ncommand = ["sh", "-c", "id"]\n',
        '[workload]\ndataset = "a"\nmodel = "b"\noptimizer = "sgd"\nfile = "evil.py"\n',
        '[workload]\ndataset = "digits"\nmodel = "fc_64"\noptimizer = "sgd"\ndataset_options = { path = "/etc" }\n',
    ],
)
def test_files_commands_and_paths_do_not_come_from_a_browser(more):
    head = 'goal = "val/loss < 1"\n' + ("" if "[workload]" in more else 'workload = "a/b/sgd"\n')
    with pytest.raises(SpecError):
        check_text(head + more)


@pytest.mark.parametrize("text", ["a=" + "[" * 50_000, "a = " + "9" * 100_000, "x" * 300_000, "\x00", "a.b" * 9000])
def test_toml_bombs_are_one_sentence(site, text):
    client = site.visitor()
    answer = site.post(client, "/new/check", toml=text)
    assert answer.status_code == 200 and 'class="problem"' in answer.text and "Traceback" not in answer.text


def test_the_page_has_the_form_beside_the_file(site):
    client = site.visitor()
    page = client.get("/new").text
    for rule in StopRule:
        chosen = " selected" if rule is StopRule.RACE else ""
        assert f"<option{chosen}>{rule.value}</option>" in page
    assert 'for="f-goal"' in page and "val/classification_error &lt; 0.1" in page and "The file is valid" in page
    typed = site.post(client, "/new/toml", goal="val/classification_error << 1")
    assert 'class="problem"' in typed.text
    assert "&lt;b&gt;" in site.post(client, "/new", workload="<b>").text


@pytest.mark.parametrize("name", ["", "../x", "a/b", "A", ".hidden", "x" * 60, "a\nb", "finished"])
def test_names_of_folders_are_strict_and_never_taken_twice(site, name):
    client = site.visitor()
    before = sorted(path.name for path in site.folder.iterdir())
    assert site.post(client, "/new/start", name=name, toml=TOML).status_code in (409, 422)
    assert sorted(path.name for path in site.folder.iterdir()) == before


def test_own_files_come_from_one_folder_by_id(make_site, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.toml").write_text(TOML)
    (own / "link.toml").symlink_to("/etc/hostname")
    site = make_site(own_files=own)
    client = site.visitor()
    page = client.get("/new").text
    assert "mine.toml" in page and "link.toml" not in page
    assert site.post(client, "/new/start", name="a", own="../mine.toml").status_code == 404
