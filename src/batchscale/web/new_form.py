"""The form of a new experiment: fields to TOML, and the check of any TOML that comes from a browser.

The check is that of the experiment file itself (``batchscale.spec``). One rule comes on top: text from a browser names
no Python file, no command and no other path, whatever key it stands under.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import BatchscaleError, SpecError, one_line
from batchscale.spec import Experiment, parse_experiment

LARGEST_TEXT = 200_000
MOST_TRIAL_STEPS = 10**12


@dataclass(frozen=True)
class Field:
    """One field of the form: what it is called, what stands in it at first, and what it means."""

    name: str
    label: str
    value: str
    hint: str = ""
    options: tuple[str, ...] = ()


FIELDS = (
    Field("workload", "Workload", "digits/fc_64/nesterov_momentum", "data set/model/optimizer"),
    Field("goal", "Goal", "val/classification_error < 0.05", "metric, < or >, number"),
    Field("batch_sizes", "Batch sizes", "1..1024", "numbers and ranges, with commas: 4, 16, 64..1024, full"),
    Field("trials", "Trials of each search", "20"),
    Field("stop", "A trial ends", "race", "", ("race", "goal", "budget")),
    Field("finishers", "Finishers of a race", "5", "five tell how sure the curve is"),
    Field("budget", "Budget of a trial", "40"),
    Field("budget_unit", "Unit of the budget", "epochs", "", ("epochs", "steps", "examples")),
    Field("at_least_steps", "At least so many steps", "1000", "large batches make few steps in an epoch"),
    Field("learning_rate", "Range of the learning rate", "", "such as 0.001 to 3; empty: the workload's own"),
    Field("momentum", "Range of the momentum", "", "such as 0.5 to 0.99; empty: the workload's own"),
    Field("seed", "Seed", "0"),
)


def default_form() -> dict[str, str]:
    """What stands in the form at first."""
    return {field.name: field.value for field in FIELDS}


def form_toml(form: Mapping[str, str]) -> str:
    """The experiment file that the fields make; wrong values stay in it, for the check to name them."""
    value = {field.name: form.get(field.name, field.value).strip()[:500] for field in FIELDS}
    sizes = ", ".join(_item(part.strip()) for part in value["batch_sizes"].split(",") if part.strip())
    lines = [
        f"workload = {_text(value['workload'])}",
        f"goal = {_text(value['goal'])}",
        f"batch_sizes = [{sizes}]",
        f"trials = {_item(value['trials'])}",
        f"stop = {_text(value['stop'])}",
        *([f"finishers = {_item(value['finishers'])}"] if value["stop"] == "race" else []),
        f"seed = {_item(value['seed'])}",
        "",
        "[budget]",
        f"{value['budget_unit'] if value['budget_unit'] in ('epochs', 'steps', 'examples') else 'epochs'} = "
        f"{_item(value['budget'])}",
        *([f"at_least_steps = {_item(value['at_least_steps'])}"] if value["at_least_steps"] else []),
        "",
        "[evaluation]",
        "count = 80",
        'spacing = "log"',
    ]
    ranges = [
        f'{name} = {{ type = "DOUBLE", scale = "{scale}", min_value = {low}, max_value = {high} }}'
        for name, scale in (("learning_rate", "LOG_SCALE"), ("momentum", "REVERSE_LOG_SCALE"))
        for low, high in [_ends(value[name])]
        if value[name]
    ]
    return "\n".join([*lines, *(["", "[search.space]", *ranges] if ranges else [])]) + "\n"


def check_text(text: str) -> Experiment:
    """The experiment of a text from a browser.

    Raises:
        SpecError: it says something that cannot be run, or names a file or a command.
    """
    if len(text) > LARGEST_TEXT:
        raise SpecError(
            f"An experiment file from a browser has at most {LARGEST_TEXT:,} characters. Found {len(text):,}."
        )
    experiment = parse_experiment(text, "experiment.toml", Path("/nonexistent"))
    if experiment.trainer is not None or experiment.workload.file is not None:
        raise SpecError(
            "Own Python files and trainer commands do not come from a browser. Put the experiment file into the folder "
            "that the server was started with (--own-files) and choose it there."
        )
    options = (*experiment.workload.dataset_options.values(), *experiment.workload.model_options.values())
    for option in options:
        if isinstance(option, str) and ("/" in option or "\\" in option or option.startswith((".", "~"))):
            raise SpecError(f"Options from a browser name no paths. Found {one_line(option)!r}.")
    return experiment


def try_text(text: str) -> str:
    """What is wrong with a text; empty if nothing is."""
    try:
        check_text(text)
    except BatchscaleError as error:
        return one_line(error, 600)
    return ""


def with_trials(text: str, trials: int) -> str:
    r"""The text with another number of trials, as extending asks for.

    >>> with_trials('goal = "val/loss < 1"\ntrials = 3\n', 5)
    'goal = "val/loss < 1"\ntrials = 5\n'
    """
    lines = text.splitlines()
    tables = next((place for place, line in enumerate(lines) if line.lstrip().startswith("[")), len(lines))
    for place in range(tables):
        if lines[place].partition("=")[0].strip() == "trials":
            lines[place] = f"trials = {trials}"
            break
    else:
        lines.insert(0, f"trials = {trials}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _item(value: str) -> str:
    """A number as it is, anything else as text, so that nothing can become another key."""
    try:
        float(value)
    except ValueError:
        return _text(value)
    return value.replace("_", "") if value.isascii() and value[:1].isdigit() else _text(value)


def _ends(value: str) -> tuple[str, str]:
    low, _, high = value.partition(" to ")
    return _item(low.strip()), _item(high.strip())
