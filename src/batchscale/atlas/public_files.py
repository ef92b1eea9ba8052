"""Reads the files that the sources of the atlas publish, as curves: for ``scripts/make_atlas.py`` and benchmarks."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from batchscale.analysis.grid import GRID_SCHEMA, IsoLossCurve, iso_loss_curves
from batchscale.atlas.curve import AtlasCurve
from batchscale.atlas.mlperf import find_benchmark

SEQUENCE = 2048  # tokens of a sequence in the runs of Step Law
_ZEUS: Mapping[str, tuple[str, str, str, int | None]] = {
    # data set: label, kind, unit of the batch, training examples (of the data sets' own descriptions)
    "cifar100": ("ShuffleNet V2 on CIFAR-100", "convolutional", "images", 50_000),
    "imagenet": ("ResNet-50 on ImageNet", "convolutional", "images", 1_281_167),
    "librispeech": ("DeepSpeech2 on LibriSpeech", "recurrent", "utterances", None),
    "movielens-1m": ("NCF on MovieLens-1M", "recommendation", "interactions", None),
    "sentiment140": ("BERT-base on Sentiment140", "transformer", "texts", None),
    "squad": ("BERT-base on SQuAD", "transformer", "texts", None),
}
_BELOW = ("librispeech",)  # its metric, a word error rate, is to be minimised


def mlperf_curves(path: Path) -> Iterator[AtlasCurve]:
    """Return a curve per benchmark and version; versions with the same runs are one curve."""
    runs = pl.read_csv(path, infer_schema_length=None).rename({"to_converge": "amount"})
    versions = sorted({*runs["first_version"], *runs["last_version"]}, key=parse_version)
    curves: dict[tuple[object, ...], tuple[AtlasCurve, list[str]]] = {}
    for (name,), rows in runs.group_by("benchmark", maintain_order=True):
        for version in versions:
            valid = _valid_in(rows, version)
            if not valid:
                continue
            kind, numbers = parse_version(version)
            benchmark = find_benchmark(str(name), numbers)
            curve = AtlasCurve(
                curve=f"mlperf-{name}-{kind}-{'.'.join(map(str, numbers[:2]))}",
                source="mlperf",
                label=benchmark.label,
                kind=benchmark.kind,
                dataset=benchmark.dataset,
                model=benchmark.model,
                optimizer=benchmark.optimizer,
                goal=benchmark.goal,
                runs=valid,
                unit=benchmark.unit,
                batch_unit=benchmark.batch_unit,
                sequence=benchmark.sequence,
                parameters=benchmark.parameters,
                examples=benchmark.examples,
                resolution=benchmark.every,
                note=benchmark.note,
            )
            key = (curve.model, curve.unit, tuple(valid))
            curves.setdefault(key, (curve, []))[1].append(f"{kind} {'.'.join(map(str, numbers[:2]))}")
    for curve, names in curves.values():
        names.sort()
        variant = names[0] if len(names) == 1 else f"{names[0]} to {names[-1].rpartition(' ')[2]}"
        yield replace(curve, variant=variant)


def zeus_curves(path: Path) -> Iterator[AtlasCurve]:
    """Return a curve per data set, network and target; a run that did not reach it has no amount."""
    runs = pl.read_csv(path, infer_schema_length=None).with_columns(
        pl.col("target_epoch").cast(pl.Float64, strict=False).fill_nan(None)
    )
    keys = ["dataset", "network", "optimizer", "target_metric"]
    for (dataset, network, optimizer, target), rows in runs.group_by(keys, maintain_order=True):
        label, kind, batch_unit, examples = _ZEUS[str(dataset)]
        yield AtlasCurve(
            curve=f"zeus-{network}-{dataset}-{target:g}",
            source="zeus",
            label=label,
            kind=kind,
            dataset=str(dataset).replace("-", "_"),
            model=str(network),
            optimizer=str(optimizer),
            goal=f"validation metric {'<' if dataset in _BELOW else '>'} {target:g}",
            runs=rows.select("batch_size", "target_epoch").rows(),
            unit="epochs",
            batch_unit=batch_unit,
            examples=examples,
            resolution=1,
        )


def ddsp_curves(path: Path) -> Iterator[AtlasCurve]:
    """Return the curve of the design document on distributed training, some of whose runs failed."""
    runs = pl.read_csv(path, infer_schema_length=None)
    steps = pl.when("reached_goal").then("steps").cast(pl.Float64).alias("steps")
    yield AtlasCurve(
        "ddsp-autoencoder", "ddsp", "DDSP autoencoder on recordings", "audio", "recordings", "ddsp_autoencoder", "adam",
        "loss <= 5.0", runs.select("batch_size", steps).rows(),
        note="several learning rates, all runs that reached the goal",
    )  # fmt: skip


def paper_curves(path: Path) -> Iterator[AtlasCurve]:
    """Return the series of the published figures that show steps; each workload and goal once, in steps if possible."""
    points = pl.read_csv(path, infer_schema_length=None).filter(pl.col("y_kind").str.contains("steps"))
    points = points.sort(pl.col("y_kind") != "steps", maintain_order=True)
    seen = set()
    keys = ["figure", "panel", "dataset", "model", "optimizer", "goal_metric", "goal", "maximize", "series", "y_kind"]
    for key, rows in points.group_by(keys, maintain_order=True):
        figure, _, dataset, model, optimizer, metric, goal, maximize, series, y_kind = map(str, key)
        split = series if figure == "fig7b" else ""
        if (dataset, model, optimizer, metric, goal, split) in seen:
            continue
        seen.add((dataset, model, optimizer, metric, goal, split))
        yield AtlasCurve(
            curve="-".join(filter(None, ["paper", dataset, model, optimizer, goal, split.rpartition(" ")[2]])),
            source="paper",
            label="",
            kind="",
            dataset=dataset,
            model=model,
            optimizer=optimizer,
            goal=f"{metric} {'>' if maximize == 'True' else '<'} {goal}",
            runs=rows.select("batch_size", "y").rows(),
            unit="steps" if y_kind == "steps" else "relative steps",
            variant=f"Figure {figure[3:]}" + (f", {split.lower()}" if split else ""),
        )


def step_law_grid(path: Path) -> pl.DataFrame:
    """Return the runs of Step Law as a frame of ``GRID_SCHEMA``, batch sizes in tokens."""
    names = {"params": "parameters"}
    runs = pl.read_csv(path).rename(names).with_columns((pl.col("batch_sequences") * SEQUENCE).alias("batch_size"))
    return runs.select(pl.col(name).cast(kind) for name, kind in GRID_SCHEMA.items())


def step_law_curves(path: Path) -> Iterator[AtlasCurve]:
    """Return the tokens to a loss for each model size, between measured budgets; batch sizes in sequences."""
    for curve in iso_loss_curves(step_law_grid(path)):
        atlas_curve = _language_model_curve("step_law", "dense", curve, per_sequence=SEQUENCE)
        goal = f"train/loss < {curve.loss:.3f}"
        yield replace(atlas_curve, optimizer="adamw", goal=goal, sequence=SEQUENCE)


def nqs_curves(path: Path) -> Iterator[AtlasCurve]:
    """Return the sequences to a loss for the two models that were trained at fixed numbers of sequences."""
    runs = pl.read_csv(path).filter(pl.col("type") == "isotoken")
    budgets = runs.with_columns(tokens=(pl.col("B") * pl.col("K")).median().over("N", "C"))  # up to a batch the same
    names = {"N": "parameters", "B": "batch_size"}
    grid = budgets.rename(names).with_columns(learning_rate=pl.lit(None, dtype=pl.Float64))
    for curve in iso_loss_curves(grid.select(pl.col(name).cast(kind) for name, kind in GRID_SCHEMA.items())):
        yield _language_model_curve("nqs", "nqs", curve)


def _language_model_curve(source: str, model: str, curve: IsoLossCurve, per_sequence: int = 1) -> AtlasCurve:
    """Return the curve of a model to one loss; its batch sizes are divided by the tokens of a sequence."""
    millions = f"{curve.parameters / 1e6:.0f}"
    return AtlasCurve(
        curve=f"{source}-{millions}m-{curve.loss:.3f}",
        source=source,
        label=f"Language model of {millions} M",
        kind="language model",
        dataset=f"{source}_text",
        model=f"{model}_{millions}m",
        optimizer="",
        goal=f"loss < {curve.loss:.3f}",
        runs=[(round(size / per_sequence), steps) for size, steps in curve.points.rows()],
        batch_unit="sequences",
        parameters=round(curve.parameters),
    )


def public_curves(data: Path) -> Iterator[AtlasCurve]:
    """Return all curves of the folder of public measurements and of the files beside it."""
    yield from paper_curves(data.parent / "paper_curves.csv")
    yield from mlperf_curves(data / "mlperf_rcp_runs.csv")
    yield from zeus_curves(data / "zeus_summary_train.csv")
    yield from step_law_curves(data / "steplaw_runs.csv")
    yield from nqs_curves(data / "nqs_runs.csv")
    yield from ddsp_curves(data.parent / "ddsp_training_runs.csv")


def parse_version(text: str) -> tuple[str, tuple[int, ...]]:
    """Return the kind and the numbers of a version.

    >>> parse_version("training_4.1.0")
    ('training', (4, 1, 0))
    """
    kind, _, number = text.rpartition("_")
    return kind, tuple(int(part) for part in number.split("."))


def _valid_in(rows: pl.DataFrame, version: str) -> list[tuple[int, float]]:
    """Return (batch size, amount) of the records that stand in a version."""
    wanted = parse_version(version)
    return [
        (size, float(amount))
        for first, last, size, amount in rows.select("first_version", "last_version", "batch_size", "amount").rows()
        if parse_version(first) <= wanted <= parse_version(last) and parse_version(first)[0] == wanted[0]
    ]
