"""What the pages show, without a browser and without a script."""

import io
import json
import sys
import zipfile

import polars as pl
import pytest
from markupsafe import escape

from batchscale.analysis.answer import make_answer
from batchscale.analysis.curve_analysis import analyze
from batchscale.figures.kinds import kind_names
from batchscale.figures.selection import find_goal
from batchscale.records.read import read_records
from batchscale.web.charts import chart_kinds


def test_the_overview_shows_every_tree_with_state_goal_and_curve(site):
    page = site.visitor().get("/").text
    assert "finished" in page and "interrupted" in page
    assert 'class="state finished"' in page and 'class="state stopped"' in page
    assert f"/x/{site.key()}/small.svg" in page
    assert site.visitor().get(f"/x/{site.key()}/small.svg").text.count("<circle") >= 1


def test_the_overview_filters_and_sorts(site):
    client = site.visitor()
    assert "interrupted" not in client.get("/?q=finished").text
    assert "<bdi>finished</bdi></a>" not in client.get("/?state=stopped").text
    down = client.get("/?order=name&down=true").text
    assert down.index("<bdi>interrupted") < down.index("<bdi>finished")


def test_an_experiment_shows_its_curve_studies_and_trials(site):
    page = site.visitor().get(f"/x/{site.key()}").text
    for part in ("Batch sizes", "Studies of the run", "Trials", "Report and data", "learning_rate", "COMPLETE"):
        assert part in page
    records = read_records(site.folder / "finished")
    name = records.workloads[0]
    answer = make_answer(analyze(records, name, find_goal(records, name)))
    assert answer.figures or answer.advice
    for text in (*(figure.value for figure in answer.figures), *answer.advice, *answer.notes):
        assert str(escape(text)) in page
    assert "<img" in page and "alt=" in page


def test_pages_work_without_a_script_and_have_labels(site):
    page = site.visitor().get(f"/x/{site.key()}").text
    for name in ("kind", "size", "status", "order"):
        assert f'label for="{name}"' in page and f'id="{name}"' in page
    assert "style=" not in page and "onclick" not in page and "<script>" not in page


@pytest.mark.parametrize("kind", chart_kinds())
def test_every_kind_of_chart_is_drawn_or_says_why_not(site, kind):
    answer = site.visitor().get(f"/x/{site.key()}/chart/{kind}.svg")
    assert answer.status_code in (200, 422), answer.text
    assert answer.text.startswith("<svg") if answer.status_code == 200 else len(answer.text) > 20


def test_only_the_plan_needs_more_than_records():
    assert set(kind_names()) - set(chart_kinds()) == {"plan"}


def test_a_chart_comes_as_picture_data_and_specification(site):
    client, key = site.visitor(), site.key()
    assert client.get(f"/x/{key}/chart/curve.png").content.startswith(b"\x89PNG")
    assert "batch_size" in client.get(f"/x/{key}/chart/curve.csv").text
    spec = client.get(f"/x/{key}/chart/curve.json?theme=dark").json()
    assert "zoom_0" in json.dumps(spec)


def test_learning_curves_of_chosen_trials(site):
    client, key = site.visitor(), site.key()
    rows = pl.read_csv(client.get(f"/x/{key}/trials.csv").content)
    size, trial = rows.filter(pl.col("status") == "COMPLETE").select("batch_size", "trial_id").row(0)
    assert "Learning curves of" in client.get(f"/x/{key}?t={size}-{trial}").text
    data = pl.read_csv(client.get(f"/x/{key}/chart/training.csv?t={size}-{trial}").content)
    assert set(data["trial_id"]) == {trial}


def test_report_zip_and_tables_can_be_taken_away(site):
    client, key = site.visitor(), site.key()
    report = client.get(f"/x/{key}/report.html")
    assert "attachment" in report.headers["content-disposition"] and "How to reproduce and cite it" in report.text
    with zipfile.ZipFile(io.BytesIO(client.get(f"/x/{key}/records.zip").content)) as archive:
        names = archive.namelist()
        assert any(name.endswith("study.json") for name in names) and not any(".batchscale" in name for name in names)
        stored = next(name for name in names if name.endswith("measurements.csv"))
        assert archive.read(stored) == (site.folder / stored).read_bytes()
    table = pl.read_parquet(io.BytesIO(client.get(f"/x/{key}/measurements.parquet").content))
    assert {"step", "trial_id"} <= set(table.columns)


def test_two_experiments_are_compared(site):
    client = site.visitor()
    page = client.get(f"/compare?k={site.key()}&k={site.key('interrupted')}")
    assert page.status_code == 200 and "Compare" in page.text
    assert client.get("/compare").status_code == 200


def test_a_foreign_tree_and_a_table_are_shown(site):
    from batchscale.records.table.import_records import import_records

    import_records(site.folder / "finished", site.folder / "table")
    foreign = site.folder / "finished"
    for path in foreign.glob(".batchscale/*.json"):
        path.unlink()
    client = site.visitor()
    for _ in range(100):
        page = client.get("/").text
        if "being read" not in page:
            break
    assert "<bdi>table</bdi>" in page


def test_the_server_never_loads_jax(site):
    client = site.visitor()
    before = set(sys.modules)
    client.get(f"/x/{site.key()}")
    assert not {"jax", "flax", "optax"} & (set(sys.modules) - before)
