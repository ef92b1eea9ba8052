"""What the synthetic archive says about each of the 35 published workloads: goals, curves, spaces, metrics.

The numbers are rounded from the published curves, so that every goal of the paper's figures is reached and the three
regimes come out; nothing here is a measurement.
"""

from dataclasses import dataclass

MNIST, IMAGENET, LM1B = 55_000, 1_281_167, 30_301_028


@dataclass(frozen=True)
class LossModel:
    """A workload's learning: steps to the goal with the best metaparameters are ``steps + examples / batch size``.

    The validation metric falls from ``start`` towards ``floor`` as a power law of the step with exponent ``power``.
    """

    goal: float
    floor: float
    start: float
    steps: float
    examples: float
    power: float
    best_rate: float  # the effective learning rate that is best at batch size 1
    rate_batch: float  # above this batch size the best effective learning rate stays
    kind: str = "classification"  # or "language" or "average_precision"
    label_smoothing: tuple[float, ...] = ()
    decay: bool = False

    @property
    def evaluated(self) -> int:
        """How many examples a split is evaluated on: errors are multiples of one over it."""
        return 50_000 if self.start > 0.9 else 5_000


def loss_model(dataset: str, model: str, optimizer: str) -> LossModel:
    """The loss model of a published workload."""
    group, _, name = dataset.rpartition("/")
    if group == "mnist_subsets":
        size = int(name.rpartition("_")[2])
        return _simple_cnn(goal=0.02, floor=0.006 + 0.006 * (1 - size / MNIST), steps=90, examples=30_000)
    if group == "imagenet_subsets":
        return _resnet(goal=0.3, floor=0.24, steps=4_800, examples=60e6)
    if model.startswith("fc_"):
        return _fully_connected(model)
    if model.startswith("simple_cnn"):
        return _mnist_cnn(group, name, model, optimizer)
    return _large(name, model, optimizer)


def _simple_cnn(**facts: float) -> LossModel:
    values = {"start": 0.9, "power": 1.2, "best_rate": 0.008, "rate_batch": 400.0} | facts
    return LossModel(**values)


def _resnet(**facts: float) -> LossModel:
    values = {"start": 0.999, "power": 2.0, "best_rate": 0.0025, "rate_batch": 9_000.0} | facts
    return LossModel(**values, label_smoothing=(0.0, 0.01, 0.1), decay=True)


def _fully_connected(model: str) -> LossModel:
    steps, examples, floor = {
        "fc_1024": (600, 96_000, 0.016),
        "fc_1024_1024": (400, 80_000, 0.015),
        "fc_1024_1024_1024": (300, 71_000, 0.015),
        "fc_2048_2048_2048": (270, 71_000, 0.014),
        "fc_512_512_512": (300, 77_000, 0.016),
        "fc_256_256_256": (330, 80_000, 0.018),
        "fc_128_128_128": (400, 160_000, 0.021),
        "fc_64_64_64": (600, 300_000, 0.025),
    }[model]
    return LossModel(0.03, floor, 0.9, steps, examples, 1.0, best_rate=0.01, rate_batch=120.0)


def _mnist_cnn(group: str, dataset: str, model: str, optimizer: str) -> LossModel:
    smoothing = (0.0, 0.1) if group == "solution_quality" else ()
    if dataset == "fashion_mnist":
        return LossModel(0.1, 0.078, 0.9, 150, 48_000, 1.0, 0.01, 250.0, label_smoothing=smoothing)
    steps, examples = {
        ("simple_cnn_base", "nesterov_momentum"): (150, 70_000),
        ("simple_cnn_base", "momentum"): (160, 70_000),
        ("simple_cnn_base", "sgd"): (600, 106_000),
        ("simple_cnn_narrow", "sgd"): (850, 130_000),
        ("simple_cnn_wide", "sgd"): (500, 66_000),
    }[model, optimizer]
    rate_batch = 400.0 if optimizer != "sgd" else 90.0
    return LossModel(0.01, 0.006, 0.9, steps, examples, 1.2, 0.008, rate_batch, label_smoothing=smoothing)


def _large(dataset: str, model: str, optimizer: str) -> LossModel:
    if dataset == "cifar_10":
        steps, rate_batch = (750, 250.0) if optimizer != "sgd" else (6_000, 30.0)
        return LossModel(0.3, 0.18, 0.9, steps, 260_000, 1.0, 0.005, rate_batch, decay=True)
    if (dataset, model) == ("imagenet", "resnet_50"):
        return _resnet(goal=0.25, floor=0.21, steps=5_000, examples=92e6)
    if model == "vgg_11":
        return LossModel(0.35, 0.3, 0.999, 13_000, 52e6, 2.0, 0.0006, 1_500.0, decay=True)
    if dataset == "open_images_v4":
        return LossModel(0.69, 0.63, 0.99, 6_500, 52e6, 2.0, 0.0008, 12_000.0, "average_precision", (), decay=True)
    steps, examples, goal, floor = {
        ("transformer_base", "nesterov_momentum"): (10_000, 9e6, 3.9, 3.4),
        ("transformer_narrow_and_shallow", "nesterov_momentum"): (9_000, 17e6, 4.2, 3.7),
        ("transformer_shallow", "nesterov_momentum"): (14_000, 13e6, 3.9, 3.4),
        ("transformer_shallow", "momentum"): (14_000, 13e6, 3.9, 3.4),
        ("transformer_shallow", "sgd"): (90_000, 20e6, 3.9, 3.4),
        ("transformer_wide", "nesterov_momentum"): (9_000, 5e6, 3.9, 3.3),
        ("lstm", "nesterov_momentum"): (180_000, 13e6, 3.9, 3.5),
    }[model, optimizer]
    if dataset == "common_crawl":
        steps, examples = 36_000, 21e6
    rate_batch = examples / steps / 4
    return LossModel(goal, floor, 10.4, steps, examples, 0.41, 0.0013, rate_batch, "language")
