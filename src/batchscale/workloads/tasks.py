"""The kinds of task a data set can pose; losses and metrics follow from them. Imports no jax."""

from enum import StrEnum


class Task(StrEnum):
    """What a model must give scores for.

    ``classification``: one of several classes. ``multilabel``: any number of classes at once. ``language``: the next
    token at every position of a sentence. ``regression``: one number or several. ``sound``: samples that sound like a
    recording. ``quadratic``: a loss of the parameters themselves, without a model.
    """

    CLASSIFICATION = "classification"
    MULTILABEL = "multilabel"
    LANGUAGE = "language"
    REGRESSION = "regression"
    SOUND = "sound"
    QUADRATIC = "quadratic"

    @property
    def has_classes(self) -> bool:
        """Whether outputs are scores of classes: only then there are labels to smooth."""
        return self not in (Task.REGRESSION, Task.SOUND, Task.QUADRATIC)
