"""A chart as a file: PNG, SVG, PDF, a page that works offline, or its Vega-Lite specification.

No browser is used and nothing is fetched. A file appears whole or not at all.
"""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl

from batchscale.errors import SpecError, one_line
from batchscale.figures.layout import Chart
from batchscale.records.output_file import write_output

PNG_SCALE = 2.0

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title>
<style>body {{ margin: 0; background: {ground}; }} #chart {{ overflow-x: auto; }}</style>
<script>{bundle}</script>
</head>
<body>
<div id="chart"></div>
<script type="application/json" id="specification">{spec}</script>
<script>
const spec = JSON.parse(document.getElementById("specification").textContent);
const actions = {{export: true, source: false, compiled: false, editor: false}};
vegaEmbed("#chart", spec, {{renderer: "svg", ast: true, actions: actions}}).catch(console.error);
</script>
</body>
</html>
"""


def chart_spec(chart: Chart) -> dict[str, Any]:
    """Return the Vega-Lite specification of a chart."""
    # Altair's own validation reads every row of the data, seconds for a large chart; the tests validate small ones.
    spec: dict[str, Any] = chart.to_dict(validate=False)
    return spec


def chart_svg(chart: Chart) -> str:
    """Return the chart as an SVG drawing."""
    return str(_renderer().vegalite_to_svg(chart_spec(chart)))


def chart_page(chart: Chart, title: str = "batchscale figure") -> str:
    """Return one interactive page with every script inside; it loads nothing from the network."""
    import html

    spec = chart_spec(chart)
    # "<" never appears in the page as itself, so that no name in the data can end the script element.
    text = json.dumps(spec, ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")
    ground = html.escape(str(spec.get("config", {}).get("background", "#ffffff")))
    bundle = str(_renderer().javascript_bundle()).replace("</script", "<\\/script")
    return _PAGE.format(title=html.escape(title), ground=ground, bundle=bundle, spec=text)


def write_chart(chart: Chart, path: Path, title: str = "batchscale figure") -> None:
    """Write the chart in the format that the path's suffix names: .png, .svg, .pdf, .html or .json."""
    check_suffix(path)
    write_output(path, _WRITERS[path.suffix.lower()](chart, title))


def write_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write the data behind a chart as CSV."""
    write_output(path, frame.write_csv())


def check_suffix(path: Path) -> None:
    """Refuse a path whose suffix names no format of charts."""
    if path.suffix.lower() not in _WRITERS:
        raise SpecError(
            f"A figure is written as {', '.join(_WRITERS)}. Found {one_line(repr(path.name))}; give --out a path with "
            "one of these suffixes."
        )


@cache
def _renderer() -> ModuleType:
    """Return the renderer, with our font of raised digits."""
    import vl_convert

    vl_convert.register_font_directory(str(Path(__file__).parent / "fonts"))
    renderer: ModuleType = vl_convert
    return renderer


def _png(chart: Chart, _title: str) -> bytes:
    return bytes(_renderer().svg_to_png(chart_svg(chart), scale=PNG_SCALE))


def _pdf(chart: Chart, _title: str) -> bytes:
    return bytes(_renderer().vegalite_to_pdf(chart_spec(chart)))


def _json(chart: Chart, _title: str) -> bytes:
    return json.dumps(chart_spec(chart), ensure_ascii=False, allow_nan=False, indent=1).encode()


_WRITERS: Mapping[str, Callable[[Chart, str], bytes]] = {
    ".png": _png,
    ".svg": lambda chart, _: chart_svg(chart).encode(),
    ".pdf": _pdf,
    ".html": lambda chart, title: chart_page(chart, title).encode(),
    ".json": _json,
}
