"""The contents of the paper's figures of steps to result, as values: Figures 1 to 6, 12 and 15 to 17.

Workloads, goals, numbers of trials and normalising batch sizes are those of the authors' public notebook; Figure 12
has no public code, and its training goals here are the validation goals' values.
"""

from batchscale.figures.names import dataset_label, goal_label, model_label, optimizer_label
from batchscale.figures.series import CurvePanel, Series
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

NESTEROV = "nesterov_momentum"
# The paper ran 100 non-divergent trials a study, and 50 for these (footnote 14).
FEWER_TRIALS = {
    "lm1b/lstm/nesterov_momentum": 50,
    "common_crawl/transformer_base/nesterov_momentum": 50,
    "lm1b/transformer_shallow/sgd": 50,
}


def error_goal(value: float) -> Goal:
    """Return a validation classification error."""
    return Goal("val/classification_error", value)


def entropy_goal(value: float) -> Goal:
    """Return a validation cross entropy error."""
    return Goal("val/cross_entropy_error", value)


def precision_goal(value: float) -> Goal:
    """Return a validation average precision, to be maximised."""
    return Goal("val/average_precision", value, maximize=True)


def published(dataset: str, model: str, goal: Goal, label: str = "", optimizer: str = NESTEROV) -> Series:
    """Return a curve of the paper, from as many of the first COMPLETE trials as the paper counts."""
    workload = WorkloadName(dataset, model, optimizer)
    return Series(workload, goal, label, FEWER_TRIALS.get(str(workload), 100))


def figure_1() -> list[CurvePanel]:
    """Return the nine workloads, a panel each."""
    curves = [
        published("mnist", "simple_cnn_base", error_goal(0.01)),
        published("fashion_mnist", "simple_cnn_base", error_goal(0.1)),
        published("cifar_10", "resnet_8", error_goal(0.3)),
        published("imagenet", "resnet_50", error_goal(0.25)),
        published("open_images_v4", "resnet_50", precision_goal(0.31)),
        published("lm1b", "transformer_base", entropy_goal(3.9)),
        published("common_crawl", "transformer_base", entropy_goal(3.9)),
        published("imagenet", "vgg_11", error_goal(0.35)),
        published("lm1b", "lstm", entropy_goal(3.9)),
    ]
    return [CurvePanel(_short(series), (series,)) for series in curves]


def figure_2() -> list[CurvePanel]:
    """Families of goals."""
    families = [
        ("mnist", "simple_cnn_base", [error_goal(v) for v in (0.008, 0.01, 0.012, 0.014, 0.016)]),
        ("lm1b", "transformer_base", [entropy_goal(v) for v in (3.8, 3.85, 3.9, 3.95, 4.0, 4.05)]),
        ("imagenet", "resnet_50", [error_goal(v) for v in (0.25, 0.27, 0.29, 0.31)]),
    ]
    return [
        CurvePanel(
            f"{model_label(model)} on {dataset_label(data)}: goals",
            tuple(published(data, model, goal, goal_label(goal)) for goal in goals),
        )
        for data, model, goals in families
    ]


def figure_3(*, normalised: bool = True) -> list[CurvePanel]:
    """Models against each other: architectures (a to c) and sizes (d to f)."""
    sgd = "sgd"
    widths = (128, 256, 512, 1024, 2048)
    fully_connected = ["fc_1024", *("_".join(["fc", *([str(width)] * 3)]) for width in widths)]
    cnns = ("simple_cnn_base", "simple_cnn_narrow", "simple_cnn_wide")
    transformers = ("wide", "base", "shallow", "narrow_and_shallow")
    panels = [
        (
            "(a) Fully Connected and Simple CNN on MNIST",
            [_model("mnist", model, error_goal(0.03), sgd) for model in ("fc_1024_1024_1024", "simple_cnn_base")],
            1,
        ),
        (
            "(b) ResNet-50 and VGG-11 on ImageNet",
            [_model("imagenet", m, error_goal(0.35)) for m in ("resnet_50", "vgg_11")],
            64,
        ),
        (
            "(c) Transformer and LSTM on LM1B",
            [_model("lm1b", m, entropy_goal(3.9)) for m in ("transformer_base", "lstm")],
            16,
        ),
        ("(d) Fully Connected sizes on MNIST", [_model("mnist", m, error_goal(0.03), sgd) for m in fully_connected], 2),
        ("(e) Simple CNN sizes on MNIST", [_model("mnist", m, error_goal(0.01), sgd) for m in cnns], 2),
        (
            "(f) Transformer sizes on LM1B",
            [_model("lm1b", f"transformer_{m}", entropy_goal(4.2)) for m in transformers],
            16,
        ),
    ]
    return _panels(panels, normalised)


