"""The experiment file to start from: the template, filled in for a workload. Loads no JAX.

``batchscale init`` writes it; the web interface fills its form from it.
"""

import shutil
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.formatting import toml_line

if TYPE_CHECKING:
    from batchscale.spec.goal import Goal
    from batchscale.spec.space import ParameterConfig
    from batchscale.spec.workload_name import WorkloadName
    from batchscale.workloads.published import PublishedCurve
    from batchscale.workloads.registry import Parts

GENEROUS = 4
"""The step budget in multiples of the steps to the goal in the paper, so that no trial is cut off before it."""

GUESSES = {
    "classification_error": "val/classification_error < 0.1",
    "average_precision": "val/average_precision > 0.3",
    "cross_entropy_error": "val/cross_entropy_error < 5.0",
    "loss": "val/loss < 0.1",
    "squared_error": "val/squared_error < 0.1",
}
"""The goals to start from if the paper has none, by the main metric of a task."""


@dataclass(frozen=True)
class _Line:
    """A line of the template and its replacement."""

    old: str
    new: str


def starting_text(name: "WorkloadName | None" = None) -> str:
    """Return a commented experiment file that runs as it is, filled in for a workload of built-in parts.

    Raises:
        UnknownNameError: a part does not exist.
        SpecError: parts that do not fit together.
    """
    template = _read_template("template.toml")
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


def trainer_text(script: str) -> str:
    """Return a commented experiment file for a training script of the user's, a path from the file's folder."""
    template = _read_template("trainer_template.toml")
    python = shutil.which("python")
    is_ours = python is not None and Path(python).parent == Path(sys.executable).parent
    line = toml_line("command", ["python" if is_ours else sys.executable, script])  # one that has batchscale
    return template.replace('command = ["python", "train.py"]', line)


def script_text() -> str:
    """Return a training script to start from, which runs as it is."""
    return _read_template("trainer_template.py.txt")


def _read_template(name: str) -> str:
    return resources.files("batchscale.spec").joinpath(name).read_text(encoding="utf-8")


def _goal(name: "WorkloadName", parts: "Parts") -> list[_Line]:
    from batchscale.figures.selection import published_goal
    from batchscale.workloads.metrics.declaration import metric_directions

    goal: Goal | None = published_goal(name)
    if goal is not None:
        text = f"# The paper's goal for this workload.\n{toml_line('goal', str(goal))}"
    else:
        metrics = metric_directions(parts.dataset.task)
        guess = next(GUESSES[metric] for metric in GUESSES if metric in metrics)
        note = "# The paper has no goal for this workload: this one is a guess. Choose your own."
        text = f"{note}\n{toml_line('goal', guess)}"
    return [_Line('goal = "val/classification_error < 0.05"', text)]


def _workload(name: "WorkloadName", parts: "Parts") -> list[_Line]:
    schedule = parts.tunables.schedule.name
    return [
        _Line('dataset = "digits"', toml_line("dataset", name.dataset)),
        _Line('model = "fc_64"', toml_line("model", name.model)),
        _Line('optimizer = "nesterov_momentum"', toml_line("optimizer", name.optimizer)),
        _Line(
            '# schedule = "constant"                  # or linear, cosine, exponential, …; each model has its default',
            toml_line("schedule", schedule).ljust(41)
            + "# or linear, cosine, exponential, …; this is the model's default",
        ),
        _Line('# metrics = ["classification_error"]     # those', "# metrics = []                         # those"),
    ]


def _sizes(parts: "Parts", curve: "PublishedCurve | None") -> list[_Line]:
    examples = parts.dataset.num_train_examples
    low, high = (1, 1024) if curve is None else (curve.smallest, curve.largest)
    most = high if examples is None else min(high, examples)
    sizes = [f"{low}..{2 ** (most.bit_length() - 1)}"]
    if examples is not None and (curve is None or examples <= curve.largest) and examples <= 100_000:
        sizes.append("full")
    return [_Line('batch_sizes = ["1..1024", "full"]', toml_line("batch_sizes", sizes))]


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
    """Write out the default ranges; those that depend on the step budget become a comment."""
    begin = template.index("# [search.space]")
    end = template.index("# Metaparameters held at a value instead.")
    spaces = [parts.tunables.space(steps) for steps in (1_000, 1_000_000)]
    lines = ["[search.space]"]
    for config, other in zip(*spaces, strict=True):
        if config == other:
            lines.append(toml_line(config.name, _range(config)))
        else:
            lines.append(f"# {config.name}: its default range depends on the step budget of each batch size")
    return template[:begin] + "\n".join(lines) + "\n\n" + template[end:]


def _range(config: "ParameterConfig") -> dict[str, object]:
    from batchscale.spec.space import ParameterType

    if config.type is ParameterType.DISCRETE:
        return {"type": "DISCRETE", "feasible_points": [_rounded(point) for point in config.feasible_points]}
    ends = {"min_value": _rounded(config.min_value), "max_value": _rounded(config.max_value)}
    return {"type": config.type.value, "scale": config.scale.value, **ends}


def _rounded(value: float) -> float:
    return float(f"{value:.12g}")
