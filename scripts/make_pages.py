"""Writes the pages, and the parts of pages, that are made from the code: ``make pages``.

docs/experiment-file.md and docs/decisions/index.md are made as a whole; docs/architecture.md keeps its own words around
the import graph. tests/docs/test_made_pages.py holds them current.
"""

from pathlib import Path

import decision_index
import experiment_reference
import import_graph

DOCS = Path(__file__).parents[1] / "docs"
START, END = "<!-- the import graph, written by `make pages` -->\n", "\n<!-- end of the import graph -->"


def make_pages(docs: Path = DOCS) -> dict[Path, str]:
    """The text of every page that is made, wholly or in part."""
    architecture = docs / "architecture.md"
    before, start, rest = architecture.read_text(encoding="utf-8").partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"{architecture} must have the lines {START.strip()!r} and {END.strip()!r} around the graph.")
    graph = import_graph.make_part(import_graph.read_modules())
    return {
        docs / "experiment-file.md": experiment_reference.make_page(),
        docs / "decisions" / "index.md": decision_index.make_page(docs / "decisions"),
        architecture: before + start + graph + end + after,
    }


if __name__ == "__main__":
    for page, text in make_pages().items():
        page.write_text(text, encoding="utf-8")
