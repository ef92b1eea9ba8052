"""The paper's workloads: parameters of each, and batch sizes and costs as far as Figure 1 shows them. Imports no jax.

Numbers of parameters follow from the models, and a test computes each again. Those of curves are read off the
published figure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.spec.workload_name import WorkloadName

PAPER_WORKLOADS: Mapping[str, int] = {
    "cifar_10/resnet_8/nesterov_momentum": 75_050,
    "cifar_10/resnet_8/sgd": 75_050,
    "common_crawl/transformer_base/nesterov_momentum": 31_193_088,
    "fashion_mnist/simple_cnn_base/nesterov_momentum": 3_274_634,
    "imagenet/resnet_50/nesterov_momentum": 25_549_352,
    "imagenet/vgg_11/nesterov_momentum": 132_863_336,
    "imagenet_subsets/imagenet_half_classes/resnet_50/nesterov_momentum": 24_524_852,
    "imagenet_subsets/imagenet_half_images/resnet_50/nesterov_momentum": 25_549_352,
    "lm1b/lstm/nesterov_momentum": 62_791_680,
    "lm1b/transformer_base/nesterov_momentum": 35_286_016,
    "lm1b/transformer_narrow_and_shallow/nesterov_momentum": 9_769_472,
    "lm1b/transformer_shallow/momentum": 22_684_672,
    "lm1b/transformer_shallow/nesterov_momentum": 22_684_672,
    "lm1b/transformer_shallow/sgd": 22_684_672,
    "lm1b/transformer_wide/nesterov_momentum": 108_320_768,
    "mnist/fc_1024/sgd": 814_090,
    "mnist/fc_1024_1024/sgd": 1_863_690,
    "mnist/fc_1024_1024_1024/sgd": 2_913_290,
    "mnist/fc_128_128_128/sgd": 134_794,
    "mnist/fc_2048_2048_2048/sgd": 10_020_874,
    "mnist/fc_256_256_256/sgd": 335_114,
    "mnist/fc_512_512_512/sgd": 932_362,
    "mnist/fc_64_64_64/sgd": 59_210,
    "mnist/simple_cnn_base/momentum": 3_274_634,
    "mnist/simple_cnn_base/nesterov_momentum": 3_274_634,
    "mnist/simple_cnn_base/sgd": 3_274_634,
    "mnist/simple_cnn_narrow/sgd": 821_706,
    "mnist/simple_cnn_wide/sgd": 13_074_186,
    "mnist_subsets/mnist_13750/simple_cnn_base/nesterov_momentum": 3_274_634,
    "mnist_subsets/mnist_27500/simple_cnn_base/nesterov_momentum": 3_274_634,
    "mnist_subsets/mnist_55000/simple_cnn_base/nesterov_momentum": 3_274_634,
    "mnist_subsets/mnist_6875/simple_cnn_base/nesterov_momentum": 3_274_634,
    "open_images_v4/resnet_50/nesterov_momentum": 38_224_466,
    "solution_quality/fashion_mnist/simple_cnn_base/nesterov_momentum": 3_274_634,
    "solution_quality/mnist/simple_cnn_base/nesterov_momentum": 3_274_634,
}
"""The 35 workloads of the paper under their published names, with their numbers of parameters."""

MORE_WORKLOADS: Mapping[str, int] = {
    "digits/fc_64/nesterov_momentum": 4_810,
    "ptb/transformer_shallow/nesterov_momentum": 11_420_672,
    "noisy_quadratic/quadratic/sgd": 100,
}
"""Workloads that need no data of the paper."""


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
    """Return the curve of this data set and model, else the first of the data set; None if Figure 1 has none.

    >>> find_published(WorkloadName("mnist_subsets/mnist_6875", "simple_cnn_base", "sgd")).examples
    63000.0
    """
    dataset = name.dataset.rpartition("/")[2]
    bases = (key.partition("/")[0] for key in FIGURE_1)
    base = next((base for base in bases if dataset == base or dataset.startswith(f"{base}_")), None)
    if base is None:
        return None
    same = FIGURE_1.get(f"{base}/{name.model}")
    return same or next(curve for key, curve in FIGURE_1.items() if key.startswith(f"{base}/"))
