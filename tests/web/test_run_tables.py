"""The plan of a table of runs: the decision of the design document, and files that are no such tables."""

import re
import shutil
from pathlib import Path

import pytest

from batchscale.web.pages.runs import MAX_BYTES, find_run_tables

RUNS = Path(__file__).parents[2] / "examples" / "ddsp_training_runs.csv"


@pytest.fixture
def page_of(site):
    shutil.copy(RUNS, site.folder / "runs.csv")
    client = site.visitor()
    address = re.search(r'href="(/runs/[0-9a-f]{16})"', client.get("/runs").text)[1]
    return lambda query="": client.get(f"{address}{query}")


def rows_of(page: str) -> list[str]:
    body = page[page.index("Configurations</h2>") :]
    return [re.sub(r"<[^>]+>", " ", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", body, re.DOTALL)]


def test_the_plan_of_the_design_documents_runs(page_of):
    rows = rows_of(page_of().text)
    tagged = {tag: row for row in rows for tag in re.findall(r"(?:fastest|cheapest)(?: on NVIDIA \w+)?", row)}
    assert "4 hosts × 2 NVIDIA T4" in tagged["fastest on NVIDIA T4"]
    assert "4:11 h" in tagged["fastest on NVIDIA T4"] and "43.9 ML units" in tagged["fastest on NVIDIA T4"]
    assert "one NVIDIA T4" in tagged["cheapest"] and " 16 " in tagged["cheapest"]
    assert "learning rate 0.0001" in tagged["cheapest"]


def test_one_sentence_recommends_by_the_limits(page_of):
    lead = re.compile(r'<p class="lead">(.*?)</p>')
    assert lead.search(page_of().text)[1].startswith("Train on one NVIDIA T4 with a batch of 16 to pay least: 9:48 h")
    in_time = lead.search(page_of("?deadline=5").text)[1]
    assert "4 hosts × 2 NVIDIA T4 with a batch of 128: 4:11 h and 43.9 ML units, the cheapest within 5:00 h" in in_time
    assert "No configuration reaches the goal within" in lead.search(page_of("?deadline=0.1").text)[1]


@pytest.mark.parametrize("suffix", ["svg", "csv", "json", "png"])
def test_its_chart(page_of, suffix):
    answer = page_of(f".{suffix}")
    assert answer.status_code == 200 and len(answer.content) > 500


def test_files_that_are_no_tables_of_runs_are_left_out(tmp_path):
    (tmp_path / "below" / "deeper").mkdir(parents=True)
    shutil.copy(RUNS, tmp_path / "below" / "kept.csv")
    shutil.copy(RUNS, tmp_path / "below" / "deeper" / "too_deep.csv")
    shutil.copy(RUNS, tmp_path / ".hidden.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "large.csv").write_bytes(b"batch_size,steps\n" + b"1,2\n" * (MAX_BYTES // 4))
    (tmp_path / "link.csv").symlink_to(RUNS)
    assert [table.name for table in find_run_tables((tmp_path,))] == ["below/kept.csv"]


def test_a_broken_table_is_a_sentence_and_a_missing_one_a_404(site):
    (site.folder / "broken.csv").write_text(
        "batch_size,steps,reached,device,hosts,seconds,cost_usd\n16,many,yes,T4,1,2,3\n"
    )
    client = site.visitor()
    address = re.search(r'href="(/runs/[0-9a-f]{16})"', client.get("/runs").text)[1]
    page = client.get(address)
    assert page.status_code == 200 and 'role="alert"' in page.text and "many" in page.text
    assert client.get("/runs/0123456789abcdef").status_code == 404


def test_without_tables_the_page_says_how_to_add_one(site):
    assert "Put a CSV file into a served folder" in site.visitor().get("/runs").text


def test_strangers_see_no_runs(site):
    shutil.copy(RUNS, site.folder / "runs.csv")
    assert site.stranger().get("/runs").status_code in (303, 401)
