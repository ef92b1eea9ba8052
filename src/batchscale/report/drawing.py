"""Charts as drawings inside a page: one drawing for light and dark, with names of its own, and nothing that could run.

The renderer draws with the light theme; its colours become variables of the page's style sheet, those of ordered series
by their place on the ramp. Identifiers get a prefix, because several drawings share the page. Only known elements and
attributes pass.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping

from markupsafe import Markup

from batchscale.errors import BatchscaleError
from batchscale.figures.export import chart_svg
from batchscale.figures.layout import Chart
from batchscale.figures.theme import DARK, LIGHT, Theme, series_colours

RAMP_STEPS = 31

_SVG = "http://www.w3.org/2000/svg"
_ELEMENTS = frozenset(("svg", "g", "path", "text", "tspan", "line", "rect", "defs", "clipPath", "circle"))
_ATTRIBUTES = frozenset(
    (
        "aria-hidden", "aria-label", "aria-roledescription", "class", "clip-path", "d", "display", "dy", "dx", "fill",
        "fill-opacity", "font-family", "font-size", "font-style", "font-weight", "height", "id", "opacity",
        "pointer-events", "r", "role", "stroke", "stroke-dasharray", "stroke-miterlimit", "stroke-opacity",
        "stroke-width", "text-anchor", "transform", "version", "viewBox", "width", "x", "x1", "x2", "y", "y1", "y2",
        "cx", "cy", "stroke-linecap", "stroke-linejoin", "stroke-dashoffset", "dominant-baseline",
    )
)  # fmt: skip
# What Vega adds to a mark's description from the columns behind it; the tooltip has the same.
_COLUMNS = re.compile(r"^(?:[a-z]+(?:_[a-z]+)+|value|drawn|unit|lane|n|median|low|step|series|outcome|from|to): ")


def draw(chart: Chart, prefix: str, label: str) -> Markup:
    """Return the chart as an SVG element for a page; ``prefix`` must differ between the drawings of a page."""
    root = ET.fromstring(chart_svg(chart))  # noqa: S314 - text of our own renderer, without a document type
    colours = {theme_colour(LIGHT, role): f"var(--{role})" for role in roles()}
    for element in root.iter():
        _clean(element, prefix, colours)
    width = root.attrib.pop("width", "0")
    root.attrib.pop("height", None)
    root.set("style", f"max-width:{float(width):.0f}px")
    root.set("role", "img")
    root.set("aria-label", label)
    ET.register_namespace("", _SVG)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - every element and attribute passed the lists


def style_variables(theme: Theme) -> str:
    """Return the colours of a theme as variables of a style sheet.

    >>> style_variables(LIGHT).split(";")[0]
    '--ground:#ffffff'
    """
    return ";".join(f"--{role}:{theme_colour(theme, role)}" for role in roles())


def roles() -> list[str]:
    """Return the names of the colours: those of ``Theme``, numbered where a role has several."""
    single = ["ground", "soft", "text", "muted", "grid", "frame", "good", "poor", "bad", "solid", "doubt", "star"]
    assert len(LIGHT.series) == len(DARK.series)
    shades, series = (f"shade-{i}" for i in range(2)), (f"series-{i}" for i in range(len(LIGHT.series)))
    return [*single, *shades, *series, *(f"ramp-{i}" for i in range(RAMP_STEPS))]


def theme_colour(theme: Theme, role: str) -> str:
    """Return the colour of a role in a theme."""
    name, _, place = role.partition("-")
    if name == "ramp":
        return series_colours(theme, RAMP_STEPS, ordered=True)[int(place)]
    value = getattr(theme, name)
    return str(value[int(place)] if place else value)


def _nearest_ramp(colour: str) -> str:
    """Return the step of the ramp that a colour of ordered series is nearest to; the difference is invisible."""

    def distance(step: int) -> int:
        other = theme_colour(LIGHT, f"ramp-{step}")
        return sum((int(colour[i : i + 2], 16) - int(other[i : i + 2], 16)) ** 2 for i in (1, 3, 5))

    return f"ramp-{min(range(RAMP_STEPS), key=distance)}"


def _clean(element: ET.Element, prefix: str, colours: Mapping[str, str]) -> None:
    name = element.tag.rpartition("}")[2]
    if name not in _ELEMENTS:
        raise BatchscaleError(f"A drawing has only shapes and text. Found an element '{name}'; please report this.")
    for key in list(element.attrib):
        if key not in _ATTRIBUTES:
            del element.attrib[key]
    if "id" in element.attrib:
        element.set("id", f"{prefix}-{element.get('id')}")
    clip = element.get("clip-path")
    if clip is not None:
        element.set("clip-path", clip.replace("url(#", f"url(#{prefix}-"))
    for key in ("fill", "stroke"):
        colour = element.get(key)
        if colour is not None and colour.startswith("#"):
            element.set(key, colours.get(colour) or f"var(--{_nearest_ramp(colour)})")
    label = element.get("aria-label")
    if label is not None and element.get("role") == "graphics-symbol":
        parts = [part for part in label.split("; ") if not _COLUMNS.match(part)]
        element.set("aria-label", "; ".join(parts) or label)
