"""A curve as a very small picture: logarithmic axes, a line, a dot for each point. No text, so nothing to escape."""

import math
from collections.abc import Sequence

WIDTH, HEIGHT, MARGIN = 120, 36, 4


def draw_small_curve(points: Sequence[tuple[int, int]], colour: str) -> str:
    """The picture as an SVG document; an empty one without points.

    >>> draw_small_curve([(1, 100), (10, 10)], "#0071b1").count("<circle")
    2
    """
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">'
    if not points:
        return f"{head}</svg>"
    xs = _scaled([math.log(size) for size, _ in points], WIDTH)
    ys = [HEIGHT - y for y in _scaled([math.log(steps) for _, steps in points], HEIGHT)]
    places = [f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True)]
    line = f'<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{colour}"/>' for x, y in zip(xs, ys, strict=True))
    return f"{head}{line}{dots}</svg>"


def _scaled(values: list[float], room: int) -> list[float]:
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return [MARGIN + (value - low) / span * (room - 2 * MARGIN) for value in values]
