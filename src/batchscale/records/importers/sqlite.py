"""Open SQLite files of other tools, read-only and with hostile content expected.

The user's files are not touched, not even by SQLite's own bookkeeping. Only plain tables are read, by plain selects:
views, virtual tables, functions and recursion of the file's own schema are denied, and no value may be huge.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from batchscale.errors import RecordsError, one_line

MAGIC = b"SQLite format 3\0"
MAX_VALUE_BYTES = 64 * 2**20
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
_WAL_VERSION = 2


class ReadOnlyDatabase:
    """The plain tables of one file."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        rows = self._execute("SELECT name, type, sql FROM sqlite_master")
        self.tables = frozenset(
            name
            for name, kind, sql in rows
            if kind == "table" and isinstance(sql, str) and not sql.lstrip()[:15].upper().startswith("CREATE VIRTUAL")
        )

    def columns(self, table: str) -> list[str]:
        """Return the names of a table's columns."""
        self._require(table)
        cursor = self._connection.execute(f'SELECT * FROM "{table}" LIMIT 0')  # noqa: S608
        return [column[0] for column in cursor.description]

    def select(self, table: str, columns: Sequence[str], where: str = "", values: Sequence[Any] = ()) -> Iterator[Any]:
        """Yield the rows of one table; ``where`` continues the statement and is never made of the file's content."""
        self._require(table)
        names = ", ".join(f'"{column}"' for column in columns)
        return self._execute(f'SELECT {names} FROM "{table}" {where}', values)  # noqa: S608

    def _require(self, table: str) -> None:
        if table not in self.tables:
            raise RecordsError(f"{one_line(self._path, 300)}: the database must have the table '{table}'. Found none.")

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        try:
            yield from self._connection.execute(statement, values)
        except sqlite3.Error as error:
            raise _unreadable(self._path, error) from None


def is_sqlite(path: Path) -> bool:
    """True if a file begins as SQLite files do."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


@contextmanager
def open_database(path: Path) -> Iterator[ReadOnlyDatabase]:
    """Open a file for reading, as a context.

    A file whose newest changes still lie in a write-ahead log is copied with it: SQLite cannot read both without
    writing beside them.

    Raises:
        RecordsError: it is no database, damaged, or cannot be read.
    """
    log = path.with_name(f"{path.name}-wal")
    with tempfile.TemporaryDirectory(prefix="batchscale-") as folder:
        try:
            with path.open("rb") as file:
                is_logged = file.read(20)[18:] == bytes([_WAL_VERSION, _WAL_VERSION])
            target, mode = path.absolute(), "mode=ro"
            if is_logged and log.exists() and log.stat().st_size:
                target = Path(folder) / "copy.db"
                shutil.copyfile(path, target)
                shutil.copyfile(log, target.with_name("copy.db-wal"))
                mode = "mode=rw"
            elif is_logged:
                mode = "mode=ro&immutable=1"
            connection = sqlite3.connect(f"file:{quote(str(target))}?{mode}", uri=True, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise _unreadable(path, error) from None
        try:
            _restrict(connection)
            yield ReadOnlyDatabase(path, connection)
        except sqlite3.Error as error:
            raise _unreadable(path, error) from None
        finally:
            connection.close()


def _restrict(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    for setting in ("trusted_schema = OFF", "query_only = ON", "cell_size_check = ON", "mmap_size = 0"):
        connection.execute(f"PRAGMA {setting}")
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)


def _unreadable(path: Path, error: Exception) -> RecordsError:
    return RecordsError(
        f"{one_line(path, 300)}: the file must be a readable SQLite database. SQLite reports: {one_line(error)}."
        " Copy it from its origin again, or export it there."
    )
