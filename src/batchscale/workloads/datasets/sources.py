"""Where the files of each data set come from, and what they must contain: the table ``embedded/sources.toml``."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.workloads.datasets.facts import dataset_names, files_folder


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
class Source:
    """How to get a data set: the downloads (none: by hand), what else a person may do, and on which terms."""

    folder: str
    downloads: tuple[Download, ...]
    terms: str
    how: str

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


@cache
def read_sources() -> dict[str, Source]:
    """Every source by the folder name of its data set."""
    with (files(__package__) / "embedded" / "sources.toml").open("rb") as file:
        table = tomllib.load(file)
    return {folder: _parse_source(folder, entry) for folder, entry in table.items()}


def find_source(name: str) -> Source:
    """The source of a data set, also by the name of a subset; digits and the like need none.

    Raises:
        UnknownNameError: No data set has this name, or it has no files to get.
    """
    sources = read_sources()
    folder = name if name in sources else files_folder(name) if name in dataset_names() else None
    if folder in sources:
        return sources[folder]
    if name in dataset_names():
        raise UnknownNameError(f"Data set {name!r} needs no files: there is nothing to get.")
    raise UnknownNameError(f"No data set is called {one_line(repr(name))}: {suggest_names(name, sources)}")


def _parse_source(folder: str, entry: dict[str, Any]) -> Source:
    downloads = tuple(
        Download(
            **{
                **download,
                "mirrors": tuple(download["mirrors"]),
                "contents": tuple(OfficialFile(**content) for content in download.get("contents", ())),
            }
        )
        for download in entry.get("downloads", ())
    )
    return Source(folder, downloads, entry["terms"], entry.get("how", ""))
