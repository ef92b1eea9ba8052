"""Does each of the paper's six model families learn? A small size of each, on real images or text, for a few steps.

Images are the embedded handwritten digits: as they are for the fully connected network and the Simple CNN, and as
40×40 PNG files, read, cut and centred as ImageNet's are, for the residual networks and VGG-11. Text is this project's
own documentation in sub-words.

    python benchmarks/families.py [NAME …]
"""

import argparse
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from batchscale.run.single_trial import SingleTrial, train_single
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.settings import EngineSettings
from batchscale.workloads.registry import get_workload

ROOT = Path(__file__).parents[1]
METRIC = "train/cross_entropy_error"
PER_CLASS = 60


@dataclass(frozen=True)
class Family:
    """A family at a size that two cores train in a minute, with a learning rate that was found by trying a few."""

    workload: str
    learning_rate: float
    steps: int
    batch_size: int = 32
    model_options: Mapping[str, Any] = field(default_factory=dict)


FAMILIES = {
    "Fully Connected": Family("digits/fc_64/sgd", 0.1, 300),
    "Simple CNN": Family("digits/simple_cnn_base/sgd", 0.05, 200, model_options={"filters": [8, 16], "units": 64}),
    "ResNet-8": Family("digits/resnet_8/nesterov_momentum", 0.02, 150, model_options={"width": 8}),
    "ResNet-50": Family(
        "imagenet/resnet_50/nesterov_momentum", 0.02, 60, model_options={"width": 8, "blocks": [1, 1, 1, 1]}
    ),
    "VGG-11": Family(
        "imagenet/vgg_11/nesterov_momentum", 2e-3, 300, model_options={"width": 16, "units": 128, "dropout": 0.2}
    ),
    "Transformer": Family(
        "text/transformer_base/momentum",
        0.02,
        200,
        model_options={"width": 64, "heads": 2, "filter_width": 128, "layers": 2},
    ),
    "LSTM": Family("text/lstm/momentum", 0.5, 200, model_options={"embedding": 64, "hidden": 128, "projection": 64}),
}


@dataclass(frozen=True)
class Learned:
    """The training loss before the first step and after the last."""

    start: float
    end: float


def write_images(folder: Path) -> Path:
    """Embedded digits as PNG files in a folder per class, as ImageNet's are laid out."""
    from batchscale.workloads.datasets.builtin.digits import read_splits

    images, labels = read_splits()["train"]
    for label in range(10):
        place = folder / "train" / f"n{label:08d}"
        place.mkdir(parents=True)
        for number, pixels in enumerate(images[labels == label][:PER_CLASS]):
            grey = Image.fromarray((np.asarray(pixels).reshape(8, 8) * (255 / np.max(pixels))).astype(np.uint8))
            grey.resize((40, 40), Image.Resampling.BILINEAR).convert("RGB").save(place / f"n{label:08d}_{number}.png")
    return folder


def write_text(folder: Path) -> Path:
    """The documentation, a paragraph a line."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = sorted((ROOT / "docs").glob("**/*.md"))
    lines = [" ".join(part.split()) for page in pages for part in page.read_text(encoding="utf-8").split("\n\n")]
    path = folder / "pages.txt"
    path.write_text("\n".join(line for line in lines if len(line) > 40) + "\n", encoding="utf-8")
    return path


def dataset_options(family: Family, folder: Path) -> dict[str, Any]:
    """The options that name the family's data, which is written first."""
    if family.workload.startswith("imagenet"):
        return {"path": str(write_images(folder / "images")), "image_size": 32, "test_images": 20}
    if family.workload.startswith("text"):
        return {"path": str(write_text(folder / "text")), "vocabulary_size": 600, "train_length": 32}
    return {}


def train_family(family: Family, folder: Path) -> Learned:
    """Train the family and give its training loss at both ends."""
    spec = WorkloadSpec(
        WorkloadName.parse(family.workload),
        dataset_options=dataset_options(family, folder),
        model_options=dict(family.model_options),
        schedule="constant",
    )
    workload = get_workload(spec, None)
    given = {"learning_rate": family.learning_rate}
    parameters = {name: given.get(name, value) for name, value in workload.defaults.items() if name in given}
    if "momentum" in workload.defaults:
        parameters["momentum"] = 0.9
    plan = EvaluationPlan(every=family.steps, examples={"train": 256, "val": 0, "test": 0})
    rows: list[Mapping[str, float]] = []
    trial = SingleTrial(family.batch_size, family.steps, parameters, plan, settings=EngineSettings())
    train_single(workload, trial, lambda row, _: rows.append(row[1]), lambda: False)
    return Learned(rows[0][METRIC], rows[-1][METRIC])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names or list(FAMILIES)
    print("| family | workload | learning rate | steps | batch size | first loss | last loss |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        family = FAMILIES[name]
        with tempfile.TemporaryDirectory() as folder:
            found = train_family(family, Path(folder))
        facts = f"{family.learning_rate:g} | {family.steps} | {family.batch_size}"
        print(f"| {name} | `{family.workload}` | {facts} | {found.start:.3f} | {found.end:.3f} |", flush=True)


if __name__ == "__main__":
    main()
