"""What is known of every model before it is built: sizes, tasks, default schedule. No jax here.

Sizes are the paper's (Table 2 and appendix B) and are written here only; the modules take them as arguments.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from batchscale.errors import SpecError, UnknownNameError, one_line, suggest_names
from batchscale.spec import Option, Options, ParameterConfig, ParameterType
from batchscale.workloads.tasks import Task

_LABELS = (Task.CLASSIFICATION, Task.MULTILABEL)
_TOKENS = (Task.LANGUAGE,)
_FC_NAME = re.compile(r"fc((?:_[1-9][0-9]{0,5}){1,32})")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class ModelFacts:
    """A model: its architecture (the file that builds it), the tasks it fits, and its options.

    ``tiny`` replaces options where a test wants the architecture but not its size. ``min_side`` is the least height
    and width of images, 0 for models that take inputs of any shape. ``ranges`` extends the default search space of
    classification.
    """

    name: str
    architecture: str
    tasks: tuple[Task, ...]
    options: Options
    tiny: Options
    schedule: str = "constant"
    min_side: int = 0
    ranges: tuple[ParameterConfig, ...] = field(default=())


def _cnn(size: str, filters: tuple[int, int], units: int) -> ModelFacts:
    options: Options = {"filters": filters, "units": units, "dropout": 0.4}
    return ModelFacts(f"simple_cnn_{size}", "simple_cnn", _LABELS, options, {"filters": (4, 4), "units": 8}, min_side=4)


def _transformer(size: str, width: int, heads: int, filter_width: int, layers: int) -> ModelFacts:
    options: Options = {"width": width, "heads": heads, "filter_width": filter_width, "layers": layers, "dropout": 0.1}
    tiny = {"width": 8, "heads": 2, "filter_width": 16, "layers": 1}
    return ModelFacts(f"transformer_{size}", "transformer", _TOKENS, options, tiny)


_SMOOTHING = ParameterConfig("label_smoothing", ParameterType.DISCRETE, feasible_points=(0.0, 0.01, 0.1))

_ALL = (
    ModelFacts("linear", "fc", _LABELS, {"widths": (), "dropout": 0.0}, {}),
    ModelFacts("mlp", "fc", _LABELS, {"widths": (64, 64), "dropout": 0.0}, {"widths": (8,)}),
    _cnn("base", (32, 64), 1024),
    _cnn("narrow", (16, 32), 512),
    _cnn("wide", (64, 128), 2048),
    ModelFacts("resnet_8", "resnet_8", _LABELS, {"width": 16, "blocks": 1}, {"width": 4}, "linear", min_side=4),
    ModelFacts(
        "resnet_50",
        "resnet_50",
        _LABELS,
        {"width": 64, "blocks": (3, 4, 6, 3), "ghost_batch_size": 32, "statistics_decay": 0.9},
        {"width": 4, "blocks": (1, 1)},
        "linear",
        min_side=8,
        ranges=(_SMOOTHING,),
    ),
    ModelFacts(
        "vgg_11",
        "vgg_11",
        _LABELS,
        {"width": 64, "units": 4096, "dropout": 0.5},
        {"width": 4, "units": 32},
        "linear",
        min_side=32,
    ),
    ModelFacts(
        "lstm",
        "lstm",
        _TOKENS,
        {"embedding": 1024, "hidden": 2048, "projection": 512},
        {"embedding": 8, "hidden": 8, "projection": 4},
    ),
    _transformer("base", 512, 8, 2048, 6),
    _transformer("shallow", 512, 8, 2048, 2),
    _transformer("narrow_and_shallow", 256, 4, 1024, 2),
    _transformer("wide", 1024, 16, 4096, 6),
    ModelFacts("quadratic", "quadratic", (Task.QUADRATIC,), {}, {}),
)

MODELS: Mapping[str, ModelFacts] = {facts.name: facts for facts in _ALL}


def model_facts(name: str, given: Options) -> ModelFacts:
    """The facts of a model by name with the user's options filled in; ``fc_128_64`` is FC of any widths.

    Raises:
        UnknownNameError: there is no such model, or it has no such option.
        SpecError: an option has a value of the wrong kind.
    """
    facts = _named(name)
    options: dict[str, Option] = {"precision": PRECISIONS[0], **facts.options}
    tiny = given.get("tiny", False)
    if not isinstance(tiny, bool):
        raise SpecError(f"model.tiny is true or false. Found {one_line(repr(tiny))}.")
    if tiny:
        options.update(facts.tiny)
    for key, value in given.items():
        if key == "tiny":
            continue
        if key not in options:
            valid = [*options, "tiny"]
            raise UnknownNameError(f"Model {name} has no option '{one_line(key)}'; {suggest_names(key, valid)}")
        options[key] = _checked(name, key, value, like=options[key])
    _check_heads(name, options)
    return ModelFacts(
        name, facts.architecture, facts.tasks, options, facts.tiny, facts.schedule, facts.min_side, facts.ranges
    )


def check_fit(model: ModelFacts, dataset: str, task: Task, shape: tuple[int, ...]) -> None:
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


def _named(name: str) -> ModelFacts:
    match = _FC_NAME.fullmatch(name)
    if match:
        widths = tuple(int(width) for width in match[1][1:].split("_"))
        options: Options = {"widths": widths, "dropout": 0.4}
        return ModelFacts(name, "fc", _LABELS, options, {"widths": (8,) * len(widths)})
    if name not in MODELS:
        valid = [*MODELS, "fc_1024", "fc_1024_1024_1024"]
        raise UnknownNameError(f"There is no model '{one_line(name)}'; {suggest_names(name, valid)}")
    return MODELS[name]


def _checked(model: str, key: str, value: Option, like: Option) -> Option:
    """The value, if it is of the same kind as the option's default and in its range."""
    where = f"model.{key} of {model}"
    if key == "precision":
        if value not in PRECISIONS:
            raise SpecError(f"{where} is one of {', '.join(PRECISIONS)}. Found {one_line(repr(value))}.")
        return value
    if isinstance(like, tuple):
        if not isinstance(value, tuple | list) or not all(_is_size(size) for size in value):
            raise SpecError(f"{where} is a list of whole numbers above 0. Found {one_line(repr(value))}.")
        return tuple(value)
    if isinstance(like, int):
        if not _is_size(value):
            raise SpecError(f"{where} is a whole number above 0. Found {one_line(repr(value))}.")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise SpecError(f"{where} is a number in [0, 1). Found {one_line(repr(value))}.")
    return float(value)


def _check_heads(model: str, options: Options) -> None:
    width, heads = options.get("width"), options.get("heads")
    if isinstance(width, int) and isinstance(heads, int) and width % heads:
        raise SpecError(f"model.width of {model} must be a multiple of its {heads} heads. Found {width}.")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
