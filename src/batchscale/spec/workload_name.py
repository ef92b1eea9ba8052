"""The name of a workload: data set, model and optimizer, as folders of a records tree.

A data set may stand in group folders (``mnist_subsets/mnist_6875``).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names

_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,127}")


@dataclass(frozen=True, order=True)
class WorkloadName:
    """The data set, model and optimizer of a workload.

    >>> WorkloadName.parse("mnist_subsets/mnist_6875/simple_cnn_base/sgd").dataset
    'mnist_subsets/mnist_6875'
    """

    dataset: str
    model: str
    optimizer: str

    def __post_init__(self) -> None:
        for part, text in (("dataset", self.dataset), ("model", self.model), ("optimizer", self.optimizer)):
            segments = text.split("/") if part == "dataset" else [text]
            if not all(is_safe_segment(segment) for segment in segments) or len(segments) > 8:
                raise SpecError(
                    f"A {part} name must be letters, digits and _ . + - (a data set may have group folders before it, "
                    f"separated by '/'). Found {one_line(repr(text))}."
                )

    @classmethod
    def parse(cls, text: str) -> "WorkloadName":
        """Parse a name written as ``dataset/model/optimizer``, group folders first."""
        parts = text.strip("/").rsplit("/", 2)
        if len(parts) != 3:
            raise SpecError(f"A workload must be written dataset/model/optimizer. Found {one_line(repr(text))}.")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.dataset}/{self.model}/{self.optimizer}"


def match_workloads(names: Iterable[WorkloadName], text: str) -> list[WorkloadName]:
    """Return the workload of that name, or else all whose name contains the text, as for every ``--workload``.

    Raises:
        UnknownNameError: there is none; the message has the nearest names.
    """
    by_text = {str(name): name for name in names}
    part = text.strip("/")
    matches = [by_text[part]] if part in by_text else [name for key, name in by_text.items() if part and part in key]
    if not matches:
        raise UnknownNameError(f"--workload: no records of '{one_line(text)}'; {suggest_names(text, by_text)}")
    return matches


def is_safe_segment(text: str) -> bool:
    """True if a name may be one folder of a records tree: no separators, no dots first, not too long."""
    return _SEGMENT.fullmatch(text) is not None
