"""The plan page: machines as typed, the plan at once, job files to take away."""

import io
import zipfile

import polars as pl
import pytest
from typer.testing import CliRunner

import batchscale.cli.web as web_command
from batchscale.cli.app import make_app
from batchscale.cli.plan_job import train_options
from batchscale.errors import PlanningError
from batchscale.web.plans import PlanQuery, default_rows, plan_of, read_query


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


def test_a_device_that_is_left_out_is_the_only_one_that_was_timed(site):
    client, key = site.visitor(), site.key()
    query = {"name0": "mine", "devices0": "1", "hosts0": "2", "price0": "3.5"}
    page = client.get(f"/x/{key}/plan", params=query).text
    assert _device(page) and 'class="problem"' not in page
    with pytest.raises(PlanningError, match="name the device"):
        plan_of(None, (object(),), PlanQuery((("mine", "", "1", "1", "2"),)))


def test_hostile_rows_are_text(site):
    page = site.visitor().get(f"/x/{site.key()}/plan", params={"name0": '"><script>', "device0": "<b>"}).text
    assert "<script>" not in page and "<b>" not in page


def test_the_default_table_has_no_made_up_price():
    assert default_rows(()) == ()
    assert read_query({"deadline": "nan", "budget": "-3"}, ()) == PlanQuery((), "USD", None, None)
