"""What batchscale itself wrote into ``study.json`` and ``metadata.json``, as those who read records need it.

The runners write it. Published data has none of it, so every function here also takes facts that are empty.
"""

import json
from collections.abc import Mapping
from typing import Any

from batchscale.errors import one_line
from batchscale.records.model import OWN_KEY


def own_facts(extra: str | None) -> dict[str, Any]:
    """What stands under our own key, from the ``extra`` column of a study or a trial; empty if it cannot be read."""
    try:
        data = json.loads(extra) if extra else {}
    except ValueError:
        return {}
    own = data.get(OWN_KEY) if isinstance(data, dict) else None
    return own if isinstance(own, dict) else {}


def stored_searches(own: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A study's searches, oldest first; none where nothing is said."""
    searches = own.get("searches")
    return [search for search in searches if isinstance(search, dict)] if isinstance(searches, list) else []


def stored_edges(own: Mapping[str, Any]) -> list[str] | None:
    """The ends that the run left the best trial at ("learning_rate high"); None if it has not judged the study."""
    verdict = own.get("verdict")
    edges = verdict.get("at_edge") if isinstance(verdict, dict) else None
    if not isinstance(edges, list):
        return None
    return [one_line(f"{edge.get('parameter')} {edge.get('side')}") for edge in edges if isinstance(edge, dict)]


def study_note(edge: str | None, searches: int) -> str | None:
    """What tables say of a study with this edge and so many searches; None if there is nothing to say.

    >>> study_note("learning_rate high", 2)
    'at edge: learning_rate high; 2 searches'
    """
    notes = [f"at edge: {edge}"] if edge else []
    notes += [f"{searches} searches"] if searches > 1 else []
    return "; ".join(notes) or None
