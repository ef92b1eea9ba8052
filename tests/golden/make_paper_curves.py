"""Cut the golden curves out of the reference file: python make_paper_curves.py REFERENCE/paper_curves.csv."""

import sys
from pathlib import Path

import polars as pl


def main(reference: str) -> None:
    points = pl.read_csv(reference)
    kept = points.filter(
        pl.col("figure").is_in(["fig1", "fig3"]) & pl.col("y_kind").is_in(["steps", "normalised_steps"])
    )
    kept.select(
        "figure",
        "panel",
        "series",
        "dataset",
        "model",
        "optimizer",
        "goal_metric",
        "goal",
        "batch_size",
        pl.col("y").alias("steps"),
        "y_kind",
    ).write_csv(Path(__file__).parent / "paper_curves.csv")


if __name__ == "__main__":
    main(sys.argv[1])
