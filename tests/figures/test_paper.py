"""The frames of the paper's figures against values computed here from the files, with json and csv alone."""

import csv
import json
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from batchscale.figures.paper import PAPER_FIGURES, find_paper_figure
from batchscale.records.frames import Records


class Tree:
    """A second, slow reader: plain dictionaries from the files of a records tree."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @cache  # noqa: B019 - lives as long as the test session
    def study(self, workload: str, size: int) -> list[dict]:
        trials = []
        for folder in (self.root / workload / str(size)).iterdir():
            if not folder.is_dir():
                continue
            data = json.loads((folder / "metadata.json").read_text())
            with (folder / "measurements.csv").open(newline="") as file:
                data["rows"] = list(csv.DictReader(file))
            trials.append(data)
        return sorted(trials, key=lambda trial: trial["trial_id"])

    def sizes(self, workload: str) -> list[int]:
        return sorted(int(folder.name) for folder in (self.root / workload).iterdir())

    def train_steps(self, workload: str, size: int) -> int:
        return json.loads((self.root / workload / str(size) / "study.json").read_text())["train_steps"]

    def winner(self, workload, size, metric, goal, *, maximize=False, first=100):
        """Steps and trial of the first COMPLETE trial to pass the goal, or None."""
        complete = [trial for trial in self.study(workload, size) if trial["status"] == "COMPLETE"][:first]
        best = None
        for trial in complete:
            for row in trial["rows"]:
                value = float(row[metric])
                if value > goal if maximize else value < goal:
                    if best is None or int(row["step"]) < best[0]:
                        best = (int(row["step"]), trial)
                    break
        return best


@pytest.fixture(scope="session")
def tree(synthetic_tree: Path) -> Tree:
    return Tree(synthetic_tree)


ERROR, ENTROPY, PRECISION = "val/classification_error", "val/cross_entropy_error", "val/average_precision"
NESTEROV = "nesterov_momentum"
FIGURE_1 = {
    "Simple CNN on MNIST": ("mnist/simple_cnn_base", ERROR, 0.01),
    "Simple CNN on Fashion MNIST": ("fashion_mnist/simple_cnn_base", ERROR, 0.1),
    "ResNet-8 on CIFAR-10": ("cifar_10/resnet_8", ERROR, 0.3),
    "ResNet-50 on ImageNet": ("imagenet/resnet_50", ERROR, 0.25),
    "ResNet-50 on Open Images": ("open_images_v4/resnet_50", PRECISION, 0.31),
    "Transformer on LM1B": ("lm1b/transformer_base", ENTROPY, 3.9),
    "Transformer on Common Crawl": ("common_crawl/transformer_base", ENTROPY, 3.9),
    "VGG-11 on ImageNet": ("imagenet/vgg_11", ERROR, 0.35),
    "LSTM on LM1B": ("lm1b/lstm", ENTROPY, 3.9),
}


def expected_curve(tree: Tree, workload: str, metric: str, goal: float) -> dict[int, int | None]:
    found = {
        size: tree.winner(workload, size, metric, goal, maximize=metric == PRECISION) for size in tree.sizes(workload)
    }
    return {size: None if best is None else best[0] for size, best in found.items()}


def test_figure_1_has_the_steps_to_result_of_nine_workloads(synthetic: Records, tree: Tree):
    frame = PAPER_FIGURES["paper-1"].data(synthetic)
    assert frame["panel"].unique(maintain_order=True).to_list() == list(FIGURE_1)
    for title, (workload, metric, goal) in FIGURE_1.items():
        panel = frame.filter(pl.col("panel") == title)
        want = expected_curve(tree, f"{workload}/{NESTEROV}", metric, goal)
        assert dict(panel.select("batch_size", "steps").rows()) == want
        first = next(size for size, steps in want.items() if steps is not None)
        for size, perfect in panel.select("batch_size", "perfect").rows():
            assert perfect == pytest.approx(want[first] * first / size)


TRANSFORMERS = ("wide", "base", "shallow", "narrow_and_shallow")
FIGURE_3 = {
    "a": (1, 0.03, ERROR, ["mnist/fc_1024_1024_1024/sgd", "mnist/simple_cnn_base/sgd"]),
    "b": (64, 0.35, ERROR, [f"imagenet/resnet_50/{NESTEROV}", f"imagenet/vgg_11/{NESTEROV}"]),
    "c": (16, 3.9, ENTROPY, [f"lm1b/transformer_base/{NESTEROV}", f"lm1b/lstm/{NESTEROV}"]),
    "d": (2, 0.03, ERROR, ["mnist/fc_1024/sgd", *(f"mnist/fc_{w}_{w}_{w}/sgd" for w in (128, 256, 512, 1024, 2048))]),
    "e": (2, 0.01, ERROR, [f"mnist/simple_cnn_{size}/sgd" for size in ("base", "narrow", "wide")]),
    "f": (16, 4.2, ENTROPY, [f"lm1b/transformer_{size}/{NESTEROV}" for size in TRANSFORMERS]),
}  # fmt: skip


@pytest.mark.parametrize("letter", sorted(FIGURE_3))
def test_figure_3_is_normalised_at_its_batch_size(synthetic: Records, tree: Tree, letter: str):
    at, goal, metric, workloads = FIGURE_3[letter]
    frame = PAPER_FIGURES["paper-3"].data(synthetic).filter(pl.col("panel").str.starts_with(f"({letter})"))
    assert frame["series"].n_unique() == len(workloads)
    for workload in workloads:
        dataset, model, optimizer = workload.split("/")
        rows = frame.filter(
            (pl.col("dataset") == dataset) & (pl.col("model") == model) & (pl.col("optimizer") == optimizer)
        )
        steps = expected_curve(tree, workload, metric, goal)
        want = {size: None if s is None else s / steps[at] for size, s in steps.items()}
        assert dict(rows.select("batch_size", "value").rows()) == pytest.approx(want)


def test_figure_4_compares_optimizers(synthetic: Records, tree: Tree):
    frame = PAPER_FIGURES["paper-4"].data(synthetic)
    every = ("sgd", "momentum", NESTEROV)
    panels = [
        ("mnist/simple_cnn_base", ERROR, 0.01, every),
        ("lm1b/transformer_shallow", ENTROPY, 3.9, every),
        ("cifar_10/resnet_8", ERROR, 0.3, ("sgd", NESTEROV)),
    ]
    assert frame.select("panel", "series").n_unique() == 8
    for workload, metric, goal, optimizers in panels:
        for optimizer in optimizers:
            rows = frame.filter(
                (pl.col("dataset") + "/" + pl.col("model") == workload) & (pl.col("optimizer") == optimizer)
            )
            want = expected_curve(tree, f"{workload}/{optimizer}", metric, goal)
            assert dict(rows.select("batch_size", "value").rows()) == want


def test_figure_8_has_the_winners_effective_learning_rates(synthetic: Records, tree: Tree):
    frame = PAPER_FIGURES["paper-8"].data(synthetic)
    for title, (workload, metric, goal) in FIGURE_1.items():
        panel = frame.filter(pl.col("panel") == title).drop_nulls("value")
        want = {}
        for size in tree.sizes(f"{workload}/{NESTEROV}"):
            best = tree.winner(f"{workload}/{NESTEROV}", size, metric, goal, maximize=metric == PRECISION)
            if best is not None:
                values = best[1]["parameters"]
                want[size] = values["learning_rate"] / (1 - values["momentum"])
        assert dict(panel.select("batch_size", "value").rows()) == pytest.approx(want)
        first = min(want)
        for size, linear, root in panel.select("batch_size", "linear", "square_root").rows():
            assert linear == pytest.approx(want[first] * size / first)
            assert root == pytest.approx(want[first] * (size / first) ** 0.5)


@pytest.mark.parametrize(
    ("letter", "sizes", "limit"),
    [
        ("a", (128, 256, 512, 1024, 2048, 4096), lambda size: 30_301_028 / size),
        ("b", (512, 1024, 2048, 4096, 8192, 16384), lambda _: 25_000),
    ],
)
def test_figure_9_judges_trials_within_its_budget(synthetic: Records, tree: Tree, letter, sizes, limit):
    frame = PAPER_FIGURES["paper-9"].data(synthetic).filter(pl.col("panel").str.starts_with(f"({letter})"))
    assert sorted(frame["batch_size"].unique()) == list(sizes)
    for size in sizes:
        want, best = {}, None
        for trial in tree.study(f"lm1b/transformer_base/{NESTEROV}", size):
            if trial["status"] == "INCOMPLETE":
                continue
            steps = next((int(r["step"]) for r in trial["rows"] if float(r[ENTROPY]) < 3.9), None)
            reached = trial["status"] == "COMPLETE" and steps is not None and steps <= limit(size)
            outcome = "infeasible" if trial["status"] == "INFEASIBLE" else "reached" if reached else "not_reached"
            values = trial["parameters"]
            want[trial["trial_id"]] = (values["learning_rate"], 1 - values["momentum"], outcome)
            if reached and (best is None or steps < best[0]):
                best = (steps, trial["trial_id"])
        rows = frame.filter(pl.col("batch_size") == size)
        found = rows.select("trial_id", "learning_rate", "one_minus_momentum", "outcome").rows()
        assert {trial: tuple(rest) for trial, *rest in found} == want
        assert rows.filter("best")["trial_id"].to_list() == ([] if best is None else [best[1]])


def test_figure_11_has_the_best_values_within_budgets(synthetic: Records, tree: Tree):
    frame = PAPER_FIGURES["paper-11"].data(synthetic)
    panels = [
        ("solution_quality/mnist/simple_cnn_base", 55_000, ERROR, [1e4, 1e6, 5e6], [10, 500, 1e4]),
        ("solution_quality/fashion_mnist/simple_cnn_base", 55_000, ERROR, [5e3, 2e5], [20, 5000]),
        ("lm1b/transformer_base", 30_301_028, ENTROPY, [1e4, 1e5], [0.5, 20]),
        ("lm1b/transformer_narrow_and_shallow", 30_301_028, ENTROPY, [1e4, 1e6], [0.2, 10]),
    ]
    for workload, examples, metric, steps, epochs in panels:
        for unit, amounts in (("steps", steps), ("epochs", epochs)):
            for amount in amounts:
                want = {}
                for size in tree.sizes(f"{workload}/{NESTEROV}"):
                    limit = amount if unit == "steps" else amount * examples / size
                    inside = [
                        (int(row["step"]), float(row[metric]))
                        for trial in tree.study(f"{workload}/{NESTEROV}", size)
                        if trial["status"] == "COMPLETE"
                        for row in trial["rows"]
                        if int(row["step"]) <= limit
                    ]
                    # What was measured at the start only says nothing about a budget.
                    measured = any(step > 0 for step, _ in inside)
                    if measured and tree.train_steps(f"{workload}/{NESTEROV}", size) >= limit:
                        want[size] = min(value for _, value in inside)
                rows = frame.filter(
                    (pl.col("dataset") + "/" + pl.col("model") == workload)
                    & (pl.col("budget_unit") == unit)
                    & (pl.col("budget_amount") == amount)
                )
                # Tables keep metrics in float32, which prints seven digits.
                assert dict(rows.select("batch_size", "value").rows()) == pytest.approx(want, rel=1e-6)


def test_every_panel_of_every_figure_has_something_to_show(synthetic: Records):
    for recipe in PAPER_FIGURES.values():
        frame = recipe.data(synthetic)
        shown = "learning_rate" if "one_minus_momentum" in frame.columns else "value"
        counts = frame.group_by("panel").agg(pl.col(shown).is_not_null().sum())
        assert counts[shown].min() > 0, (recipe.name, counts)


def test_there_are_24_figures_and_an_unknown_one_is_refused():
    assert [recipe.number for recipe in PAPER_FIGURES.values()] == list(range(1, 25))
    with pytest.raises(LookupError, match="figures 1 to 24"):
        find_paper_figure("paper-25")
