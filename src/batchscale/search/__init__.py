"""Search: unit cube to metaparameter values and back, quasi-random points, the edge guard.

The names that other layers use are re-exported here and loaded when first used.
"""

from typing import TYPE_CHECKING

from batchscale.doors import lazy_names

if TYPE_CHECKING:
    from batchscale.search.edge_guard import DEFAULT_MARGIN as DEFAULT_MARGIN
    from batchscale.search.edge_guard import RankedTrial as RankedTrial
    from batchscale.search.edge_guard import far_ends as far_ends
    from batchscale.search.edge_guard import find_edges as find_edges
    from batchscale.search.edge_guard import goal_score as goal_score
    from batchscale.search.edges import Edge as Edge
    from batchscale.search.edges import Side as Side
    from batchscale.search.edges import edge_distances as edge_distances
    from batchscale.search.edges import propose_space as propose_space
    from batchscale.search.edges import shift_space as shift_space
    from batchscale.search.points import draw_points as draw_points
    from batchscale.search.points import unit_points as unit_points
    from batchscale.search.units import to_unit as to_unit
    from batchscale.search.units import to_value as to_value

_PUBLIC = {
    "DEFAULT_MARGIN": "edge_guard",
    "Edge": "edges",
    "RankedTrial": "edge_guard",
    "Side": "edges",
    "draw_points": "points",
    "edge_distances": "edges",
    "far_ends": "edge_guard",
    "find_edges": "edge_guard",
    "goal_score": "edge_guard",
    "propose_space": "edges",
    "shift_space": "edges",
    "to_unit": "units",
    "to_value": "units",
    "unit_points": "points",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
