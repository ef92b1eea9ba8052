"""The report in a real browser: nothing on the console, nothing on the network, charts visible at both widths."""

import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made_records import GOAL, simulated
from PIL import Image

from batchscale.figures.export import write_chart
from batchscale.figures.kinds.curve import curve_frame, plot_curve
from batchscale.figures.theme import LIGHT
from batchscale.report.page import make_report

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-extensions",
    "--hide-scrollbars", "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
WIDTHS = (400, 1400)
# A window of Chromium is never narrower than 500 points, so a page is looked at through a frame of the wanted width.
FRAME = """<!DOCTYPE html><style>body {{ margin: 0 }} iframe {{ border: 0; display: block }}</style>
<iframe src="{page}" width="{width}" height="2400"></iframe>
<script>addEventListener("message", event => {{ document.title = event.data; }});</script>"""
# What a reader would look for, told to the frame, whose title --dump-dom prints.
PROBE = """
<script>
const points = document.querySelectorAll('svg [role="graphics-symbol"][aria-label*="batch size"]');
const seen = [...document.querySelectorAll("svg")].filter(s => s.getBoundingClientRect().width > 200);
const isShown = m => m.getBoundingClientRect().width > 0 && m.getAttribute("aria-roledescription") !== "axis";
const shown = [...points].find(isShown);
shown.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: 50, clientY: 50}));
const scales = seen.map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width);
parent.postMessage(JSON.stringify({
  wide: document.documentElement.scrollWidth, room: window.innerWidth, charts: seen.length,
  scale: Math.min(...scales), tip: document.getElementById("tip").textContent,
}), "*");
</script>
"""


@pytest.fixture(scope="module")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.fail("These tests need Chromium; `make test-browser` installs it.")
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(make_report(simulated(), GOAL))
    return file


def browse(chromium: str, page: Path, folder: Path, *flags: str) -> tuple[str, str, list[str]]:
    """What the browser prints, what its console says, and the addresses it asked for."""
    net_log = folder / "net.json"
    own = (f"--user-data-dir={folder / 'profile'}", f"--log-net-log={net_log}")
    done = subprocess.run(
        [chromium, *FLAGS, *own, *flags, page.as_uri()], capture_output=True, text=True, timeout=300, check=True
    )
    console = "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
    return done.stdout, console, _asked(net_log.read_text())


def in_frame(page: Path, width: int) -> tuple[Path, str]:
    """A page that shows the page at a width, and the flag for a window that holds it."""
    frame = page.with_name(f"frame-{width}.html")
    frame.write_text(FRAME.format(page=page.name, width=width))
    return frame, f"--window-size={max(width, 500)},2400"


def _asked(net_log: str) -> list[str]:
    """Addresses that a page asked for; the browser's own questions have no page as their initiator."""
    events = (event.get("params", {}) for event in json.loads(net_log)["events"])
    asked = {p["url"] for p in events if "url" in p and p.get("initiator", "not an origin") != "not an origin"}
    return sorted(url for url in asked if not url.startswith(("file:", "data:")))


def test_a_request_of_a_page_would_be_seen(chromium: str, tmp_path: Path):
    page = tmp_path / "asking.html"
    page.write_text('<img src="http://example.invalid/x.png"><script>console.error("heard")</script>')
    _, console, addresses = browse(chromium, page, tmp_path, "--dump-dom")
    assert "heard" in console
    assert addresses == ["http://example.invalid/x.png"]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_is_quiet_and_shows_its_charts(chromium: str, report: Path, tmp_path: Path, width: int):
    picture = tmp_path / "page.png"
    frame, window = in_frame(report, width)
    _, console, addresses = browse(chromium, frame, tmp_path, window, f"--screenshot={picture}")
    assert console == ""
    assert addresses == []
    drawn = Image.open(io.BytesIO(picture.read_bytes())).convert("RGB")
    colours = {colour: count for count, colour in drawn.getcolors(1 << 24)}
    assert colours.get((0x00, 0x72, 0xB2), 0) > 300  # the curve
    assert colours.get(tuple(int(LIGHT.soft[i : i + 2], 16) for i in (1, 3, 5)), 0) > 3000  # the key figures


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_fits_its_width_and_marks_answer_the_pointer(
    chromium: str, report: Path, tmp_path: Path, width: int
):
    probed = tmp_path / "probed.html"
    text = re.sub(r"script-src '[^']+'", "script-src 'unsafe-inline'", report.read_text())
    probed.write_text(text.replace("</body>", PROBE + "</body>"))
    frame, window = in_frame(probed, width)
    printed, _, _ = browse(chromium, frame, tmp_path, window, "--dump-dom", "--virtual-time-budget=5000")
    found = json.loads(re.search(r"<title>(.*?)</title>", printed)[1].replace("&amp;", "&"))
    assert found["room"] == width
    assert found["wide"] <= width  # nothing sticks out; wide tables scroll by themselves
    assert found["charts"] >= 8
    assert found["scale"] > 0.75  # 11 point labels stay above 8
    assert "batch size" in found["tip"] and "steps to result" in found["tip"]


def test_an_interactive_figure_is_quiet_and_draws_itself(chromium: str, tmp_path: Path):
    page = tmp_path / "figure.html"
    write_chart(plot_curve(curve_frame(simulated(), GOAL)), page)
    printed, console, addresses = browse(chromium, page, tmp_path, "--dump-dom", "--virtual-time-budget=20000")
    assert console == ""
    assert addresses == []
    assert "<svg" in printed and "steps to result" in printed.split('id="chart"', 1)[1]
