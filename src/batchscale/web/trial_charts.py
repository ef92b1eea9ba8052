"""Charts of trials: learning curves of chosen ones, and metaparameters linked with learning curves."""

import json
from dataclasses import dataclass, replace

import polars as pl

from batchscale.errors import BatchscaleError
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.figures.layout import Chart, Look, PanelSize
from batchscale.figures.linked import LinkedSelection, linked_frame, plot_linked
from batchscale.figures.theme import find_theme
from batchscale.records.frames import Records
from batchscale.web.charts import RENDERING, fitting, require_goal, workload_at
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.shelf import OpenRecords
from batchscale.web.trials import TrialWish, matching_trials, used_metaparameters

PANEL = PanelSize(420, 300)


@dataclass(frozen=True)
class LinkedWish:
    """The trials of a workload's study, the theme, and the width there is, in points."""

    number: int
    trials: TrialWish
    theme: str = "light"
    width: int | None = None

    @property
    def data_key(self) -> str:
        """What its data is kept under."""
        return f"linked {self.number} {self.trials.query}"


def linked_data(shelf: OpenRecords, folder: RecordsFolder, wish: LinkedWish) -> pl.DataFrame:
    """The measurements of the trials with their metaparameters."""

    def work(records: Records) -> pl.DataFrame:
        return linked_frame(records, _question(records, wish))

    return shelf.answer(folder.path, wish.data_key, work)


def linked_drawing(shelf: OpenRecords, folder: RecordsFolder, wish: LinkedWish) -> str:
    """The chart as SVG."""

    def work(records: Records) -> str:
        chart = _plot(linked_data(shelf, folder, wish), records, wish)
        with RENDERING:
            return chart_svg(chart)

    return shelf.answer(folder.path, f"{wish.data_key} svg {wish.theme}", work)


def linked_specification(shelf: OpenRecords, folder: RecordsFolder, wish: LinkedWish) -> bytes:
    """The chart as JSON for the page's script; the frame that chooses is part of it."""
    spec = chart_spec(_plot(linked_data(shelf, folder, wish), shelf.records(folder.path), wish))
    return json.dumps(spec).encode()


def _plot(frame: pl.DataFrame, records: Records, wish: LinkedWish) -> Chart:
    look = Look(find_theme(wish.theme), columns=2, size=PANEL)
    return plot_linked(frame, _question(records, wish), fitting(look, wish.width))


def _question(records: Records, wish: LinkedWish) -> LinkedSelection:
    name = workload_at(records, wish.number)
    chosen = records.workload(name)
    names = used_metaparameters(chosen)
    if not names:
        raise BatchscaleError("These trials have no metaparameters to draw.")
    x, y = wish.trials.axes
    axes = (names[min(x, len(names) - 1)], names[min(y, len(names) - 1)] if len(names) > 1 else None)
    sizes = chosen.studies["batch_size"].sort()
    size = wish.trials.batch_size if wish.trials.batch_size is not None else int(sizes[len(sizes) // 2])
    trials = matching_trials(chosen, replace(wish.trials, batch_size=size))["trial_id"].sort().to_list()
    return LinkedSelection(name, size, require_goal(records, name), trials, axes, wish.trials.smooth)
