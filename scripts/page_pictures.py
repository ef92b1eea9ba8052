"""Pictures of the report, of every web page and of the curve: ``make page-pictures RECORDS=FOLDER``.

    python scripts/page_pictures.py FOLDER [--out docs/pictures] [--all] [--only NAME ...]

FOLDER has an experiment whose name begins with ``digits`` (``batchscale quickstart --out FOLDER/digits``), whose report
is shown, and others to compare it with; instruments in it are shown as well. For the documentation wide pictures are
light and narrow ones dark, each of one screen; ``--all`` makes whole pages in both themes at both widths. A page that
is wider than its window, a message in the browser's console, or a request to elsewhere is an error.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

from PIL import Image

from batchscale.analysis.curve_analysis import analyze, stored_goal
from batchscale.figures.export import write_chart
from batchscale.figures.kinds.curve import LOOK, analysis_frame, plot_curve
from batchscale.figures.layout import PanelSize
from batchscale.records.tree.read import read_tree

WIDTHS = (1400, 400)
THEMES = ("light", "dark")
VIEWS = ((1400, "light"), (400, "dark"))
WAIT_MS = 120_000
COLOURS = 256
ROWS = """all => all.map(row => [row.querySelector('td.name a').getAttribute('href'),
  row.querySelector('td.name a').innerText, row.querySelector('td[data-label=B_crit]').innerText.trim()])"""
DRAWN = """() => [...document.querySelectorAll('figure[data-chart]')].every(
  figure => figure.closest('details:not([open])') || figure.querySelector('.explored canvas, picture'))
  && [...document.images].every(image => image.complete || image.loading === 'lazy')"""


def start_server(folder: Path, state: Path) -> tuple[subprocess.Popen, str]:
    """A server of the folder, and the address to sign in at."""
    command = [sys.executable, "-m", "batchscale", "web", str(folder), "--port", "0", "--state", str(state)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    found = re.search(r"Open (\S+)", child.stdout.readline())
    assert found is not None
    return child, found[1]


def draw_curve(records: Path, out: Path) -> None:
    """The curve of the README, wide enough for the names of all regimes."""
    found = read_tree(records)
    workload = found.workloads[0]
    goal = stored_goal(found, workload)
    assert goal is not None
    look = replace(LOOK, size=PanelSize(760, 400))
    write_chart(plot_curve(analysis_frame(analyze(found, workload, goal)), look), out, "curve")


def find_pages(page, home: str) -> dict[str, str]:
    """The address of each page that has a picture."""
    page.goto(home)
    rows = page.eval_on_selector_all("#rows tbody tr", ROWS)
    digits = next(address for address, name, _ in rows if name.startswith("digits"))
    others = [row for row in rows if not row[1].startswith(("digits", "instruments"))]
    pages = {
        "overview": "/", "new": "/new", "experiment": digits,
        "linked": f"{digits}?size=32&smooth=0.6&t=32-1&t=32-2#h-trials",
    }  # fmt: skip
    if others:
        other = max(others, key=lambda row: row[2] != "")[0]  # the first that has a critical batch size
        pages["compare"] = f"/compare?k={digits[3:]}&k={other[3:]}"
    page.goto(f"{home}{digits}/plan")
    device = page.input_value("[name=device0]")
    pages["plan"] = f"{digits}/plan?name0=mine&device0={device}&devices0=1&hosts0=4&price0=2.5"
    page.goto(f"{home}/runs")
    if found := page.query_selector("td.name a"):  # finished runs, which make a plan that is worth a picture
        pages["plan"] = found.get_attribute("href") or ""
    page.goto(f"{home}/instruments")
    if found := page.query_selector("main li a"):
        pages["instrument"] = found.get_attribute("href") or ""
    return pages


def shoot(page, address: str, width: int, file: Path, *, whole: bool) -> None:
    """One picture, in few colours."""
    page.goto(address)
    for _ in range(WAIT_MS // 200):
        if page.evaluate(DRAWN):
            break
        page.wait_for_timeout(200)
    else:
        raise SystemExit(f"{address}: its charts are not drawn.")
    found = page.evaluate("document.documentElement.scrollWidth")
    if found > width:
        raise SystemExit(f"{address}: {found} points wide in a window of {width}.")
    picture = Image.open(BytesIO(page.screenshot(full_page=whole))).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(file, optimize=True)
    print(file.name)


def batchscale(*words: object) -> None:
    """Run one command."""
    command = [sys.executable, "-m", "batchscale", *map(str, words)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Make all of them."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "pictures")
    parser.add_argument("--all", action="store_true", help="whole pages, in both themes at both widths")
    parser.add_argument("--only", nargs="*", default=[], help="names of pages, such as experiment")
    parser.add_argument("--page", nargs=2, action="append", default=[], metavar=("NAME", "PATH"), help="a further page")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    views = [(width, theme) for width in WIDTHS for theme in THEMES] if arguments.all else VIEWS
    said: list[str] = []
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        server, address = start_server(arguments.folder, Path(work) / "state")
        try:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            first = browser.new_context()
            page = first.new_page()
            page.set_default_timeout(WAIT_MS)
            page.goto(address)
            page.wait_for_selector("td.name a")
            while page.query_selector("text=are being read"):
                page.wait_for_timeout(1000)
            home = address.partition("/sign-in")[0]
            pages = find_pages(page, home) | dict(arguments.page)
            digits = next(folder for folder in sorted(arguments.folder.iterdir()) if folder.name.startswith("digits"))
            report = Path(work) / "report.html"
            batchscale("report", digits / "records", "--out", report)
            if not arguments.all:
                draw_curve(digits / "records", arguments.out / "quickstart.png")
            addresses = {f"web-{name}": home + path for name, path in pages.items()} | {"report": report.as_uri()}
            for width, theme in views:
                context = browser.new_context(
                    viewport={"width": width, "height": 1000}, color_scheme=theme, storage_state=first.storage_state()
                )
                page = context.new_page()
                page.set_default_timeout(WAIT_MS)
                page.on("console", lambda message: said.append(message.text))
                page.on("pageerror", lambda error: said.append(str(error)))
                page.on(
                    "request",
                    lambda asked: (
                        None if asked.url.startswith((home, "file:", "data:", "blob:")) else said.append(asked.url)
                    ),
                )
                for name, place in addresses.items():
                    if arguments.only and name.removeprefix("web-") not in arguments.only:
                        continue
                    suffix = f"-{theme}" if arguments.all else ""
                    file = arguments.out / f"{name}-{width}{suffix}.png"
                    shoot(page, place, width, file, whole=arguments.all)
        finally:
            server.terminate()
            server.wait(30)
    if said:
        raise SystemExit("\n".join(said))


if __name__ == "__main__":
    main()
