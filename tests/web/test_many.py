"""A thousand folders: runs told from their status files, tables with 170,000 trials, and what a restart remembers."""

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from build_records import METRIC, curve_studies, write_tree
from test_confirmation import write_study

from batchscale.records.table.import_records import import_records
from batchscale.run.status import RunStatus, StudyStatus, write_status
from batchscale.web.overview import CachedWorkload, Overview, OverviewCache, OverviewQuery, find_b_crit
from batchscale.web.records_folders import RecordsFolders
from batchscale.web.status import StatusReader

SIZES = (1, 4, 16, 64, 256)


def write_table(source: Path, table: Path, trials: int) -> None:
    """A table of one workload with so many trials at five batch sizes."""
    factors = tuple(1 + number / 10 for number in range(trials // len(SIZES)))
    law = {size: round(2000 * (1 + 64 / size)) for size in SIZES}
    write_tree(source, curve_studies(law, factors=factors, own={"goal": f"{METRIC} < 0.1", "format_version": 1}))
    table.parent.mkdir(exist_ok=True)
    import_records(source, table)


def fastest(client, path: str, tries: int = 3) -> tuple[float, str]:
    """The shortest of some answers, in seconds: others share this machine."""
    answers = [timed(client, path) for _ in range(tries)]
    return min(seconds for seconds, _, _ in answers), answers[-1][2]


def timed(client, path: str) -> tuple[float, float, str]:
    """Seconds by the clock and of processors that an answer takes, and its text."""
    started, used = time.perf_counter(), time.process_time()
    page = client.get(path)
    took = time.perf_counter() - started, time.process_time() - used
    assert page.status_code == 200
    return *took, page.text


def test_a_thousand_runs_are_paged(site):
    status = (site.folder / "finished" / ".batchscale" / "status.json").read_bytes()
    for number in range(1000):
        folder = site.folder / f"many/{number:04d}/.batchscale"
        folder.mkdir(parents=True)
        (folder / "status.json").write_bytes(status)
    client = site.visitor()
    seconds, page = fastest(client, "/?q=many&page=3")
    assert page.count("<bdi>many/") == 25 and "page 3 of 40" in page
    assert seconds < 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_tables_with_170_000_trials_take_under_a_second(make_site, tmp_path):
    site = make_site()
    write_table(tmp_path / "tree", site.folder / "many" / "0000", trials=170)
    for number in range(1, 1000):
        shutil.copytree(site.folder / "many" / "0000", site.folder / "many" / f"{number:04d}")
    client = site.visitor()
    seconds, page = fastest(client, "/?q=many", tries=1)  # nothing has been read yet
    assert "are being read" in page and seconds < 5
    while "being read" in client.get("/?q=many&order=b_crit").text:
        time.sleep(0.5)
    for path in ("/", "/?q=many&page=7", "/?q=many&order=b_crit&down=true", "/?q=0500"):
        seconds, page = fastest(client, path)
        assert seconds < 1, path
    assert ">170<" in page
    key = page.partition('href="/x/')[2].partition('"')[0]
    client.get(f"/x/{key}")
    assert fastest(client, f"/x/{key}?size=16&order=learning_rate&low0=0.1")[0] < 1
    first = [timed(make_site().visitor(), "/?q=many&page=2") for _ in range(3)]  # a restart remembers what was read
    assert all(page.count(">170<") == 25 for _, _, page in first)
    assert min(seconds for seconds, _, _ in first) < 1
    assert max(used for _, used, _ in first) < 0.5  # what a busy machine cannot blur


def test_what_was_read_is_remembered_until_the_files_change(tmp_path):
    write_table(tmp_path / "tree", tmp_path / "records" / "table", trials=20)
    store = tmp_path / "overview.json"

    def look() -> Overview:
        return Overview(RecordsFolders((tmp_path / "records",)), StatusReader(), store)

    def settled(overview: Overview):
        end = time.monotonic() + 60
        while overview.page(OverviewQuery()).waiting:
            assert time.monotonic() < end
            time.sleep(0.02)
        return overview.page(OverviewQuery()).rows[0]

    first = settled(look())
    assert first.trials == 20 and first.b_crit == pytest.approx(64, rel=0.1)
    end = time.monotonic() + 60
    while not OverviewCache.read(store).folders:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert look().page(OverviewQuery()).rows[0] == first  # at once, before anything is read
    stored = json.loads(store.read_text())
    stored["folders"][0][1][0] = "another signature"
    store.write_text(json.dumps(stored))
    assert settled(look()) == first


def test_a_damaged_store_is_as_good_as_none(tmp_path):
    file = tmp_path / "overview.json"
    known = OverviewCache({"/a": ("1", [CachedWorkload("a/b/c", "m < 1", ((1, 2),), 3)])}, {((1, 2),): None})
    known.write(file)
    assert OverviewCache.read(file) == known
    for text in ("", "{}", "[]", file.read_text()[:-9], '{"version": 2, "folders": [1], "fits": []}'):
        file.write_text(text)
        assert OverviewCache.read(file) == OverviewCache()


def test_a_curve_too_short_has_no_critical_batch_size():
    assert find_b_crit(()) is None and find_b_crit(((4, 10),)) is None


@pytest.mark.parametrize("is_run", [False, True])
def test_the_overview_shows_the_confirmed_curve(tmp_path, is_run):
    """As the experiment's page does: three new seeds of the only trial at each size, all slower than it was."""
    root = tmp_path / "records" / "mine"
    sizes = (4, 16, 64)
    for size in sizes:
        write_study(root, size, [60 - size // 4], {1: [70, 72, 74]})
        (root / "data/model/sgd" / str(size) / "study.json").write_text(
            json.dumps(
                json.loads((root / "data/model/sgd" / str(size) / "study.json").read_text())
                | {"batchscale": {"format_version": 2, "goal": "val/error < 0.5"}}
            )
        )
    if is_run:
        study = StudyStatus(
            batch_size=4, search=1, done=True, wanted=1, complete=4, infeasible=0, incomplete=0, running=0, reached=1,
            best_steps=59, front=74, train_steps=90, share=1.0, trial_steps=300, seconds=1.0, confirmations=3,
        )  # fmt: skip
        (root / ".batchscale").mkdir()
        studies = tuple(replace(study, batch_size=size, best_steps=60 - size // 4) for size in sizes)
        run = RunStatus(
            workload="data/model/sgd", goal="val/error < 0.5", source="e.toml", written_at=time.time(), elapsed_s=1.0,
            workers=1, steps_per_s=1.0, time_left_s=None, finished=True, failures={}, studies=studies,
        )  # fmt: skip
        write_status(root, run)
    overview = Overview(RecordsFolders((tmp_path / "records",)), StatusReader(), None)
    end = time.monotonic() + 60
    while (rows := overview.page(OverviewQuery()).rows)[0].points != ((4, 72), (16, 72), (64, 72)):
        assert time.monotonic() < end, rows
        time.sleep(0.02)
