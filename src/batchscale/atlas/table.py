"""The table of the atlas: the curves that the package carries, and the user's own in a folder of JSON files."""

import gzip
import io
import json
import os
import re
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.atlas.curve import CURVES_SCHEMA, METADATA_SCHEMA, RUNS_SCHEMA, UNITS, AtlasCurve
from batchscale.errors import AnalysisError, UnknownNameError, one_line, suggest_names
from batchscale.records.output_file import write_output
from batchscale.spec.untrusted_text import parse_json

VERSION = 1
MAX_BYTES = 20_000_000
POINTS_SCHEMA: Any = {
    "curve": pl.String,
    "batch_size": pl.Int64,
    "steps": pl.Float64,  # up to a factor where the curve's unit says so
    "runs": pl.UInt32,
}


@dataclass(frozen=True)
class Atlas:
    """The table: ``curves`` of ``CURVES_SCHEMA``, ``runs`` of ``RUNS_SCHEMA``."""

    curves: pl.DataFrame
    runs: pl.DataFrame
    notices: tuple[str, ...] = ()

    def select(self, rows: pl.DataFrame) -> "Atlas":
        """Return the atlas of these rows of ``curves``."""
        return replace(self, curves=rows, runs=self.runs.join(rows.select("curve"), on="curve", how="semi"))

    def find(self, name: str) -> AtlasCurve:
        """Return a curve by its identifier; UnknownNameError with the nearest ones if there is none."""
        rows = self.curves.filter(pl.col("curve") == name).select(list(METADATA_SCHEMA)).to_dicts()
        if not rows:
            names = self.curves["curve"].to_list()
            raise UnknownNameError(f"The atlas has no curve '{one_line(name)}'; {suggest_names(name, names)}")
        runs = self.runs.filter(pl.col("curve") == name).select("batch_size", "amount").rows()
        return AtlasCurve(runs=runs, **rows[0])

    def points(self) -> pl.DataFrame:
        """Return a row per curve and batch size: the geometric mean of the runs that reached the goal, as steps."""
        joined = self.runs.drop_nulls("amount").join(
            self.curves.select("curve", "unit", "examples", "sequence"), on="curve", maintain_order="left"
        )
        size = pl.col("batch_size")
        scale = (
            pl.when(pl.col("unit") == "samples").then(1 / size)
            .when(pl.col("unit") == "epochs").then(pl.col("examples").fill_null(1) / size)
            .when(pl.col("unit") == "tokens").then(1 / pl.col("sequence").fill_null(1) / size)
            .otherwise(1.0)
        )  # fmt: skip
        steps = (pl.col("amount") * scale).log().mean().exp().alias("steps")
        groups = joined.group_by("curve", "batch_size", maintain_order=True).agg(steps, pl.len().alias("runs"))
        return groups.sort("curve", "batch_size").cast(POINTS_SCHEMA)


def read_atlas(folder: Path | None = None) -> Atlas:
    """Return the carried curves and the user's own; an own file that cannot be read is left out with a notice.

    Args:
        folder: The folder of own curves; None: the default.
    """
    data = resources.files("batchscale.atlas") / "data"
    schema: Any = CURVES_SCHEMA
    curves = pl.read_csv(io.BytesIO((data / "curves.csv").read_bytes()), schema=schema)
    texts = [name for name, kind in CURVES_SCHEMA.items() if kind is pl.String and name != "family"]
    runs = pl.read_csv(gzip.decompress((data / "runs.csv.gz").read_bytes()), schema=RUNS_SCHEMA)
    own, notices = _read_own(folder or own_folder())
    curves = curves.with_columns(pl.col(texts).fill_null(""))
    if not own:
        return Atlas(curves, runs, tuple(notices))
    rows = pl.DataFrame([row for row, _ in own], schema=CURVES_SCHEMA)
    own_runs = pl.DataFrame([run for _, runs in own for run in runs], schema=RUNS_SCHEMA, orient="row")
    return Atlas(pl.concat([curves, rows]), pl.concat([runs, own_runs]), tuple(notices))


