"""Search: unit cube to metaparameter values and back, quasi-random points, the edge guard."""

from batchscale.search.edges import (
    DEFAULT_MARGIN,
    Edge,
    Side,
    edge_distances,
    find_edges,
    joint_distances,
    propose_space,
    shift_space,
)
from batchscale.search.points import draw_points, unit_points
from batchscale.search.units import to_unit, to_value

__all__ = [
    "DEFAULT_MARGIN",
    "Edge",
    "Side",
    "draw_points",
    "edge_distances",
    "find_edges",
    "joint_distances",
    "propose_space",
    "shift_space",
    "to_unit",
    "to_value",
    "unit_points",
]
