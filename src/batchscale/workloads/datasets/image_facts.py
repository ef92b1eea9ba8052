"""The facts of ImageNet and Open Images: the published ones, or those of the files that the user names."""

from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.imagenet_files import (
    HALF_CLASSES,
    HALF_IMAGES,
    NUM_CLASSES,
    NUM_OFFICIAL,
    NUM_TEST,
    read_imagenet_splits,
)
from batchscale.workloads.datasets.declaration import DatasetFacts
from batchscale.workloads.datasets.files.locations import named_folder
from batchscale.workloads.datasets.images.open_images_splits import MIN_POSITIVES, read_open_images
from batchscale.workloads.datasets.images.open_images_splits import NUM_CLASSES as NUM_TRAINABLE
from batchscale.workloads.datasets.images.open_images_splits import NUM_TRAIN as NUM_OPEN_IMAGES
from batchscale.workloads.datasets.images.options import ImageNetOptions, OpenImagesOptions
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.tasks import Task


def imagenet_facts(name: str, options: Options) -> DatasetFacts:
    """ImageNet or a subset. How many pictures half of the classes have is known only with the files."""
    chosen = parse_options(ImageNetOptions, name, options)
    shape = (chosen.image_size, chosen.image_size, 3)
    if chosen.own_files:
        splits, num_classes = read_imagenet_splits(name, named_folder("imagenet", chosen.path), chosen)
        return DatasetFacts(name, Task.CLASSIFICATION, len(splits["train"].indices), num_classes, shape)
    if name == HALF_CLASSES:
        return DatasetFacts(name, Task.CLASSIFICATION, None, NUM_CLASSES // 2, shape)
    count = NUM_OFFICIAL - (NUM_TEST if chosen.test_images is None else chosen.test_images)
    return DatasetFacts(name, Task.CLASSIFICATION, count // 2 if name == HALF_IMAGES else count, NUM_CLASSES, shape)


def open_images_facts(name: str, options: Options) -> DatasetFacts:
    """Open Images; with another threshold for trainable classes its sizes are known only with the files."""
    chosen = parse_options(OpenImagesOptions, name, options)
    shape = (chosen.image_size, chosen.image_size, 3)
    if chosen.own_files:
        splits, classes = read_open_images(named_folder(name, chosen.path), chosen)
        return DatasetFacts(name, Task.MULTILABEL, len(splits["train"].indices), len(classes), shape)
    if chosen.min_positives != MIN_POSITIVES:
        return DatasetFacts(name, Task.MULTILABEL, None, None, shape)
    return DatasetFacts(name, Task.MULTILABEL, NUM_OPEN_IMAGES, NUM_TRAINABLE, shape)
