"""Declarations of models: tasks, options and how they are built, and the table of all by name. Imports no jax.

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
from batchscale.workloads.declarations import Table
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Model

LABELS = (Task.CLASSIFICATION, Task.MULTILABEL, Task.REGRESSION)
TOKENS = (Task.LANGUAGE, Task.TEXT)
PRECISIONS = ("float32", "bfloat16")
MAX_SIZE = 999_999  # of one layer, as in the names fc_WIDTH
MAX_LAYERS = 1_000


@dataclass(frozen=True)
class Shape:
    """The data that a model is built for: the shape of one example, the number of outputs, the data set's options."""

    inputs: tuple[int, ...]
    num_outputs: int
    dataset_options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class ModelDeclaration:
    """A model by name, or a family of models if it has ``member``, which returns the model of a name or None.

    ``options`` are all options with their defaults; ``tiny`` replaces some for tests of the architecture. ``build``
    makes the model from the declaration, its options filled in, and the shape of the data; it imports jax when called.
    ``schedule`` is used where an experiment names none. ``min_side`` is the least height and width of images, 0 for
    models that take inputs of any shape. ``ranges`` extends the default search space of classification. ``check``
    raises SpecError for options that contradict each other. ``label`` is the name in titles and on axes; without it the
    name itself is used.
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
    label: str = ""

    @property
    def sizes(self) -> Mapping[str, Any]:
        """The options, for ``build``: names and types have been checked."""
        return self.options

    def for_data(self, shape: Shape) -> Model:
        """Build the model for data of this shape; ``with_options`` must have been called."""
        return self.build(self, shape)

    def with_options(self, user_options: Options) -> ModelDeclaration:
        """Return the model with the user's options filled in.

        Raises:
            UnknownNameError: The model has no such option.
            SpecError: An option has a value of the wrong type, or options contradict each other.
        """
        options: dict[str, Option] = {"precision": PRECISIONS[0], **self.options}
        tiny = user_options.get("tiny", False)
        if not isinstance(tiny, bool):
            raise SpecError(f"model.tiny must be true or false. Found {one_line(repr(tiny))}.")
        if tiny:
            options.update(self.tiny)
        for key, value in user_options.items():
            if key == "tiny":
                continue
            if key not in options:
                hint = suggest_names(key, [*options, "tiny"])
                raise UnknownNameError(f"Model {self.name} has no option '{one_line(key)}'; {hint}")
            options[key] = _checked(self.name, key, value, like=options[key])
        if self.check is not None:
            self.check(self.name, options)
        return replace(self, options=options)


MODELS = Table(ModelDeclaration, "batchscale.workloads.models.builtin", "model")


def model_names() -> tuple[str, ...]:
    """Return the names of all models and families, in order."""
    return tuple(MODELS.all())


def find_model(name: str, options: Options) -> ModelDeclaration:
    """Return a model by name with the user's options filled in; ``fc_128_64`` is FC of any widths.

    Raises:
        UnknownNameError: There is no such model, or it has no such option.
        SpecError: An option has a value of the wrong type.
    """
    return (find_declared_model(name) or MODELS.find(name)).with_options(options)


def find_declared_model(name: str) -> ModelDeclaration | None:
    """Return the model of this name, on its own or as a member of a family; None if there is none."""
    models = MODELS.all()
    model = models.get(name)
    if model is not None and model.member is None:
        return model
    members = (family.member(name) for family in models.values() if family.member is not None)
    return next((member for member in members if member is not None), None)


def check_fit(model: ModelDeclaration, dataset: str, task: Task, shape: tuple[int, ...]) -> None:
    """Raise SpecError if the model does not fit the data set's task or the shape of its examples."""
    if task not in model.tasks:
        raise SpecError(
            f"Data set {dataset} poses the task '{task}'; model {model.name} is for "
            f"{' and '.join(repr(str(model_task)) for model_task in model.tasks)}. Choose another model."
        )
    if model.min_side and (len(shape) != 3 or min(shape[:2]) < model.min_side):
        raise SpecError(
            f"Model {model.name} needs images (height, width, channels) of at least "
            f"{model.min_side}×{model.min_side}. Data set {dataset} has examples of shape {shape}."
        )


def check_precision(where: str, value: Option) -> str:
    """Return the precision that an option names, or raise SpecError."""
    if value not in PRECISIONS:
        raise SpecError(f"{where} must be one of {', '.join(PRECISIONS)}. Found {one_line(repr(value))}.")
    return str(value)


def _checked(model: str, key: str, value: Option, like: Option) -> Option:
    """Return the value if it has the type of the option's default and is in range."""
    where = f"model.{key} of {model}"
    if key == "precision":
        return check_precision(where, value)
    if isinstance(like, tuple):
        if not isinstance(value, tuple | list) or not all(_is_size(size) for size in value) or len(value) > MAX_LAYERS:
            raise SpecError(
                f"{where} must be a list of at most {MAX_LAYERS:,} whole numbers from 1 to {MAX_SIZE:,}. "
                f"Found {one_line(repr(value))}."
            )
        return tuple(value)
    if isinstance(like, bool):
        if not isinstance(value, bool):
            raise SpecError(f"{where} must be true or false. Found {one_line(repr(value))}.")
        return value
    if isinstance(like, int):
        if not _is_size(value):
            raise SpecError(f"{where} must be a whole number from 1 to {MAX_SIZE:,}. Found {one_line(repr(value))}.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise SpecError(f"{where} must be a number in [0, 1). Found {one_line(repr(value))}.")
    return float(value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_SIZE
