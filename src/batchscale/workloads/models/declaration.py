"""What a model declares: the tasks it fits, its options, and how it is built. Imports no jax.

Sizes are the paper's (Table 2 and appendix B) and are written in the declarations only; the modules take them as
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.spec.experiment import Option, Options
from batchscale.spec.space import ParameterConfig
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model

LABELS = (Task.CLASSIFICATION, Task.MULTILABEL, Task.REGRESSION)
TOKENS = (Task.LANGUAGE,)
PRECISIONS = ("float32", "bfloat16")
MAX_SIZE = 999_999  # of one layer, as in the names fc_WIDTH
MAX_LAYERS = 1_000


@dataclass(frozen=True)
class Shape:
    """What the data asks of a model: the shape of one example, the number of outputs, and the data set's options."""

    inputs: tuple[int, ...]
    num_outputs: int
    dataset_options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class ModelDeclaration:
    """A model by name, or a family of models if it has ``member``, which gives the model of a name (None: no such).

    ``options`` are all options with their defaults; ``tiny`` replaces some where a test wants the architecture but not
    its size. ``build`` makes the model from the declaration, its options filled in, and the shape of the data; it
    imports jax when called. ``schedule`` is used where an experiment names none. ``min_side`` is the least height and
    width of images, 0 for models that take inputs of any shape. ``ranges`` extends the default search space of
    classification. ``check`` raises SpecError for options that do not fit each other.
    """

    name: str
    tasks: tuple[Task, ...]
    options: Options
    build: Callable[[ModelDeclaration, Shape], Model]
    tiny: Options = field(default_factory=dict)
    schedule: str = "constant"
    min_side: int = 0
    ranges: tuple[ParameterConfig, ...] = ()
    check: Callable[[str, Options], None] | None = None
    member: Callable[[str], ModelDeclaration | None] | None = None

    @property
    def sizes(self) -> Mapping[str, Any]:
        """The options for the one who builds: names and kinds have been checked."""
        return self.options

    def for_data(self, shape: Shape) -> Model:
        """The model for data of this shape; needs ``with_options`` before."""
        return self.build(self, shape)

    def with_options(self, given: Options) -> ModelDeclaration:
        """The model with the user's options filled in.

        Raises:
            UnknownNameError: It has no such option.
            SpecError: An option has a value of the wrong kind, or options do not fit each other.
        """
        options: dict[str, Option] = {"precision": PRECISIONS[0], **self.options}
        tiny = given.get("tiny", False)
        if not isinstance(tiny, bool):
            raise SpecError(f"model.tiny is true or false. Found {one_line(repr(tiny))}.")
        if tiny:
            options.update(self.tiny)
        for key, value in given.items():
            if key == "tiny":
                continue
            if key not in options:
                hint = suggest_names(key, [*options, "tiny"])
                raise UnknownNameError(f"Model {self.name} has no option '{one_line(key)}'; {hint}")
            options[key] = _checked(self.name, key, value, like=options[key])
        if self.check is not None:
            self.check(self.name, options)
        return replace(self, options=options)


def check_fit(model: ModelDeclaration, dataset: str, task: Task, shape: tuple[int, ...]) -> None:
    """Raises SpecError if the model is not for the data set's task or the shape of its examples."""
    if task not in model.tasks:
        raise SpecError(
            f"Data set {dataset} poses the task '{task}'; model {model.name} is for "
            f"{' and '.join(repr(str(one)) for one in model.tasks)}. Choose another model."
        )
    if model.min_side and (len(shape) != 3 or min(shape[:2]) < model.min_side):
        raise SpecError(
            f"Model {model.name} needs images (height, width, channels) of at least "
            f"{model.min_side}×{model.min_side}. Data set {dataset} has examples of shape {shape}."
        )


def check_precision(where: str, value: Option) -> str:
    """The precision that an option names."""
    if value not in PRECISIONS:
        raise SpecError(f"{where} is one of {', '.join(PRECISIONS)}. Found {one_line(repr(value))}.")
    return str(value)


def _checked(model: str, key: str, value: Option, like: Option) -> Option:
    """The value, if it is of the same kind as the option's default and in its range."""
    where = f"model.{key} of {model}"
    if key == "precision":
        return check_precision(where, value)
    if isinstance(like, tuple):
        if not isinstance(value, tuple | list) or not all(_is_size(size) for size in value) or len(value) > MAX_LAYERS:
            raise SpecError(
                f"{where} is a list of at most {MAX_LAYERS:,} whole numbers from 1 to {MAX_SIZE:,}. "
                f"Found {one_line(repr(value))}."
            )
        return tuple(value)
    if isinstance(like, int):
        if not _is_size(value):
            raise SpecError(f"{where} is a whole number from 1 to {MAX_SIZE:,}. Found {one_line(repr(value))}.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise SpecError(f"{where} is a number in [0, 1). Found {one_line(repr(value))}.")
    return float(value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_SIZE