def figure_4() -> list[CurvePanel]:
    """Optimizers against each other."""
    every = ("sgd", "momentum", NESTEROV)
    panels = [
        ("Simple CNN on MNIST", "mnist", "simple_cnn_base", error_goal(0.01), every),
        ("Transformer Shallow on LM1B", "lm1b", "transformer_shallow", entropy_goal(3.9), every),
        ("ResNet-8 on CIFAR-10", "cifar_10", "resnet_8", error_goal(0.3), ("sgd", NESTEROV)),
    ]
    return [
        CurvePanel(title, tuple(published(data, model, goal, optimizer_label(o), o) for o in optimizers))
        for title, data, model, goal, optimizers in panels
    ]


def figure_5(*, normalised: bool = True) -> list[CurvePanel]:
    """Data sets against each other."""
    panels = [
        (
            "(a) Simple CNN on different data sets",
            [
                _data("mnist", "simple_cnn_base", error_goal(0.01)),
                _data("fashion_mnist", "simple_cnn_base", error_goal(0.1)),
            ],
            2,
        ),
        (
            "(b) ResNet-50 on different data sets",
            [
                _data("imagenet", "resnet_50", error_goal(0.25)),
                _data("open_images_v4", "resnet_50", precision_goal(0.31)),
            ],
            128,
        ),
        (
            "(c) Transformer on different data sets",
            [_data(name, "transformer_base", entropy_goal(3.9)) for name in ("lm1b", "common_crawl")],
            32,
        ),
    ]
    return _panels(panels, normalised)


def figure_6(*, normalised: bool = True) -> list[CurvePanel]:
    """Subsets of data sets against each other."""
    sizes = (55000, 27500, 13750, 6875)
    subsets = [_data(f"mnist_subsets/mnist_{size}", "simple_cnn_base", error_goal(0.02)) for size in sizes]
    halves = [
        _data(f"imagenet_subsets/imagenet_{half}", "resnet_50", error_goal(0.3))
        for half in ("half_images", "half_classes")
    ]
    whole = _data("imagenet", "resnet_50", error_goal(0.25))
    panels = [
        ("(a) Simple CNN on MNIST subsets", subsets, 2),
        ("(b) ResNet-50 on ImageNet subsets", [whole, *halves], 64),
    ]
    return _panels(panels, normalised)


def figure_12() -> list[CurvePanel]:
    """Training goals beside validation goals."""
    curves = [
        published("mnist", "simple_cnn_base", error_goal(0.01)),
        published("lm1b", "transformer_base", entropy_goal(3.9)),
        published("imagenet", "resnet_50", error_goal(0.25)),
    ]
    return [
        CurvePanel(
            _short(series),
            tuple(
                published(
                    series.workload.dataset,
                    series.workload.model,
                    Goal(f"{split}/{series.goal.metric_name}", series.goal.value),
                    f"{words} {series.goal.value:g}",
                )
                for split, words in (("train", "training"), ("val", "validation"))
            ),
        )
        for series in curves
    ]


def _short(series: Series) -> str:
    return f"{model_label(series.workload.model)} on {dataset_label(series.workload.dataset)}"


def _model(dataset: str, model: str, goal: Goal, optimizer: str = NESTEROV) -> Series:
    label = "Transformer Base" if model == "transformer_base" else model_label(model)
    return published(dataset, model, goal, label, optimizer)


def _data(dataset: str, model: str, goal: Goal) -> Series:
    return published(dataset, model, goal, f"{dataset_label(dataset)} ({goal.value:g})")


def _panels(panels: list[tuple[str, list[Series], int]], normalised: bool) -> list[CurvePanel]:
    return [CurvePanel(title, tuple(series), at if normalised else None) for title, series, at in panels]
