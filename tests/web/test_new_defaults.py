"""The form of a new experiment follows its workload, and says at once what cannot be run."""

import subprocess
import sys
from dataclasses import replace

import pytest

from batchscale.errors import BatchscaleError, SpecError
from batchscale.init_file import starting_text
from batchscale.spec.file import parse_experiment
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.experiment_check import check_text, plan_text, try_text
from batchscale.web.experiment_form import default_form, follow_workload, form_of, form_toml, workload_form
from batchscale.workloads.published import MORE_WORKLOADS, PAPER_WORKLOADS

CIFAR = "cifar_10/resnet_8/nesterov_momentum"


@pytest.mark.parametrize("workload", [*MORE_WORKLOADS, *PAPER_WORKLOADS])
def test_the_form_of_a_workload_is_the_file_that_init_writes(workload):
    made = parse_experiment(form_toml(workload_form(workload)))
    written = parse_experiment(starting_text(WorkloadName.parse(workload)))
    assert replace(made, text="") == replace(written, text="")
    assert plan_text(made.text).studies


def test_another_workload_brings_its_own_and_leaves_what_is_the_users():
    form = default_form() | {"workload": CIFAR, "trials": "7", "seed": "3", "goal": "val/loss < 9"}
    followed = follow_workload(form)
    assert followed["goal"] == "val/classification_error < 0.3" and followed["schedule"] == "linear"
    assert followed["range_end_learning_rate_factor"] == "0.0001 to 0.1" and followed["batch_sizes"] == "2..8192"
    assert (followed["trials"], followed["seed"]) == ("7", "3")
    typed = followed | {"goal": "val/classification_error < 0.5"}
    assert follow_workload(typed) == typed  # from here on what is typed counts
    assert follow_workload(typed, again=True)["goal"] == "val/classification_error < 0.3"


def test_a_name_that_is_being_typed_changes_nothing():
    form = default_form() | {"workload": "cifar_10/resn", "goal": "val/loss < 9"}
    assert follow_workload(form) == form and follow_workload(form, again=True) == form


def test_another_schedule_brings_its_metaparameters_and_keeps_typed_ranges():
    form = default_form() | {"schedule": "linear", "range_momentum": "0.5 to 0.6"}
    followed = follow_workload(form)
    assert followed["range_end_learning_rate_factor"] == "0.0001 to 0.1"
    assert followed["range_momentum"] == "0.5 to 0.6" and followed["goal"] == form["goal"]
    back = follow_workload(followed | {"schedule": "constant"})
    assert "range_end_learning_rate_factor" not in back and back["range_momentum"] == "0.5 to 0.6"


def test_fields_come_with_the_file_or_the_file_alone(site):
    client = site.visitor()
    answer = site.post(client, "/new/fields", **(default_form() | {"workload": CIFAR}))
    assert "hx-reswap" not in answer.headers and 'id="f-range_end_learning_rate_factor"' in answer.text
    assert 'id="file" hx-swap-oob="true"' in answer.text and "model = &#34;resnet_8&#34;" in answer.text
    typing = site.post(client, "/new/fields", **(default_form() | {"workload": "cifar_10/resn"}))
    assert typing.headers["hx-reswap"] == "none" and 'class="problem"' in typing.text


def test_without_a_script_a_button_fills_the_form(site):
    client = site.visitor()
    page = client.get("/new").text
    assert 'formaction="/new/workload"' in page
    assert page.index('action="/new"') < page.index('class="hidden"') < page.index('formaction="/new/workload"')
    filled = site.post(client, "/new/workload", **(default_form() | {"workload": CIFAR})).text
    assert 'value="val/classification_error &lt; 0.3"' in filled and "The file is valid" in filled


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("workload", "cifar_10/resnet_9/sgd", "resnet_8"),
        ("workload", "cifar_10/fc_64/lstm", "lstm"),
        ("goal", "val/perplexity < 3", "val/cross_entropy_error"),
        ("goal", "val/classification_error > 0.1", "minimised"),
        ("batch_sizes", "1..1024, 9999999", "9999999"),
        ("range_momentum", "0.5 to 1.5", "momentum"),
        ("range_momentum", "0.5", "momentum"),
        ("budget", "-1", "budget"),
        ("trials", "many", "trials"),
    ],
)
def test_mistakes_are_named_as_they_are_typed(site, field, value, words):
    client = site.visitor()
    for path in ("/new/toml", "/new/fields"):
        checked = site.post(client, path, **(default_form() | {field: value})).text.partition('id="checked-file"')[2]
        assert 'class="problem"' in checked and words in checked, checked


def test_a_valid_file_says_what_it_would_run(site):
    text = site.post(site.visitor(), "/new/toml", **(default_form() | {"batch_sizes": "4, 16, full"})).text
    assert "60 trials at 3 batch sizes from 4 to 1,347" in text
    assert try_text(form_toml(workload_form("common_crawl/transformer_base/nesterov_momentum"))).missing_data


def test_a_refused_start_keeps_what_was_written(site):
    client = site.visitor()
    text = form_toml(workload_form(CIFAR)).replace("0.3", "0.31")
    for name, status in (("finished", 409), ("Not So", 422)):
        page = site.post(client, "/new/start", name=name, toml=text)
        assert page.status_code == status and 'role="alert"' in page.text
        assert "val/classification_error &lt; 0.31" in page.text and f'value="{CIFAR}"' in page.text
    wrong = site.post(client, "/new/start", name="wrong", toml=text.replace("resnet_8", "resnet_9"))
    assert wrong.status_code == 422 and "resnet_9" in wrong.text and not (site.folder / "wrong").exists()
    assert site.post(client, "/new/start", name="wrong", toml="a = [").status_code == 422
    told = (site.settings.state / "audit.jsonl").read_text()
    assert told.count("POST /new/start") == 4


@pytest.mark.parametrize("data", [{}, {"workload": 3, "batch_sizes": 4, "budget": [], "search": {"space": [1]}}])
def test_any_file_can_be_read_into_fields(data):
    assert set(form_of(data)) >= set(form_of({})) and form_toml(form_of(data))


@pytest.mark.parametrize("option", ['path = "data"', 'hf = "name"', 'name = "../x"'])
def test_no_option_from_a_browser_names_files(option):
    head = 'goal = "val/loss < 1"\n[workload]\ndataset = "text"\nmodel = "lstm"\noptimizer = "sgd"\n'
    with pytest.raises(SpecError, match="must not name files"):
        check_text(f"{head}dataset_options = {{ {option} }}\n")


def test_checks_have_a_rate_of_their_own(make_site, few):
    site = make_site(limits=replace(few, sign_ins=9, checks=5, body_bytes=10_000))
    client = site.visitor()
    answers = [site.post(client, "/new/check", toml="").status_code for _ in range(6)]
    assert answers == [200] * 5 + [429]
    assert site.post(client, "/new", workload="x").status_code == 200  # actions are counted apart


def test_read_only_offers_nothing_to_start(make_site):
    page = make_site(read_only=True).visitor().get("/new").text
    assert "--read-only" in page and "<textarea" not in page and 'href="/new"' not in page


def test_checking_loads_no_jax():
    code = (
        "import sys; from batchscale.web.experiment_form import form_toml, workload_form; "
        "from batchscale.web.experiment_check import try_text; "
        f"assert not try_text(form_toml(workload_form({CIFAR!r}))).problem; "
        "assert not {'jax', 'flax', 'optax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_an_unknown_workload_has_no_form():
    with pytest.raises(BatchscaleError, match="resnet_9"):
        workload_form("cifar_10/resnet_9/sgd")
