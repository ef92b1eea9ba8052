"""Draw the pictures of README and docs/figures.md again: a fresh quickstart's curve, and the report of records.

    python scripts/pictures.py --quickstart RECORDS --report RECORDS

The report is photographed by a headless Chromium at two widths (`make test-browser` installs one on Debian). Look at
what comes out before you commit it.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
HEIGHTS = {1400: 2300, 400: 2600}
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND")
COLOURS = 256
# A window of Chromium is never narrower than 500 points, so a page is looked at through a frame of the wanted width.
FRAME = """<!DOCTYPE html><style>body {{ margin: 0 }} iframe {{ border: 0; display: block }}</style>
<iframe src="{page}" width="{width}" height="{height}"></iframe>"""


def main() -> None:
    """Write the pictures into docs/pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quickstart", type=Path, help="records of `batchscale quickstart`: quickstart.png")
    parser.add_argument("--report", type=Path, help="records: report-1400.png and report-400.png")
    chosen = parser.parse_args()
    if chosen.quickstart:
        _batchscale("figure", "curve", chosen.quickstart, "--out", PICTURES / "quickstart.png")
    if chosen.report:
        with tempfile.TemporaryDirectory() as name:
            page = Path(name) / "report.html"
            _batchscale("report", chosen.report, "--out", page)
            for width, height in HEIGHTS.items():
                photograph(page, width, height).save(PICTURES / f"report-{width}.png", optimize=True)


def photograph(page: Path, width: int, height: int) -> Image.Image:
    """The top of a page as a browser of that width shows it, in few colours."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("The report is photographed by Chromium. Found none: `make test-browser` installs it.")
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.format(page=page.name, width=width, height=height))
    picture = page.with_name("picture.png")
    size = f"--window-size={max(width, 500)},{height}"
    words = [browser, *FLAGS, size, "--virtual-time-budget=5000", f"--screenshot={picture}", frame.as_uri()]
    subprocess.run(words, check=True, capture_output=True)
    shown = Image.open(BytesIO(picture.read_bytes())).convert("RGB").crop((0, 0, width, height))
    return shown.quantize(COLOURS)


def _batchscale(*words: object) -> None:
    subprocess.run([sys.executable, "-m", "batchscale", *map(str, words)], check=True)


if __name__ == "__main__":
    main()
