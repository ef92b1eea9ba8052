"""Images through the Hugging Face ``datasets`` library: hub names and local folders alike. Imports no jax.

The library is the optional extra ``[hf]`` and is imported only here, when asked for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchscale.errors import DataError, one_line


@dataclass(frozen=True)
class HubImages:
    """Rows of one split of a Hugging Face data set, whose images stay encoded until they are read."""

    name: str
    rows: Any
    column: str

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, index: int) -> tuple[bytes, str]:
        """The bytes of a row's image, or of the file that it names."""
        where = f"{self.name}, row {index}"
        value = self.rows[int(index)][self.column]
        if value.get("bytes") is not None:
            return value["bytes"], where
        try:
            return Path(value["path"]).read_bytes(), where
        except (OSError, TypeError) as error:
            raise DataError(f"{where} has no image: {one_line(error)}.") from error


@dataclass(frozen=True)
class HubSplit:
    """One split: its images, the values of its label column, and the names of the classes if the set has them."""

    images: HubImages
    labels: list[Any]
    classes: tuple[str, ...] | None


def read_hub(name: str, config: str | None, image_column: str, label_column: str) -> dict[str, HubSplit]:
    """The splits ``train``, ``val`` and ``test`` that a Hugging Face data set has.

    Raises:
        DataError: The library is not installed, or the set or a column is not there.
    """
    try:
        import datasets
    except ImportError:
        raise DataError("The option `hf` needs the datasets library. Run `pip install 'batchscale[hf]'`.") from None
    try:
        is_saved = any((Path(name) / file).is_file() for file in ("dataset_dict.json", "state.json"))
        found = datasets.load_from_disk(name) if is_saved else datasets.load_dataset(name, config)
    except (OSError, ValueError, RuntimeError) as error:  # the library's own errors derive from these
        raise DataError(f"Hugging Face data set {one_line(repr(name))} cannot be loaded: {one_line(error)}.") from error
    table = found if isinstance(found, dict) else {"train": found}
    names = {"train": "train", "validation": "val", "valid": "val", "val": "val", "test": "test"}
    return {
        names[split]: _read_split(name, rows, image_column, label_column, datasets)
        for split, rows in table.items()
        if split in names
    }


def _read_split(name: str, rows: Any, image_column: str, label_column: str, library: Any) -> HubSplit:
    for column in (image_column, label_column):
        if column not in rows.features:
            raise DataError(f"{name} must have a column {column!r}. Found: {', '.join(rows.features)}.")
    feature = rows.features[label_column]
    classes = getattr(feature, "names", None) or getattr(getattr(feature, "feature", None), "names", None)
    encoded = rows.cast_column(image_column, library.Image(decode=False))
    return HubSplit(
        HubImages(name, encoded, image_column), list(rows[label_column]), tuple(classes) if classes else None
    )
