"""A table as lines of text within a width: words wrap first; where that is not enough, rows become blocks.

Numbers are never cut or wrapped.
"""

import textwrap
from collections.abc import Sequence

GAP = "  "
NARROWEST = 12
"""A column of text is wrapped to no fewer characters than this, nor than its longest word."""


def lay_out(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: frozenset[int], width: int | None
) -> tuple[list[str], list[str]]:
    r"""The lines of the header and of the rows; ``right`` are the positions that are aligned to the right.

    >>> header, lines = lay_out(["batch size", "note"], [["8", "two searches"]], frozenset([0]), 19)
    >>> print("\n".join(header + lines))
    batch  note
     size
        8  two searches
    """
    whole = [max(len(name), *(len(row[i]) for row in cells)) if cells else len(name) for i, name in enumerate(columns)]
    if width is None or _total(whole) <= width:
        return _side_by_side(columns, cells, right, whole)
    widths = _narrow(columns, cells, right, width)
    if widths is None:
        return [], _blocks(columns, cells, width)
    return _side_by_side(columns, cells, right, widths)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrow(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: frozenset[int], width: int
) -> list[int] | None:
    """Widths that fit: headers wrapped at their words, then the widest columns of text; None if that is not enough."""
    widths = []
    for i, name in enumerate(columns):
        words = max(map(len, name.split()), default=0)
        widths.append(max([words, *(len(row[i]) for row in cells)]))
    least = {i: max([NARROWEST, *map(len, _words(columns, cells, i))]) for i in range(len(columns)) if i not in right}
    while (excess := _total(widths) - width) > 0:
        spare = {i: widths[i] - narrowest for i, narrowest in least.items() if widths[i] > narrowest}
        if not spare:
            return None
        widest = max(spare, key=lambda i: widths[i])
        widths[widest] -= min(excess, spare[widest])
    return widths


def _words(columns: Sequence[str], cells: Sequence[Sequence[str]], column: int) -> list[str]:
    return [word for row in (columns, *cells) for word in row[column].split()]


def _side_by_side(
    columns: Sequence[str], cells: Sequence[Sequence[str]], right: frozenset[int], widths: Sequence[int]
) -> tuple[list[str], list[str]]:
    def lines(row: Sequence[str]) -> list[str]:
        wrapped = [[text] if len(text) <= w else textwrap.wrap(text, w) for text, w in zip(row, widths, strict=True)]
        found = []
        for k in range(max(map(len, wrapped), default=0)):
            parts = [texts[k] if k < len(texts) else "" for texts in wrapped]
            padded = (
                part.rjust(w) if i in right else part.ljust(w)
                for i, (part, w) in enumerate(zip(parts, widths, strict=True))
            )
            found.append(GAP.join(padded).rstrip())
        return found

    return lines(columns), [line for row in cells for line in lines(row)]


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[str]:
    """Each row as lines of name and value, with an empty line between rows."""
    longest = max(map(len, columns), default=0)
    lines: list[str] = []
    for row in cells:
        if lines:
            lines.append("")
        for name, text in zip(columns, row, strict=True):
            label = name.ljust(longest) + GAP
            found = textwrap.wrap(text, max(1, width - len(label)), break_long_words=False) or [""]
            lines.append((label + found[0]).rstrip())
            lines += [" " * len(label) + more for more in found[1:]]
    return lines
