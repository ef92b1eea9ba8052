"""Where the files of a data set come from, what they must contain, and how they are known when they are here.

Addresses are only a default: ``batchscale data get NAME --url`` takes others. Imports no jax.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OfficialFile:
    """A file as published, after decompression."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Download:
    """One file to fetch: from the first mirror that gives it right.

    ``contents`` are the official files inside (one for a plain or gzipped file, several for an archive); where they
    are not known one by one, ``sha256`` is that of the download itself, and ``unpack`` takes everything out of it.
    """

    name: str
    mirrors: tuple[str, ...]
    contents: tuple[OfficialFile, ...] = ()
    num_bytes: int | None = None
    sha256: str | None = None
    unpack: bool = False


@dataclass(frozen=True)
class Origin:
    """How to get a data set: the downloads (none: by hand), what else a person may do, and on which terms."""

    folder: str
    downloads: tuple[Download, ...]
    terms: str
    how: str = ""

    @property
    def contents(self) -> tuple[OfficialFile, ...]:
        """All official files whose checksums are known."""
        return tuple(file for download in self.downloads for file in download.contents)

    @property
    def instruction(self) -> str:
        """What to run, or to do by hand, as one sentence without a full stop."""
        if not self.downloads:
            return self.how
        return f"run `batchscale data get {self.folder}`" + (f", {self.how}" if self.how else "")


@dataclass(frozen=True)
class DatasetFiles:
    """The files of a data set: their origin, the cheap test whether a folder holds them, and where they may lie.

    ``system_folder`` is where a package of the system puts them, below the folder of such packages.
    ``needs_its_name`` keeps a test that many a folder would pass from being tried on folders of other names.
    """

    origin: Origin
    are_in: Callable[[Path], bool]
    system_folder: str | None = None
    needs_its_name: bool = False

    @property
    def folder(self) -> str:
        """The name of the folder that holds them."""
        return self.origin.folder


def plain_file(mirrors: tuple[str, ...], name: str, num_bytes: int, sha256: str, ending: str = "") -> Download:
    """A download of one official file from folders of mirrors; with the ending ".gz" it comes compressed."""
    addresses = tuple(f"{mirror}{name}{ending}" for mirror in mirrors)
    return Download(f"{name}{ending}", addresses, (OfficialFile(name, num_bytes, sha256),))
