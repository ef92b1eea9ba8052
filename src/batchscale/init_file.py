"""The experiment file to start from: the template, with what is known of a workload filled in. Loads no JAX.

``batchscale init`` writes it; the web interface fills its form from it.
"""

from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from batchscale.spec.goal import Goal
    from batchscale.spec.space import ParameterConfig
    from batchscale.spec.workload_name import WorkloadName
    from batchscale.workloads.published import PublishedCurve
    from batchscale.workloads.registry import Parts

GENEROUS = 4
"""A step budget is so many times what reaching the goal took in the paper: no trial must be cut off on its way."""

GUESSES = {
    "classification_error": "val/classification_error < 0.1",
    "average_precision": "val/average_precision > 0.3",
    "cross_entropy_error": "val/cross_entropy_error < 5.0",
    "loss": "val/loss < 0.1",
    "squared_error": "val/squared_error < 0.1",
}
"""Where the paper has no goal: a place to start from, by the metric of the task that people talk about."""


@dataclass(frozen=True)
class _Line:
    """A line of the template and what stands there instead."""

    old: str
    new: str


def starting_text(name: "WorkloadName | None" = None) -> str:
    """A commented experiment file that runs as it is: the template, filled in for a workload of built-in parts.

    Raises:
        UnknownNameError: a part does not exist, with the nearest that do.
        SpecError: parts that do not fit together.
    """
    template = resources.files("batchscale.spec").joinpath("template.toml").read_text(encoding="utf-8")
    if name is None:
        return template
    from batchscale.spec.experiment import WorkloadSpec
    from batchscale.workloads.published import find_published
    from batchscale.workloads.registry import find_parts

    parts = find_parts(WorkloadSpec(name))
    curve = find_published(name)
    for line in (*_goal(name, parts), *_workload(name, parts), *_sizes(parts, curve), *_budget(parts, curve)):
        assert template.count(line.old) == 1, line.old
        template = template.replace(line.old, line.new)
    return _fill_space(template, parts)


def _goal(name: "WorkloadName", parts: "Parts") -> list[_Line]:
    from batchscale.figures.selection import published_goal
    from batchscale.workloads.metrics.declaration import metric_directions

    found: Goal | None = published_goal(name)
    if found is not None:
        text = f'# The paper\'s goal for this workload.\ngoal = "{found}"'
    else:
        metrics = metric_directions(parts.dataset.task)
        guess = next(GUESSES[metric] for metric in GUESSES if metric in metrics)
        text = f'# The paper has no goal for this workload: this one is a guess. Choose your own.\ngoal = "{guess}"'
    return [_Line('goal = "val/classification_error < 0.05"', text)]


def _workload(name: "WorkloadName", parts: "Parts") -> list[_Line]:
    schedule = parts.tunables.schedule.name
    return [
        _Line('dataset = "digits"', f'dataset = "{name.dataset}"'),
        _Line('model = "fc_64"', f'model = "{name.model}"'),
        _Line('optimizer = "nesterov_momentum"', f'optimizer = "{name.optimizer}"'),
        _Line(
            '# schedule = "constant"                  # or linear, cosine, exponential, …; each model has its default',
            f'schedule = "{schedule}"'.ljust(41) + "# or linear, cosine, exponential, …; this is the model's default",
        ),
        _Line('# metrics = ["classification_error"]     # those', "# metrics = []                         # those"),
    ]


def _sizes(parts: "Parts", curve: "PublishedCurve | None") -> list[_Line]:
    examples = parts.dataset.num_train_examples
    low, high = (1, 1024) if curve is None else (curve.smallest, curve.largest)
    most = high if examples is None else min(high, examples)
    sizes = [f'"{low}..{2 ** (most.bit_length() - 1)}"']
    if examples is not None and (curve is None or examples <= curve.largest) and examples <= 100_000:
        sizes.append('"full"')
    return [_Line('batch_sizes = ["1..1024", "full"]', f"batch_sizes = [{', '.join(sizes)}]")]


def _budget(parts: "Parts", curve: "PublishedCurve | None") -> list[_Line]:
    steps = 1000
    text = "epochs = 40" if parts.dataset.num_train_examples is not None else "examples = 100_000"
    if curve is not None:
        steps = GENEROUS * curve.steps
        text = (
            f"# {GENEROUS} times what reaching the paper's goal took on this data set.\n"
            f"examples = {round(GENEROUS * curve.examples):_}"
        )
    return [_Line("epochs = 40", text), _Line("at_least_steps = 1000", f"at_least_steps = {steps}")]


def _fill_space(template: str, parts: "Parts") -> str:
    """The default ranges written out; those that follow from a study's step budget are said in words."""
    begin = template.index("# [search.space]")
    end = template.index("# Metaparameters held at a value instead.")
    spaces = [parts.tunables.space(steps) for steps in (1_000, 1_000_000)]
    lines = ["[search.space]"]
    for config, other in zip(*spaces, strict=True):
        if config == other:
            lines.append(f"{config.name} = {_range(config)}")
        else:
            lines.append(f"# {config.name}: its default range follows from the step budget of each batch size")
    return template[:begin] + "\n".join(lines) + "\n\n" + template[end:]


def _range(config: "ParameterConfig") -> str:
    from batchscale.spec.space import ParameterType

    if config.type is ParameterType.DISCRETE:
        points = ", ".join(f"{point:.12g}" for point in config.feasible_points)
        return f'{{ type = "DISCRETE", feasible_points = [{points}] }}'
    ends = [f"{end:.12g}" for end in (config.min_value, config.max_value)]
    return f'{{ type = "{config.type}", scale = "{config.scale}", min_value = {ends[0]}, max_value = {ends[1]} }}'
