"""The aim of an adaptive experiment, from the tables of its file."""

from collections.abc import Callable
from pathlib import Path

from batchscale.errors import SpecError
from batchscale.spec.adaptive import AUTO, AdaptivePlan
from batchscale.spec.tables import AdaptiveTable, ExperimentTable


def read_adaptive(table: ExperimentTable, chooses_sizes: bool, to_path: Callable[[str], Path]) -> AdaptivePlan | None:
    """Return the aim of an adaptive experiment, with paths as ``to_path`` makes them; None for a fixed one.

    Raises:
        SpecError: the table is for another kind of experiment.
    """
    chooses_trials = table.trials == AUTO
    if not chooses_sizes and not chooses_trials:
        if table.adaptive is None:
            return None
        raise SpecError('it is for batch_sizes = "auto" or trials = "auto". Found neither; set one, or remove it.')
    aim = table.adaptive or AdaptiveTable()
    auto = {"smallest": "batch_sizes", "largest": "batch_sizes", "first_trials": "trials", "most_trials": "trials"}
    for name in auto.keys() & aim.model_fields_set:
        if not (chooses_sizes if auto[name] == "batch_sizes" else chooses_trials):
            raise SpecError(f"'{name}' is for {auto[name]} = \"auto\". Found other {auto[name]}; remove it.")
    values = {name: getattr(aim, name) for name in AdaptiveTable.model_fields if name != "quantity"}
    values["factor"] = aim.factor or aim.quantity.default_factor
    files = [aim.step_times] if isinstance(aim.step_times, str) else aim.step_times
    values["step_times"] = tuple(to_path(file) for file in files)
    for name in ("machines", "work"):
        values[name] = None if values[name] is None else to_path(values[name])
    if not chooses_trials:
        values["first_trials"] = values["most_trials"] = table.trials
    elif "most_trials" not in aim.model_fields_set:
        values["most_trials"] = max(aim.first_trials, aim.most_trials)
    chosen = "finishers" not in table.model_fields_set
    return AdaptivePlan(
        aim.quantity, **values, chooses_sizes=chooses_sizes, chooses_trials=chooses_trials, chooses_finishers=chosen
    )
