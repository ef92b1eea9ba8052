"""The HTML of curves and plans for notebooks: key figures as cards, the chart, the advice. No script, no request."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from batchscale.figures.layout import Chart, PanelSize
from batchscale.figures.theme import DARK, LIGHT
from batchscale.report.drawing import draw, style_variables

WIDE, NARROW = PanelSize(560, 320), PanelSize(290, 240)
_DARK_MORE = "--line:#2a3038;--soft:#1c2026;--solid:#4ecb8f;--doubt:#f5b14c"


@dataclass(frozen=True)
class Card:
    """A key figure with its interval and a mark of how much to trust it."""

    label: str
    value: str
    interval: str = ""
    mark: str = ""
    level: str = ""


def render(
    *,
    title: str,
    subtitle: str,
    cards: Sequence[Card],
    charts: Sequence[Chart],
    label: str,
    sentences: Sequence[str],
    doubts: Sequence[str] = (),
    columns: Sequence[str] = (),
    rows: Sequence[Sequence[str]] = (),
) -> str:
    """Return the HTML of an answer.

    Args:
        title: In words.
        subtitle: What it was measured for.
        cards: The key figures.
        charts: The same chart in the sizes ``WIDE`` and ``NARROW``.
        label: What the chart shows, for readers who do not see it.
        sentences: The advice.
        doubts: The reasons to trust the answer less.
        columns: The heading of the table.
        rows: The cells of the table; none without a table.
    """
    drawing, narrow = (draw(chart, f"b{secrets.token_hex(4)}", label) for chart in charts)  # names of a whole notebook
    return _template().render(
        title=title, subtitle=subtitle, cards=cards, drawing=drawing, narrow=narrow, sentences=sentences, doubts=doubts,
        columns=columns, rows=rows, dark_more=_DARK_MORE,
        light=Markup(style_variables(LIGHT)), dark=Markup(style_variables(DARK)),  # noqa: S704 - colours of our own
    )  # fmt: skip


@lru_cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("batchscale.api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("answer.html")
