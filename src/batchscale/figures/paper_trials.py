"""The contents of the paper's figures of trials and budgets, as values: Figures 7, 9 to 11, 13, 14, 18 to 20.

Figures 18 to 20 have no public code: Figure 19 takes the searches of ``solution_quality``, the only ones there with
label smoothing on MNIST and Fashion MNIST, and Figure 20 every other batch size.
"""

from collections.abc import Iterable, Mapping

import polars as pl

from batchscale.figures.kinds.budget import BudgetPanel
from batchscale.figures.kinds.effective_learning_rate import EffectivePanel
from batchscale.figures.kinds.label_smoothing import SplitPanel
from batchscale.figures.kinds.map import MapPanel
from batchscale.figures.kinds.space import SpaceSelection
from batchscale.figures.kinds.training import TrainingPanel, best_by_value
from batchscale.figures.names import dataset_label, model_label
from batchscale.figures.paper_curves import NESTEROV, entropy_goal, error_goal
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.workload_name import WorkloadName

TRANSFORMER = WorkloadName("lm1b", "transformer_base", NESTEROV)
RESNET = WorkloadName("imagenet", "resnet_50", NESTEROV)
FIXED_MOMENTUM: Mapping[str, float] = {"lm1b/lstm/nesterov_momentum": 0.99}  # footnote 12

_SERIES_125 = (1, 2, 5)


def figure_7() -> list[SplitPanel]:
    """Label smoothing on ImageNet."""
    goal = error_goal(0.25)
    return [
        SplitPanel("(a) Best validation error", RESNET, goal, "label_smoothing", best=True, first_trials=100),
        SplitPanel("(b) Steps to error below 0.25", RESNET, goal, "label_smoothing", best=False, first_trials=100),
    ]


def figure_9() -> list[MapPanel]:
    """Return the map of Transformer's trials, within an epoch and within 25,000 steps."""
    goal = entropy_goal(3.9)
    epoch, steps = Budget(1, Unit.EPOCHS), Budget(25_000, Unit.STEPS)
    return [
        *(
            MapPanel(f"(a) batch size {size:,}, 1 epoch", TRANSFORMER, size, goal, epoch)
            for size in (128, 256, 512, 1024, 2048, 4096)
        ),
        *(
            MapPanel(f"(b) batch size {size:,}, 25k steps", TRANSFORMER, size, goal, steps)
            for size in (512, 1024, 2048, 4096, 8192, 16384)
        ),
    ]


def figure_10() -> list[MapPanel]:
    """Return the map of four sizes of Transformer."""
    sizes = ("wide", "base", "shallow", "narrow_and_shallow")
    return [
        MapPanel(
            size.replace("_", " "),
            WorkloadName("lm1b", f"transformer_{size}", NESTEROV),
            1024,
            entropy_goal(4.2),
            Budget(50_000, Unit.STEPS),
        )
        for size in sizes
    ]


def figure_11() -> list[BudgetPanel]:
    """Step budgets on the left, epoch budgets on the right, four workloads."""
    images = [_solution_quality(name) for name in ("mnist", "fashion_mnist")]
    texts = [WorkloadName("lm1b", f"transformer_{size}", NESTEROV) for size in ("narrow_and_shallow", "base")]
    panels = []
    for letter, name in zip("ab", images, strict=True):
        panels += _budget_pair(letter, name, error_goal(0).metric, _between(5e3, 5e6), _between(10, 1e4))
    for letter, name in zip("cd", texts, strict=True):
        panels += _budget_pair(letter, name, entropy_goal(0).metric, _between(1e4, 1e6), _between(0.2, 20))
    return panels


def figure_13() -> SpaceSelection:
    """Transformer's search spaces."""
    return SpaceSelection(TRANSFORMER, entropy_goal(3.9), 100)


def figure_14() -> SpaceSelection:
    """ResNet-50's search spaces."""
    return SpaceSelection(RESNET, error_goal(0.25), 100)


def figure_18(records: Records) -> list[TrainingPanel]:
    """Return the best trials with and without label smoothing at batch size 2^16."""
    goal, size = error_goal(0.25), 2**16
    best = best_by_value(records, RESNET, size, goal, "label_smoothing")
    return [
        TrainingPanel(
            f"{words} classification error",
            RESNET,
            size,
            f"{split}/classification_error",
            goal,
            best,
            background=False,
        )
        for split, words in (("train", "Training"), ("val", "Validation"))
    ]


def figure_19() -> list[SplitPanel]:
    """Label smoothing on MNIST and Fashion MNIST."""
    return [
        SplitPanel(
            f"Simple CNN on {dataset_label(name)}", _solution_quality(name), error_goal(0), "label_smoothing", best=True
        )
        for name in ("mnist", "fashion_mnist")
    ]


def figure_20() -> list[EffectivePanel]:
    """Transformer and ResNet-50 at several batch sizes."""
    studies = [
        (TRANSFORMER, entropy_goal(3.9), (32, 128, 512, 2048, 8192, 32768)),
        (RESNET, error_goal(0.25), (64, 256, 1024, 4096, 16384, 65536)),
    ]
    return [
        EffectivePanel(f"{model_label(name.model)}: batch size {size:,}", name, size, goal)
        for name, goal, sizes in studies
        for size in sizes
    ]


def zoomed_limits(frame: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Return ends of the value axis that show the lowest errors of each workload, alike for its panels."""
    limits: dict[str, tuple[float, float]] = {}
    for part in frame.partition_by("dataset"):
        lowest = part["value"].drop_nulls().min()
        if isinstance(lowest, float):
            limits |= dict.fromkeys(part["panel"].unique(), (lowest * 0.95, lowest * 1.6))
    return limits


def _solution_quality(dataset: str) -> WorkloadName:
    return WorkloadName(f"solution_quality/{dataset}", "simple_cnn_base", NESTEROV)


def _between(low: float, high: float) -> tuple[float, ...]:
    series = [digit * 10.0**power for power in range(-2, 8) for digit in _SERIES_125]
    return tuple(amount for amount in series if low <= amount * (1 + 1e-9) and amount <= high * (1 + 1e-9))


def _budget_pair(
    letter: str, name: WorkloadName, metric: str, steps: Iterable[float], epochs: Iterable[float]
) -> list[BudgetPanel]:
    title = f"({letter}) {model_label(name.model)} on {dataset_label(name.dataset.rpartition('/')[2])}"
    return [
        BudgetPanel(f"{title}: step budgets", name, metric, tuple(Budget(a, Unit.STEPS) for a in steps)),
        BudgetPanel(f"{title}: epoch budgets", name, metric, tuple(Budget(a, Unit.EPOCHS) for a in epochs)),
    ]
