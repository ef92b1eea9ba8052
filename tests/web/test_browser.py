"""The whole way in a real browser: sign in, create, start, watch, stop, continue, compare, plan, download."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from browsing import browse, fits, until

from batchscale.run.status import read_status

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

STORED = Path(__file__).parents[1] / "formats" / "format_1"
FIELDS = {
    "goal": "val/classification_error < 0.1",
    "batch_sizes": "16, 64, 256", "trials": "3", "finishers": "2", "budget": "20", "at_least_steps": "2000",
    "range_learning_rate": "0.003 to 1", "range_momentum": "0.5 to 0.95",
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path):
    """A real server in a process of its own: its sign-in address, and its folder."""
    folder = tmp_path / "records"
    folder.mkdir()
    shutil.copytree(STORED / "finished", folder / "other")
    command = [
        sys.executable,
        "-m",
        "batchscale",
        "web",
        str(folder),
        "--port",
        "0",
        "--state",
        str(tmp_path / "state"),
    ]
    child = subprocess.Popen([*command, "--workers", "1"], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    address = re.search(r"Open (\S+)", child.stdout.readline())
    assert address is not None
    yield address[1], folder
    child.terminate()
    child.wait(20)
    child.stdout.close()


@pytest.fixture
def page(server):
    """A page that remembers what its console said and whom it asked."""
    with browse(server[0].partition("/sign-in")[0]) as page:
        yield page


def test_from_signing_in_to_the_report(server, page, tmp_path):
    address, folder = server
    page.goto(address)
    page.wait_for_selector("text=Experiments")
    assert "#" not in page.url
    page.click("nav >> text=New")
    page.fill("#f-goal", "val/cross_entropy_error < 0.2")
    page.fill("#f-workload", "cifar_10/resnet_8/nesterov_momentum")  # fields and file follow, and the focus stays
    until(page, "document.getElementById('f-goal').value === 'val/classification_error < 0.3'")
    until(page, "document.getElementById('toml').value.includes('end_learning_rate_factor')")
    assert page.evaluate("document.activeElement.id") == "f-workload"
    page.select_option("#f-schedule", "constant")
    until(page, "document.getElementById('f-range_end_learning_rate_factor') === null")
    page.fill("#f-workload", "cifar_10/resn")
    page.wait_for_selector("#checked-file .problem")
    page.fill("#f-workload", "digits/fc_64/nesterov_momentum")
    until(page, "document.getElementById('f-goal').value === 'val/classification_error < 0.1'")
    for name, value in FIELDS.items():
        page.fill(f"#f-{name}", value)
    until(page, "document.getElementById('toml').value.includes('0.003')")
    page.wait_for_selector("#checked-file >> text=The file is valid")
    fits(page)
    page.fill("#name", "mine")
    page.click("text=Start >> nth=-1")
    page.wait_for_selector("#run-status .state.running")
    until(page, "document.querySelectorAll('#run-status tbody tr').length === 3")
    page.click("#stop")  # the button came by itself
    until(page, "!document.querySelector('#run-status .state.running')")
    page.click("#continue")
    page.wait_for_selector("#run-status .state.finished", timeout=240_000, state="attached")
    snapshot = read_status(folder / "mine")
    assert snapshot is not None and snapshot.finished
    page.reload()
    page.click("#h-status")  # folded once the run is over
    page.wait_for_selector("#extend")
    page.wait_for_selector("#chart .explored canvas")
    fits(page)
    with page.expect_download() as report:
        page.click(".actions >> text=Report")
    report.value.save_as(tmp_path / "report.html")
    assert "How to reproduce and cite it" in (tmp_path / "report.html").read_text()
    page.click("text=Plan machines")
    page.fill("[name=price0]", "2.5")
    page.fill("[name=price0]", "2.75")
    page.wait_for_selector("#plan-chart .explored canvas")
    fits(page)
    page.click("nav >> text=Experiments")
    fits(page)
    for box in page.query_selector_all("input[name=k]"):
        box.check()
    page.click("text=Compare the selected")
    for chart in ("curves", "rates"):
        page.wait_for_selector(f"#{chart} .explored canvas")
    fits(page)
    with page.expect_download() as data:
        page.click("text=CSV >> nth=-1")
    data.value.save_as(tmp_path / "rates.csv")
    assert "learning_rate" in (tmp_path / "rates.csv").read_text()
    assert page.said == [] and page.foreign == []
