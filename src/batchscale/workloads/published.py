"""How the paper ran its workloads, as far as Figure 1 shows: which batch sizes, and what reaching the goal took.

The numbers are read off the published curves. Imports no jax.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.spec.workload_name import WorkloadName


@dataclass(frozen=True)
class PublishedCurve:
    """The smallest and largest batch size of a curve, and the fewest examples and the fewest steps to its goal."""

    smallest: int
    largest: int
    examples: float
    steps: int


FIGURE_1: Mapping[str, PublishedCurve] = {
    "mnist/simple_cnn_base": PublishedCurve(1, 55_000, 6.3e4, 140),
    "fashion_mnist/simple_cnn_base": PublishedCurve(2, 55_000, 4.6e4, 150),
    "cifar_10/resnet_8": PublishedCurve(2, 8_192, 2.1e5, 752),
    "imagenet/resnet_50": PublishedCurve(64, 65_536, 8.4e7, 6_400),
    "imagenet/vgg_11": PublishedCurve(32, 65_536, 5.2e7, 13_852),
    "open_images_v4/resnet_50": PublishedCurve(64, 32_768, 5.0e7, 7_351),
    "lm1b/transformer_base": PublishedCurve(16, 32_768, 8.9e6, 10_502),
    "lm1b/lstm": PublishedCurve(16, 32_768, 1.6e7, 184_004),
    "common_crawl/transformer_base": PublishedCurve(32, 16_384, 2.1e7, 36_997),
}
"""By data set and model; all with Nesterov momentum."""


def find_published(name: WorkloadName) -> PublishedCurve | None:
    """The curve of this data set and model, else the first one of the data set; None if Figure 1 has none.

    >>> find_published(WorkloadName("mnist_subsets/mnist_6875", "simple_cnn_base", "sgd")).examples
    63000.0
    """
    dataset = name.dataset.rpartition("/")[2]
    base = next((known for known in _datasets() if dataset == known or dataset.startswith(f"{known}_")), None)
    if base is None:
        return None
    same = FIGURE_1.get(f"{base}/{name.model}")
    return same or next(curve for key, curve in FIGURE_1.items() if key.startswith(f"{base}/"))


def _datasets() -> list[str]:
    return [key.partition("/")[0] for key in FIGURE_1]
