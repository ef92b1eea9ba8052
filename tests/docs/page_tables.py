"""The tables of a page as cells, and whether a computed table is among them.

Numbers are compared as numbers. Other vector instructions add in another order, so a computed number may be rounded
to the neighbouring digit on another machine: a decimal may differ from the page by one unit of its last digit, and any
number of a column with a tolerance by that share. Whole numbers of other columns are counts, and equal.
"""

import re
from collections.abc import Iterator, Mapping

Table = list[list[str]]

NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")


def read_tables(text: str) -> list[Table]:
    """Every table of a Markdown text: rows of cells, the header first, without the line under it."""
    tables: list[Table] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                tables.append([])
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                tables[-1].append(cells)
        inside = line.startswith("|")
    return tables


def assert_on_page(made: Table, page: str, tolerances: Mapping[str, float]) -> None:
    """One table of the page has the header and the rows of this one, number for number within the tolerances."""
    candidates = [table for table in read_tables(page) if table[0] == made[0]]
    assert candidates, f"no table on the page has the columns {made[0]}"
    found = [list(_differences(made, table, tolerances)) for table in candidates]
    fewest = min(found, key=len)
    assert not fewest, "\n".join(fewest)


def _differences(made: Table, page: Table, tolerances: Mapping[str, float]) -> Iterator[str]:
    if len(made) != len(page):
        yield from (f"{len(made)} rows are computed, the page has {len(page)}",) * len(made)
        return
    for ours, theirs in zip(made, page, strict=True):
        for column, mine, printed in zip(made[0], ours, theirs, strict=True):
            if not same_cell(mine, printed, tolerances.get(column, 0.0)):
                yield f"{column}: the page has {printed!r} where {mine!r} is computed, in the row {theirs}"


def same_cell(mine: str, printed: str, share: float = 0.0) -> bool:
    """The same words, the same counts, every decimal within one unit of its last digit, or all within a share."""
    if NUMBER.split(mine) != NUMBER.split(printed):
        return False
    pairs = zip(NUMBER.findall(mine), NUMBER.findall(printed), strict=True)
    return all(_near(one, other, share) for one, other in pairs)


def _near(one: str, other: str, share: float) -> bool:
    first, second = (float(text.replace(",", "")) for text in (one, other))
    counts = share == 0 and one.replace(",", "").isdigit() and other.replace(",", "").isdigit()
    unit = 0.0 if counts else max(_last_digit(one), _last_digit(other))
    return abs(first - second) <= max(1.001 * unit, share * abs(second))  # 1.001: 0.29 - 0.28 is not 0.01


def _last_digit(text: str) -> float:
    mantissa, _, exponent = text.partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))
