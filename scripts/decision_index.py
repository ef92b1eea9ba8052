"""The list of the decision records, docs/decisions/index.md, from their headings."""

import re
from pathlib import Path

TOP = """# Decisions
Choices that were not obvious, each with its context, what was decided, what follows, and what was tried or measured. A
record has the heading `# NNNN Title` with the number of its file name, and parts that begin with **Context.**,
**Decision.**, **Consequence.**, **Measured.** or **Tried.** A record that a later one
replaces begins with **Superseded**. Numbers are given by subject, so some are missing. This
list is made from the headings (`make pages`).

| | |
|---|---|
"""
HEADING = re.compile(r"# (\d{4}) (.+)")


def make_page(folder: Path) -> str:
    """The whole page as Markdown.

    Raises:
        ValueError: a record's first line is not a heading with the number of its file name.
    """
    return TOP + "".join(f"{_row(record)}\n" for record in sorted(folder.glob("[0-9]*.md")))


def _row(record: Path) -> str:
    first = record.read_text(encoding="utf-8").splitlines()[0]
    heading = HEADING.fullmatch(first)
    if heading is None or heading[1] != record.name[:4]:
        raise ValueError(f"{record.name} must begin with '# {record.name[:4]} Title'. Found {first!r}.")
    return f"| {heading[1]} | [{heading[2]}]({record.name}) |"
