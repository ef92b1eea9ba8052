"""The loss against steps as a drawing that a page shows while something trains: numbers only, nothing to escape."""

import math
from collections.abc import Sequence

WIDTH, HEIGHT, LEFT, BOTTOM = 560, 240, 62, 30


def draw_loss(points: Sequence[tuple[int, float]], line: str, text: str, grid: str) -> str:
    """The drawing as an SVG document; the axis of losses begins at 0.

    >>> draw_loss([(0, 8.0), (10, 4.0)], "#00f", "#000", "#ccc").count("<polyline")
    1
    """
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
    shown = [(step, loss) for step, loss in points if math.isfinite(loss)]
    if not shown:
        return f"{head}</svg>"
    last = max(1, max(step for step, _ in shown))
    top = 1.05 * max(loss for _, loss in shown) or 1.0
    high = HEIGHT - BOTTOM - 12
    parts = [_rule(HEIGHT - BOTTOM - share * high, f"{share * top:.3g}", text, grid) for share in _SHARES]
    parts += [
        f'<text x="{LEFT + share * (WIDTH - LEFT - 14):.1f}" y="{HEIGHT - 10}" fill="{text}" font-size="12" '
        f'font-family="sans-serif" text-anchor="middle">{share * last:,.0f}</text>'
        for share in _SHARES
    ]  # fmt: skip
    places = " ".join(
        f"{LEFT + step / last * (WIDTH - LEFT - 14):.1f},{HEIGHT - BOTTOM - loss / top * high:.1f}"
        for step, loss in shown
    )
    return f'{head}{"".join(parts)}<polyline points="{places}" fill="none" stroke="{line}" stroke-width="2"/></svg>'


_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


def _rule(y: float, label: str, text: str, grid: str) -> str:
    return (
        f'<line x1="{LEFT}" x2="{WIDTH - 14}" y1="{y:.1f}" y2="{y:.1f}" stroke="{grid}"/>'
        f'<text x="{LEFT - 8}" y="{y + 4:.1f}" fill="{text}" font-size="12" font-family="sans-serif" '
        f'text-anchor="end">{label}</text>'
    )