def read_step_law() -> pl.DataFrame:
    """Return the carried runs of Step Law (Li et al. 2025, by ScaleBench, CC-BY-4.0): a frame of ``GRID_SCHEMA``."""
    data = resources.files("batchscale.atlas") / "data" / "grid.csv.gz"
    return pl.read_csv(gzip.decompress(data.read_bytes()))


def choose_main(curves: pl.DataFrame) -> pl.DataFrame:
    """Return the table with the column ``main``: of each workload of a source the curve with B_crit and most sizes.

    Curves in steps come before those up to a factor, and curves without an outlier before others. Among equals it is
    the last one: the newest version, the hardest goal; of the paper the first one, which is that of Figure 1.
    """
    workload = ["source", "label", "optimizer"]
    place = pl.int_range(pl.len()) * pl.when(pl.col("source") == "paper").then(-1).otherwise(1)
    is_clean = ~pl.col("note").str.contains("outlier")
    ordered = curves.sort(is_clean, pl.col("b_crit").is_not_null(), pl.col("used").is_not_null(), "sizes", place)
    chosen = ordered.group_by(workload, maintain_order=True).last()["curve"]
    return curves.with_columns(pl.col("curve").is_in(chosen.implode()).alias("main"))


def own_folder() -> Path:
    """Return the folder of a user's own curves: ``BATCHSCALE_ATLAS``, else in ``XDG_DATA_HOME`` or ~/.local/share."""
    named = os.environ.get("BATCHSCALE_ATLAS")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_DATA_HOME")
    data = Path(base) if base and Path(base).is_absolute() else Path.home() / ".local" / "share"
    return data / "batchscale" / "atlas"


def add_curve(curve: AtlasCurve, row: dict[str, Any], folder: Path, *, replaces: bool = False) -> Path:
    """Write a user's own curve to the folder; AnalysisError if there is one of that name and it is not to be replaced.

    Args:
        curve: Its identifier becomes the name of the file.
        row: Its analysis, by ``summary_row``.
        folder: The folder of own curves.
        replaces: True to replace a curve of that name.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}", curve.curve):
        raise AnalysisError(
            "The name of a curve must have letters, digits, dots, dashes and underscores only, at most 120. Found "
            f"'{one_line(curve.curve)}'; pass another with --name."
        )
    path = folder / f"{curve.curve}.json"
    if path.exists() and not replaces:
        raise AnalysisError(
            f"The name of a curve must be new. Found '{curve.curve}' in {one_line(folder, 300)}; pass another with "
            "--name, or --replace to replace it."
        )
    runs = [[size, amount] for size, amount in curve.runs]
    content = {"version": VERSION, "curve": curve.metadata() | row | {"main": True}, "runs": runs}
    write_output(path, json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _read_own(folder: Path) -> tuple[list[tuple[dict[str, Any], list[tuple[str, int, float | None]]]], list[str]]:
    own, notices = [], []
    try:
        paths = sorted(folder.glob("*.json"))
    except OSError:
        return [], []
    for path in paths:
        try:
            own.append(_read_file(path))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, pl.exceptions.PolarsError) as error:
            notices.append(f"{one_line(path, 300)} is no curve of the atlas ({one_line(error)}); it is left out.")
    return own, notices


def _read_file(path: Path) -> tuple[dict[str, Any], list[tuple[str, int, float | None]]]:
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES:,} bytes")
    content = parse_json(path.read_bytes())
    if content["version"] != VERSION:
        raise ValueError(f"its version must be {VERSION}")
    values = {name: content["curve"].get(name) for name in CURVES_SCHEMA}
    row = {name: one_line(value, 200) if isinstance(value, str) else value for name, value in values.items()}
    row |= {"source": "own", "curve": one_line(path.stem, 200)}
    runs = [(path.stem, _size(size), None if amount is None else _amount(amount)) for size, amount in content["runs"]]
    if row["unit"] not in UNITS:
        raise ValueError(f"its unit must be one of {', '.join(UNITS)}")
    pl.DataFrame([row], schema=CURVES_SCHEMA)  # raises for a value of another type
    return row, runs


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**53:
        raise ValueError(f"a batch size must be a positive whole number, found {one_line(repr(value))}")
    return value


def _amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**60:
        raise ValueError(f"an amount must be a positive number, found {one_line(repr(value))}")
    return float(value)
