"""Pictures of the web interface at both widths, for docs/web.md: ``make web-pictures RECORDS=FOLDER``.

    python scripts/web_pictures.py FOLDER [--out docs/pictures]

FOLDER has an experiment whose name begins with ``digits`` (``batchscale quickstart --out FOLDER/digits``) and others to
compare it with; instruments in it are shown as well. Wide pictures are light, narrow ones dark. A page that is wider
than its window, or a message in the browser's console, is an error.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VIEWS = ((1400, "light"), (400, "dark"))
WAIT_MS = 120_000
ROWS = """all => all.map(row => [row.querySelector('td.name a').getAttribute('href'),
  row.querySelector('td.name').innerText, row.querySelector('td[data-label=B_crit]').innerText.trim()])"""
DRAWN = """() => [...document.querySelectorAll('figure[data-chart]')].every(
  figure => figure.closest('details:not([open])') || figure.querySelector('.explored canvas, picture'))
  && [...document.images].every(image => image.complete)"""


def start_server(folder: Path, state: Path) -> tuple[subprocess.Popen, str]:
    """A server of the folder, and the address to sign in at."""
    command = [sys.executable, "-m", "batchscale", "web", str(folder), "--port", "0", "--state", str(state)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    found = re.search(r"Open (\S+)", child.stdout.readline())
    assert found is not None
    return child, found[1]


def find_pages(page, home: str) -> dict[str, str]:
    """The address of each page that has a picture."""
    page.goto(home)
    rows = page.eval_on_selector_all("table.cards tbody tr", ROWS)
    digits = next(address for address, name, _ in rows if name.startswith("digits"))
    others = [row for row in rows if not row[1].startswith(("digits", "instruments"))]
    other = max(others, key=lambda row: row[2] != "")[0]  # the first that has a critical batch size
    page.goto(f"{home}{digits}/plan")
    device = page.input_value("[name=device0]")
    pages = {
        "overview": "/", "new": "/new", "experiment": digits,
        "linked": f"{digits}?size=16&smooth=0.6&t=16-1&t=16-2#h-trials",
        "plan": f"{digits}/plan?name0=mine&device0={device}&devices0=1&hosts0=4&price0=2.5&deadline=0.05",
        "compare": f"/compare?k={digits[3:]}&k={other[3:]}",
    }  # fmt: skip
    page.goto(f"{home}/instruments")
    if found := page.query_selector("main li a"):
        pages["instrument"] = found.get_attribute("href") or ""
    return pages


def shoot(page, address: str, width: int, file: Path) -> None:
    """One picture."""
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
    page.screenshot(path=str(file))


def main() -> None:
    """Make all of them."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "pictures")
    arguments = parser.parse_args()
    said: list[str] = []
    with tempfile.TemporaryDirectory() as state, sync_playwright() as playwright:
        server, address = start_server(arguments.folder, Path(state) / "state")
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
            pages = find_pages(page, home)
            for width, theme in VIEWS:
                context = browser.new_context(
                    viewport={"width": width, "height": 1000}, color_scheme=theme, storage_state=first.storage_state()
                )
                page = context.new_page()
                page.set_default_timeout(WAIT_MS)
                page.on("console", lambda message: said.append(message.text))
                page.on("pageerror", lambda error: said.append(str(error)))
                for name, path in pages.items():
                    shoot(page, home + path, width, arguments.out / f"web-{name}-{width}.png")
                    print(f"web-{name}-{width}.png")
        finally:
            server.terminate()
            server.wait(30)
    if said:
        raise SystemExit("\n".join(said))


if __name__ == "__main__":
    main()
