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
    """Data set, model and optimizer: what is trained.

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
                    f"A {part} name is letters, digits and _ . + - (a data set may have group folders before it, "
                    f"separated by '/'). Found {one_line(repr(text))}."
                )

    @classmethod
    def parse(cls, text: str) -> "WorkloadName":
        """The name written as ``dataset/model/optimizer``, group folders first."""
        parts = text.strip("/").rsplit("/", 2)
        if len(parts) != 3:
            raise SpecError(f"A workload is written dataset/model/optimizer. Found {one_line(repr(text))}.")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.dataset}/{self.model}/{self.optimizer}"


def match_workloads(names: Iterable[WorkloadName], text: str) -> list[WorkloadName]:
    """The workload that is called so, or else all whose name contains the text: what every ``--workload`` means.

    Raises:
        UnknownNameError: there is none; the message has the nearest names.
    """
    known = {str(name): name for name in names}
    wanted = text.strip("/")
    found = [known[wanted]] if wanted in known else [name for key, name in known.items() if wanted and wanted in key]
    if not found:
        raise UnknownNameError(f"--workload: there are no records of '{one_line(text)}'; {suggest_names(text, known)}")
    return found


def is_safe_segment(text: str) -> bool:
    """Whether a name may be one folder of a records tree: no separators, no dots first, not too long."""
    return _SEGMENT.fullmatch(text) is not None
