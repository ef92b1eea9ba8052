"""The version of our own facts: what is refused, and how older ones become today's.

One version for both files. An upgrade is a function from the JSON object of one version to that of the next, so that
the classes know today's keys only. Version 1 wrote no version into ``metadata.json``.
"""

from collections.abc import Mapping
from typing import Any

from batchscale.errors import RecordsError, one_line

OWN_KEY = "batchscale"
FORMAT_VERSION = 2
VERSION_KEY = "format_version"

_OLD_TIMING = {"seconds": "total_s", "steps": "num_steps"}


class MetadataError(RecordsError):
    """Something under our key is not of its kind; ``key`` is its name."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class NewerFormatError(RecordsError):
    """The file was written by a later batchscale, in a format that this one does not know."""


def read_version(own: object, where: str) -> int:
    """The version of our facts in a file.

    Raises:
        NewerFormatError: it is newer than ours.
        MetadataError: it is no version.
    """
    version = own.get(VERSION_KEY, 1) if isinstance(own, Mapping) else None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise MetadataError(
            f"{where}: '{OWN_KEY}' is an object with a {VERSION_KEY} from 1. Found {one_line(repr(own), 80)}.", OWN_KEY
        )
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"{where}: this batchscale reads format versions up to {FORMAT_VERSION}. Found version {version}, written "
            "by a later one; install that version or a newer one to use these records."
        )
    return version


def upgrade_study(own: Mapping[str, Any], version: int) -> dict[str, Any]:
    """The facts of ``study.json`` as today's version has them."""
    facts = dict(own)
    if version < 2:
        if "stop" in facts:
            facts["stop_rule"] = facts.pop("stop")
        if "verdict" in facts:
            facts["finding"] = facts.pop("verdict") or None  # an empty one said: not ended
        searches = facts.get("searches")
        if isinstance(searches, list):
            facts["searches"] = [_upgrade_search(search) for search in searches]
    return facts


def upgrade_trial(own: Mapping[str, Any], version: int) -> dict[str, Any]:
    """The facts of ``metadata.json`` as today's version has them."""
    facts = dict(own)
    if version < 2:
        if isinstance(facts.get("hardware"), str):
            facts["hardware"] = {"device_kind": facts["hardware"]} if facts["hardware"] else None
        timing = facts.get("timing")
        if isinstance(timing, Mapping):
            facts["timing"] = {_OLD_TIMING.get(name, name): value for name, value in timing.items()}
    return facts


def _upgrade_search(search: object) -> object:
    """Version 1 gave a search's ranges only where it had more than one."""
    if not isinstance(search, Mapping) or "first_trial_id" not in search:
        return search
    rest = {key: value for key, value in search.items() if key != "first_trial_id"}
    return {"ranges": [[search["first_trial_id"], 0]], **rest}
