"""Search: unit cube to metaparameter values and back, quasi-random points, the edge guard."""

from batchscale.search.edge_guard import DEFAULT_MARGIN, RankedTrial, far_ends, find_edges
from batchscale.search.edges import Edge, Side, edge_distances, propose_space, shift_space
from batchscale.search.points import draw_points, unit_points
from batchscale.search.units import to_unit, to_value

__all__ = [
    "DEFAULT_MARGIN",
    "Edge",
    "RankedTrial",
    "Side",
    "draw_points",
    "edge_distances",
    "far_ends",
    "find_edges",
    "propose_space",
    "shift_space",
    "to_unit",
    "to_value",
    "unit_points",
]
