"""The style sheets that reports, web pages and notebooks share, with the colours of both themes as variables."""

from functools import cache
from importlib.resources import files

from batchscale.figures.theme import DARK, LIGHT
from batchscale.report.drawing import style_variables


@cache
def page_style() -> str:
    """Return the style of a whole page: colours, the page, the parts of an answer."""
    light, dark = style_variables(LIGHT), style_variables(DARK)
    return (
        f":root {{ {light}; color-scheme: light dark; }}\n"
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}; }} }}\n"
        f"{_read('page.css')}{_read('answer.css')}"
    )


def answer_style() -> str:
    """Return the style of the parts of an answer alone, which names no colours."""
    return _read("answer.css")


def _read(name: str) -> str:
    return (files("batchscale.report") / "templates" / name).read_text()
