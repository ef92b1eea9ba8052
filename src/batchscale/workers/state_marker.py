"""The marker that a run leaves at the remote path of its states, by which workers see that they reach the same path."""

from batchscale.errors import StorageError, one_line
from batchscale.records.remote_store import RemoteStore

MARKER = ".seen-by-nodes"


def write_marker(url: str, secret: str) -> None:
    """Write the marker of this run, which also shows that the path can be written.

    Raises:
        StorageError: nothing can be written there, with the reason.
    """
    RemoteStore(url).put(MARKER, secret.encode())


def remove_marker(url: str) -> None:
    """Remove the marker, if possible."""
    RemoteStore(url).remove(MARKER)


def find_marker_problem(url: str, secret: str) -> str:
    """Return the reason why this machine cannot store states at the path; empty if it can."""
    try:
        content = RemoteStore(url).get(MARKER)
    except StorageError as error:
        return one_line(error, 400)
    return "" if content == secret.encode() else f"{one_line(url, 200)}: the mark of this run is not there."
