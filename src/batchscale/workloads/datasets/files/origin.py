"""Where the files of each data set come from, and what they must contain: the table ``sources.toml``."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any


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
    with (files(__package__) / "sources.toml").open("rb") as file:
        table = tomllib.load(file)
    return {folder: _parse_source(folder, entry) for folder, entry in table.items()}


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
