"""The tasks that data sets pose; losses and metrics follow from them. Imports no jax until a loss is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from batchscale.spec.experiment import Options
from batchscale.spec.goal import SPLITS

if TYPE_CHECKING:
    from batchscale.workloads.workload import Loss


@dataclass(frozen=True)
class Task:
    """A task by name; a plug-in makes its own.

    ``make_loss`` returns the training loss for the options of the data set; it imports jax when called. With
    ``has_classes`` outputs are scores of classes, so that labels can be smoothed. ``splits`` are those that such data
    sets have.

    ``CLASSIFICATION``: one of several classes. ``MULTILABEL``: any number of classes at once. ``LANGUAGE``: the next
    token at every position of a sentence. ``TEXT``: the same, of tokens that stand for known numbers of bytes.
    ``REGRESSION``: one number or several. ``QUADRATIC``: a loss of the parameters themselves, without a model.
    """

    name: str
    make_loss: Callable[[Options], Loss]
    has_classes: bool = True
    splits: tuple[str, ...] = SPLITS

    CLASSIFICATION: ClassVar[Task]
    MULTILABEL: ClassVar[Task]
    LANGUAGE: ClassVar[Task]
    TEXT: ClassVar[Task]
    REGRESSION: ClassVar[Task]
    QUADRATIC: ClassVar[Task]

    def __str__(self) -> str:
        return self.name


def _named_loss(function: str) -> Callable[[Options], Loss]:
    def make(dataset_options: Options) -> Loss:
        from batchscale.workloads import losses

        del dataset_options
        loss: Loss = getattr(losses, function)
        return loss

    return make


def _make_quadratic_loss(dataset_options: Options) -> Loss:
    from batchscale.noisy_quadratic import parse_problem
    from batchscale.workloads.losses import quadratic_loss

    return quadratic_loss(parse_problem(dataset_options))


Task.CLASSIFICATION = Task("classification", _named_loss("classification_loss"))
Task.MULTILABEL = Task("multilabel", _named_loss("multilabel_loss"))
Task.LANGUAGE = Task("language", _named_loss("language_loss"))
Task.TEXT = Task("text", _named_loss("language_loss"))
Task.REGRESSION = Task("regression", _named_loss("regression_loss"), has_classes=False)
Task.QUADRATIC = Task("quadratic", _make_quadratic_loss, has_classes=False, splits=SPLITS[:2])
