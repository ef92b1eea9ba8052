"""The plan page: machines as typed, the plan at once, job files to take away."""

import html
import io
import re
import zipfile

import polars as pl
import pytest
from typer.testing import CliRunner

import batchscale.cli.web as web_command
from batchscale.cli.app import make_app
from batchscale.cli.plan_job import train_options
from batchscale.errors import PlanningError
from batchscale.web.plans import PlanQuery, default_rows, plan_of, plan_values, read_query


@pytest.fixture
def analysis():
    from batchscale.analysis.curve_analysis import analyze_points

    sizes = [1, 4, 16, 64, 256]
    return analyze_points(pl.DataFrame({"batch_size": sizes, "steps": [100 * (1 + 32 / b) for b in sizes]}))


def test_without_step_times_the_page_says_so(analysis):
    with pytest.raises(PlanningError, match="step times"):
        plan_of(analysis, (), PlanQuery(()))


def test_a_plan_of_recorded_runs_follows_the_typed_machines(site):
    client, key = site.visitor(), site.key()
    assert "price" in client.get(f"/x/{key}/plan").text
    device = _device(client.get(f"/x/{key}/plan").text)
    query = {"name0": "mine", "device0": device, "devices0": "1", "hosts0": "2", "price0": "3.5", "deadline": "10"}
    page = client.get(f"/x/{key}/plan", params=query)
    assert 'class="problem"' not in page.text, page.text.partition('class="problem"')[2][:400]
    assert "mine" in page.text and "The front" in page.text
    assert client.get(f"/x/{key}/plan.svg", params=query).text.startswith("<svg")
    assert client.get(f"/x/{key}/plan.png", params=query).content.startswith(b"\x89PNG")
    assert "zoom_0" in client.get(f"/x/{key}/plan.json", params={**query, "width": "360"}).text
    assert "mine" in client.get(f"/x/{key}/plan.csv", params=query).text
    job = client.get(f"/x/{key}/job.zip", params={**query, "job": "slurm", "pick": "fastest"})
    with zipfile.ZipFile(io.BytesIO(job.content)) as archive:
        assert any("batchscale train" in archive.read(name).decode() for name in archive.namelist())


def test_the_command_tells_the_server_which_options_a_job_may_use(tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(web_command, "_serve", lambda settings, _token_file: served.append(settings))
    (tmp_path / "records").mkdir()
    words = ["web", str(tmp_path / "records"), "--state", str(tmp_path / "state")]
    assert CliRunner().invoke(make_app(), words).exit_code == 0
    assert {"--batch-size", "--steps", "--set"} <= served[0].train_options == train_options()


def _device(page: str) -> str:
    return page.partition('name="device0" value="')[2].partition('"')[0]


@pytest.mark.parametrize(
    ("field", "value"), [("price0", "-1"), ("price0", "nan"), ("devices0", "x"), ("hosts0", "9" * 30), ("price0", "")]
)
def test_a_wrong_row_is_named(site, field, value):
    query = {"name0": "m", "device0": "cpu", "devices0": "1", "hosts0": "1", "price0": "1", field: value}
    page = site.visitor().get(f"/x/{site.key()}/plan", params=query).text
    assert "Machine 1" in page


WORK = "batch_size,flops,parameters,precision\n8,8e12,1e8,float32\n64,64e12,1e8,float32"


def test_pasted_work_plans_machines_that_nobody_measured(site):
    client, key = site.visitor(), site.key()
    page = client.get(f"/x/{key}/plan", params={"work": WORK}).text
    assert 'class="problem"' not in page, page.partition('class="problem"')[2][:400]
    devices = re.findall(r'name="device\d+" value="([^"]*)"', page)
    assert {"NVIDIA T4", "NVIDIA V100", "NVIDIA H100"} <= set(devices) and len(devices) <= 12
    assert "NVIDIA T4: estimated at" in page
    assert "estimated" in client.get(f"/x/{key}/plan.csv", params={"work": WORK}).text
    form = client.get(f"/x/{key}/plan").text
    untouched = dict(re.findall(r'name="((?:name|device|devices|hosts|price)0)" value="([^"]*)"', form))
    assert len(untouched) == 5
    assert "NVIDIA V100" in client.get(f"/x/{key}/plan", params={**untouched, "work": WORK}).text
    changed = client.get(f"/x/{key}/plan", params={**untouched, "price0": "77", "work": WORK}).text
    assert "NVIDIA V100" not in changed


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ("batch_size,flops\n8,1e9", "Missing: parameters"),
        (WORK.replace("8e12", "-1", 1), "Work of a step, line 2: flops must be a positive number"),
        (WORK.replace("float32", "float7"), "precision must be one of"),
        ('a,"b', "must be a line of CSV"),
        ("workload," + WORK.replace("\n", "\nother/other/sgd,"), "the work must be of one workload"),
    ],
)
def test_wrong_work_is_a_sentence_about_the_field(site, work, message):
    problem = _problem(site.visitor().get(f"/x/{site.key()}/plan", params={"work": work}).text)
    assert "Work of a step" in problem and message in problem and "--" not in problem


def test_problems_name_fields_and_not_options(site, analysis):
    row = {"name0": "m", "device0": "cpu", "devices0": "0", "hosts0": "1", "price0": "1"}
    assert "devices per host" in _problem(site.visitor().get(f"/x/{site.key()}/plan", params=row).text)
    values = plan_values(lambda: plan_of(analysis, (), PlanQuery(())), PlanQuery(()))
    assert "the work of a step" in values["problem"] and "--step-times" not in values["problem"]
    unknown = PlanQuery((("m", "Abacus 9", "1", "1", "1"),), work=WORK)
    values = plan_values(lambda: plan_of(analysis, (), unknown), unknown)
    assert "Abacus 9 is not in the table of devices" in values["problem"] and "--" not in values["problem"]


def _problem(page: str) -> str:
    return html.unescape(page.partition('role="alert">')[2].partition("</p>")[0])


def test_a_device_that_is_left_out_is_the_only_one_that_was_timed(site, analysis):
    client, key = site.visitor(), site.key()
    query = {"name0": "mine", "devices0": "1", "hosts0": "2", "price0": "3.5"}
    page = client.get(f"/x/{key}/plan", params=query).text
    assert _device(page) and 'class="problem"' not in page
    with pytest.raises(PlanningError, match="name the device"):
        plan_of(analysis, (object(),), PlanQuery((("mine", "", "1", "1", "2"),)))


def test_hostile_rows_are_text(site):
    page = site.visitor().get(f"/x/{site.key()}/plan", params={"name0": '"><script>', "device0": "<b>"}).text
    assert "<script>" not in page and "<b>" not in page


def test_the_default_table_has_no_made_up_price():
    assert default_rows(()) == ()
    assert read_query({"deadline": "nan", "budget": "-3"}, ()) == PlanQuery((), "USD", None, None)
