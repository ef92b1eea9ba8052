"""Draw the pictures of docs/gallery.md with the commands that stand there: ``make gallery``.

    python scripts/gallery_pictures.py [KIND ...]

A picture of ``batchscale figure`` is drawn in light and in dark colours; the site shows the one that suits the reader.
Coordinates are rounded to hundredths of a point, and pictures of pixels reduced to 128 colours.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "pictures" / "gallery"
ENTRY = re.compile(
    r"^### [^\n]+: `([\w-]+)`\n.*?^```sh run\n(.*?)^```\n\n!\[[^\]]*\]\(pictures/gallery/([^)]+)\)", re.M | re.S
)
COORDINATES = re.compile(r' (?:d|transform|x|y|x1|x2|y1|y2|width|height)="[^"]*"')
LONG_NUMBER = re.compile(r"\d+\.\d{3,}")
COLOURS = 128


def read_entries(text: str) -> list[tuple[str, list[list[str]], str]]:
    """Return the kinds of the page, each with its commands as words, and the file of its picture."""
    return [(kind, _commands(block), picture) for kind, block, picture in ENTRY.findall(text)]


def _commands(block: str) -> list[list[str]]:
    return [shlex.split(line)[1:] for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def draw(commands: list[list[str]], folder: Path, theme: str) -> None:
    """Run the commands of a kind in a folder; a theme changes the colours of the last one."""
    last = [*commands[-1], *(["--theme", theme] if commands[-1][0] == "figure" else [])]
    for words in (*commands[:-1], last):
        subprocess.run([sys.executable, "-m", "batchscale", *words], cwd=folder, check=True, capture_output=True)


def store(source: Path, target: Path) -> None:
    """Write a picture in its small form."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".svg":
        target.write_text(round_coordinates(source.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        from PIL import Image

        picture = Image.open(source).convert("RGB")
        picture.quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE).save(target, optimize=True)
    print(target.name, f"{target.stat().st_size / 1000:.0f} kB")


def round_coordinates(svg: str) -> str:
    """Round the coordinates of a drawing; the numbers that it shows stay as they are.

    >>> round_coordinates('<text x="1.23456" aria-label="0.0354">0.035</text>')
    '<text x="1.23" aria-label="0.0354">0.035</text>'
    """
    return COORDINATES.sub(lambda match: LONG_NUMBER.sub(lambda number: f"{float(number[0]):.2f}", match[0]), svg)


def main() -> None:
    """Draw all pictures, or those of the kinds that are named."""
    entries = [entry for entry in read_entries(PAGE.read_text(encoding="utf-8")) if entry[0] in (sys.argv[1:] or entry)]
    for _, commands, picture in entries:
        themes = ("light", "dark") if commands[-1][0] == "figure" else ("light",)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "examples").symlink_to(ROOT / "examples")
            for theme in themes:
                draw(commands if theme == "light" else commands[-1:], folder, theme)
                target = PICTURES / picture
                store(folder / picture, target if theme == "light" else target.with_stem(f"{target.stem}-dark"))


if __name__ == "__main__":
    main()
