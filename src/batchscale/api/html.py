"""The HTML of curves and plans for notebooks: key figures as cards, the chart, the advice. No script, no request."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from batchscale.analysis.answer import KeyFigure
from batchscale.figures.layout import Chart, PanelSize
from batchscale.figures.theme import DARK, LIGHT
from batchscale.planning.answer import PlanFigure
from batchscale.report.drawing import draw, style_variables
from batchscale.report.style import answer_style

WIDE, NARROW = PanelSize(560, 320), PanelSize(290, 240)


@dataclass(frozen=True)
class NotebookTable:
    """The columns and rows of a table as text; ``numbers`` are the places of columns with numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int]


def render(
    *,
    title: str,
    subtitle: str,
    figures: Sequence[KeyFigure | PlanFigure],
    charts: Sequence[Chart],
    label: str,
    advice: Sequence[str],
    notes: Sequence[str] = (),
    basis: str = "",
    table: NotebookTable | None = None,
) -> str:
    """Return the HTML of an answer.

    Args:
        title: In words.
        subtitle: What it was measured for.
        figures: The key figures.
        charts: The same chart in the sizes ``WIDE`` and ``NARROW``.
        label: What the chart shows, for readers who do not see it.
        advice: At most three sentences.
        notes: The reasons to trust the answer less.
        basis: What the answer holds for.
        table: A table below.
    """
    wide, narrow = (draw(chart, f"b{secrets.token_hex(4)}", label) for chart in charts)  # names of a whole notebook
    return _template().render(
        title=title, subtitle=subtitle, figures=figures, wide=wide, narrow=narrow, advice=advice, notes=notes,
        basis=basis, rows=table, light=_style(style_variables(LIGHT)), dark=_style(style_variables(DARK)),
        style=_style(answer_style()),
    )  # fmt: skip


def _style(text: str) -> Markup:
    return Markup(text)  # noqa: S704 - colours and style sheets of our own


@lru_cache
def _template() -> Template:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("batchscale.api"), PackageLoader("batchscale.report")]), autoescape=True,
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("answer.html")
