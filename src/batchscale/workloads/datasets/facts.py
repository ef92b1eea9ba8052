"""What is known of every data set before its files are touched: task, sizes, shapes. Imports no jax."""

from collections.abc import Callable

from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.imagenet_files import HALF_CLASSES, HALF_IMAGES
from batchscale.workloads.datasets.declaration import DatasetEntry, DatasetFacts
from batchscale.workloads.datasets.image_facts import imagenet_facts, open_images_facts
from batchscale.workloads.datasets.images.options import PixelOptions
from batchscale.workloads.datasets.options import NoOptions, parse_options
from batchscale.workloads.datasets.text_facts import common_crawl_facts, lm1b_facts, ptb_facts, user_text_facts
from batchscale.workloads.noisy_quadratic import parse_problem
from batchscale.workloads.tasks import Task

__all__ = ["DatasetEntry", "DatasetFacts", "check_dataset_name", "dataset_facts", "dataset_names", "files_folder"]


def _noisy_quadratic(name: str, options: Options) -> DatasetFacts:
    dimension = parse_problem(options).dimension
    return DatasetFacts(name, Task.QUADRATIC, None, dimension, (dimension,))


def _images(
    count: int, shape: tuple[int, int, int], kind: type[NoOptions] = PixelOptions
) -> Callable[[str, Options], DatasetFacts]:
    def facts(name: str, options: Options) -> DatasetFacts:
        parse_options(kind, name, options)
        return DatasetFacts(name, Task.CLASSIFICATION, count, 10, shape)

    return facts


def _entries() -> dict[str, DatasetEntry]:
    mnist = _images(55_000, (28, 28, 1))
    return {
        "digits": DatasetEntry("digits", None, _images(1_347, (8, 8, 1))),
        "mnist": DatasetEntry("mnist", "mnist", mnist),
        "fashion_mnist": DatasetEntry("fashion_mnist", "fashion_mnist", mnist),
        "solution_quality/mnist": DatasetEntry("mnist", "mnist", mnist),
        "solution_quality/fashion_mnist": DatasetEntry("fashion_mnist", "fashion_mnist", mnist),
        "imagenet": DatasetEntry("imagenet", "imagenet", imagenet_facts),
        HALF_IMAGES: DatasetEntry("imagenet", "imagenet", imagenet_facts),
        HALF_CLASSES: DatasetEntry("imagenet", "imagenet", imagenet_facts),
        "open_images_v4": DatasetEntry("open_images_v4", "open_images_v4", open_images_facts),
        "lm1b": DatasetEntry("lm1b", "lm1b", lm1b_facts),
        "common_crawl": DatasetEntry("common_crawl", "common_crawl", common_crawl_facts),
        "ptb": DatasetEntry("ptb", "ptb", ptb_facts),
        "text": DatasetEntry("text", None, user_text_facts),
        "cifar_10": DatasetEntry("cifar_10", "cifar_10", _images(45_000, (32, 32, 3), NoOptions)),
        **{
            f"mnist_subsets/mnist_{count}": DatasetEntry("mnist", "mnist", _images(count, (28, 28, 1)))
            for count in (6_875, 13_750, 27_500, 55_000)
        },
    }


_ENTRIES = {**_entries(), "noisy_quadratic": DatasetEntry("noisy_quadratic", None, _noisy_quadratic)}


def dataset_names() -> tuple[str, ...]:
    """The names of all data sets."""
    return tuple(_ENTRIES)


def check_dataset_name(name: str) -> DatasetEntry:
    """The entry of a data set, or an UnknownNameError with the nearest names."""
    if name not in _ENTRIES:
        raise UnknownNameError(f"No data set is called {one_line(repr(name))}: {suggest_names(name, _ENTRIES)}")
    return _ENTRIES[name]


def files_folder(name: str) -> str | None:
    """The folder name under which a data set's files are kept; None for a set that needs no files."""
    return check_dataset_name(name).folder


def dataset_facts(name: str, options: Options) -> DatasetFacts:
    """The facts of a data set with these options.

    >>> dataset_facts("mnist_subsets/mnist_6875", {}).num_train_examples
    6875
    """
    return check_dataset_name(name).facts(name, options)
