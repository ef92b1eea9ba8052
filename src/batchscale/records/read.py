"""Open records of any kind: a tree, a table or an archive."""

import atexit
import shutil
import tempfile
from pathlib import Path

from batchscale.errors import RecordsError, one_line
from batchscale.records.frames import Records
from batchscale.records.table.files import is_table, read_table
from batchscale.records.tree.read import Notice, log_notice, read_tree


def read_records(path: Path | str, notice: Notice = log_notice) -> Records:
    """Return the records of a tree, a table or an archive, as one lazy object.

    A tree or a table is opened at once. An archive is imported into a temporary table, which is removed when Python
    ends: to use an archive more than once, import it with ``batchscale import``. ``notice`` is called with a text for
    everything that is damaged and left out.

    Raises:
        RecordsError: there are no records at the path.
    """
    place = Path(path)
    if is_table(place):
        return read_table(place)
    if place.is_dir():
        return read_tree(place, notice)
    if not place.is_file():
        raise RecordsError(f"Records are a directory, a table or an archive. Found nothing at {one_line(place, 500)}.")
    return _read_archive(place, notice)


def _read_archive(path: Path, notice: Notice) -> Records:
    from batchscale.records.table.import_records import ImportOptions, import_records

    folder = Path(tempfile.mkdtemp(prefix="batchscale-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    summary = import_records(path, folder / "table", ImportOptions(keep_going=True))
    for problem in summary.problems:
        notice(problem)
    return read_table(folder / "table")
