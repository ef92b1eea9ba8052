"""One workload's section of the report: sentences, charts as drawings, tables as rows of text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
from markupsafe import Markup

from batchscale.analysis.answer import CurveAnswer, make_answer
from batchscale.analysis.curve_analysis import Analysis, analyze
from batchscale.analysis.metaparameters import (
    BETA2_HALF_LIFE,
    DECAY_TIME_SCALE,
    EFFECTIVE,
    add_effective_learning_rate,
    derived_label,
    derived_text,
    heuristic_errors,
    heuristic_sentence,
    judge_heuristics,
)
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.errors import BatchscaleError
from batchscale.figures.kinds.best_of_n import best_of_frame
from batchscale.figures.kinds.curve import analysis_frame, missing_sentences, plot_curve, point_flags
from batchscale.figures.kinds.examples import analysis_examples, plot_examples
from batchscale.figures.kinds.expected_steps import plot_expected_steps
from batchscale.figures.kinds.metaparameter import metaparameter_frame, plot_metaparameter
from batchscale.figures.kinds.space import SpaceSelection, plot_space, space_frame
from batchscale.figures.kinds.training import TrainingPanel, plot_training, training_frame, training_panels
from batchscale.figures.layout import Chart, Look, PanelSize
from batchscale.figures.names import goal_label, metaparameter_label, workload_label
from batchscale.figures.series import workload_panels
from batchscale.formatting import (
    count_text,
    metaparameter_text,
    rounded_text,
    span_text,
    times_text,
    whole_text,
)
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import stored_choices
from batchscale.report.drawing import draw
from batchscale.report.text import RunMetadata, experiment_files, read_metadata, result_sentences, status_sentence
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

NARROW = PanelSize(290, 250)
LARGE = PanelSize(770, 400)
FLAT = PanelSize(900, 240)
MOST_RANGES = 6
DRAWN_TRIALS = 120  # of a study in the drawing of its search space


SEARCHED_BARS = "for the median of what fresh searches of the same size would find"
CONFIRMED_BARS = "for the median over new seeds of the best trial"


@dataclass(frozen=True)
class ReportTable:
    """A heading per column, cells as text, and the indices of columns with numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int]


@dataclass(frozen=True)
class Section:
    """The content of one workload's section. Parts that could not be made are None or empty, see ``missing``."""

    anchor: str
    workload: WorkloadName
    title: str
    goal: Goal | None
    goal_text: str
    subtitle: str
    answer: CurveAnswer
    sentences: tuple[str, ...]
    curve: Markup | None
    curve_narrow: Markup | None
    points: ReportTable | None
    metaparameters: ReportTable | None
    metaparameter_charts: tuple[Markup, ...]
    heuristics: str | None
    statuses: str
    trial_charts: tuple[Markup, ...]
    training_note: str
    trust: tuple[str, ...]
    missing: tuple[str, ...]
    metadata: RunMetadata
    experiments: tuple[str, ...] = ()
    examples: Markup | None = None
    examples_narrow: Markup | None = None
    bars: str = ""
    choices: tuple[str, ...] = ()


def make_section(records: Records, workload: WorkloadName, goal: Goal | None, anchor: str) -> Section:
    """Return the section of one workload; whatever the records lack becomes a sentence, never an error."""
    selected = records.workload(workload)
    metadata = read_metadata(selected, workload)
    if goal is None:
        why = "These records name no goal. Make the report again with --goal 'val/classification_error < 0.1'."
        return _empty(selected, None, anchor, metadata, why)
    try:
        answer = analyze(selected, workload, goal)
    except BatchscaleError as error:
        return _empty(selected, goal, anchor, metadata, str(error))
    wide, narrow = _curves(answer, anchor)
    examples, examples_narrow = (None, None) if answer.summary is None else _examples(answer, anchor)
    charts = _Charts(selected, goal, anchor)
    return Section(
        anchor=anchor,
        workload=workload,
        title=workload_label(workload),
        goal=goal,
        goal_text=goal_label(goal),
        subtitle=_subtitle(goal_label(goal), selected),
        answer=make_answer(answer),
        sentences=result_sentences(answer),
        curve=wide,
        curve_narrow=narrow,
        points=points_table(answer),
        metaparameters=_metaparameter_table(answer),
        metaparameter_charts=charts.metaparameters(answer),
        heuristics=_heuristics(selected, answer),
        statuses=status_sentence(selected),
        trial_charts=charts.trials(workload),
        training_note=charts.training_note(),
        trust=tuple(_trust(answer)),
        missing=tuple(missing_sentences(answer)),
        metadata=metadata,
        experiments=experiment_files(selected),
        examples=examples,
        examples_narrow=examples_narrow,
        choices=tuple(map(str, stored_choices(selected.studies))),
        bars=CONFIRMED_BARS if answer.curve["seeds"].drop_nulls().len() else SEARCHED_BARS,
    )


def _empty(records: Records, goal: Goal | None, anchor: str, metadata: RunMetadata, why: str) -> Section:
    workload, goal_text = records.workloads[0], goal_label(goal) if goal else "no goal"
    return Section(
        anchor, workload, workload_label(workload), goal, goal_text, _subtitle(goal_text, records),
        CurveAnswer((), (why,), (), ""), (why,), None, None, None, None, (), None, "", (), "", (), (why,), metadata,
    )  # fmt: skip


def _subtitle(goal_text: str, records: Records) -> str:
    sizes = count_text(records.studies["batch_size"].n_unique(), "batch size")
    return f"{goal_text} · {sizes} · {count_text(records.trials.height, 'trial')}"


def _curves(answer: Analysis, anchor: str) -> tuple[Markup, Markup]:
    frame = analysis_frame(answer)
    label = "steps to result against batch size"
    return (
        draw(plot_curve(frame, Look(size=LARGE, is_bare=True)), f"{anchor}-wide", label),
        draw(plot_curve(frame, Look(size=NARROW, is_bare=True)), f"{anchor}-narrow", label),
    )


def _examples(answer: Analysis, anchor: str) -> tuple[Markup, Markup]:
    frame = analysis_examples(answer)
    label = f"{answer.unit.noun} to result over the fewest, against batch size"
    return (
        draw(plot_examples(frame, Look(size=FLAT)), f"{anchor}-examples-wide", label),
        draw(plot_examples(frame, Look(size=NARROW)), f"{anchor}-examples-narrow", label),
    )


@dataclass(frozen=True)
class _Charts:
    records: Records
    goal: Goal
    anchor: str

    def metaparameters(self, answer: Analysis) -> tuple[Markup, ...]:
        """Draw the best values against batch size, for the metaparameters of the paper that these records have."""
        if answer.curve["steps"].drop_nulls().is_empty():
            return ()
        here = [name for name in ("learning_rate", "momentum") if name in answer.curve.columns]
        names = [EFFECTIVE, *here] if len(here) == 2 else here
        panels = workload_panels(self.records, [self.goal])
        return tuple(
            self._draw(
                plot_metaparameter(
                    metaparameter_frame(self.records, panels, name).with_columns(
                        pl.lit(metaparameter_label(name)).alias("panel")
                    ),
                    Look(size=NARROW),
                ),
                name,
                f"best {metaparameter_label(name)} against batch size",
            )
            for name in names
        )

    def trials(self, workload: WorkloadName) -> tuple[Markup, ...]:
        """Draw search spaces, steps against the number of trials, and training curves at three batch sizes."""
        drawn = [self._draw(self._expected(), "expected", "steps to result against trials")]
        space = thin_space(space_frame(self.records, SpaceSelection(workload, self.goal)))
        for i, part in enumerate(space.partition_by("panel", maintain_order=True)[:MOST_RANGES]):
            label = f"trials in the range of {part['panel'][0]}"
            drawn.append(self._draw(plot_space(part, Look(size=PanelSize(210))), f"space{i}", label))
        for i, panel in enumerate(self._drawn_studies()):
            chart = plot_training(training_frame(self.records, [panel]), Look(size=NARROW))
            drawn.append(self._draw(chart, f"training{i}", f"training curves, {panel.title}"))
        return tuple(drawn)

    def training_note(self) -> str:
        """Return the note on batch sizes whose training curves are not drawn; empty if all are."""
        drawn = [panel.batch_size for panel in self._drawn_studies()]
        others = sorted(set(self.records.studies["batch_size"]) - set(drawn))
        if not others:
            return ""
        drawn_sizes, other_sizes = (", ".join(f"{size:,}" for size in sizes) for sizes in (drawn, others))
        return (
            f"Training curves are drawn for batch sizes {drawn_sizes}; those of {other_sizes} are left out, and "
            "batchscale figure training draws them all."
        )

    def _drawn_studies(self) -> list[TrainingPanel]:
        """Return the smallest, the middle and the largest batch size."""
        panels = training_panels(self.records, self.goal)
        return [panels[i] for i in sorted({0, len(panels) // 2, len(panels) - 1})] if panels else []

    def _expected(self) -> Chart:
        frame = best_of_frame(self.records, self.goal, per_study=False)
        titled = frame.with_columns(pl.lit("what more trials bring (median)").alias("panel"))
        return plot_expected_steps(titled, Look(size=PanelSize(210, 250)))

    def _draw(self, chart: Chart, name: str, label: str) -> Markup:
        return draw(chart, f"{self.anchor}-{name}", label)


def thin_space(frame: pl.DataFrame, limit: int = DRAWN_TRIALS) -> pl.DataFrame:
    """Return at most about ``limit`` trials of every lane, evenly over the ids, the best one always among them."""
    lane = ["panel", "batch_size"]
    every = (pl.len().over(lane) / limit).ceil().cast(pl.Int64)
    is_drawn = pl.col("best").fill_null(True) | (pl.int_range(pl.len()).over(lane) % every == 0)
    return frame.filter(is_drawn)


def points_table(answer: Analysis) -> ReportTable:
    """Return a row per batch size: its steps, their interval, what it costs, and its best learning rate."""
    curve = answer.curve.sort("batch_size")
    rows = curve.to_dicts()
    fewest = min((row["examples"] for row in rows if row["examples"]), default=None)
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        **_size_columns(answer),
        "steps to result": lambda row: "not reached" if row["steps"] is None else whole_text(row["steps"]),
        "90 % interval": lambda row: span_text(row["steps_low"], row["steps_high"], whole_text),
        answer.unit.noun: lambda row: _cell(answer.unit.amount(row["examples"])),
        "cost": lambda row: f"{times_text(row['examples'] / fewest)}×" if row["examples"] and fewest else "",
    }
    if not curve["epochs"].is_null().all():
        columns["epochs"] = lambda row: rounded_text(row["epochs"], 2)
    if "learning_rate" in curve.columns:
        columns["learning rate"] = lambda row: _value(row, "learning_rate")
    columns["trials that reached it"] = lambda row: f"{row['reached']:,} of {row['trials']:,}"
    if curve["infeasible"].sum():
        columns["infeasible"] = lambda row: f"{row['infeasible']:,}"
    flagged = any(point_flags(row) for row in rows)
    if flagged:
        columns["trust less, because"] = lambda row: point_flags(row) or ""
    cells = tuple(tuple(text(row) for text in columns.values()) for row in rows)
    return ReportTable(tuple(columns), cells, frozenset(range(len(columns) - flagged)))


def _size_columns(answer: Analysis) -> dict[str, Callable[[dict[str, Any]], str]]:
    """Return the columns of a batch size: examples, or tokens and sequences."""

    def column(place: int) -> Callable[[dict[str, Any]], str]:
        return lambda row: _cell(answer.unit.size_cells(row["batch_size"])[place])

    return {name: column(place) for place, name in enumerate(answer.unit.size_columns)}


def _cell(value: int | str | None) -> str:
    return value if isinstance(value, str) else whole_text(value)


def _metaparameter_table(answer: Analysis) -> ReportTable | None:
    from batchscale.analysis.curve_analysis import ANALYSIS_SCHEMA

    curve = add_effective_learning_rate(answer.curve.sort("batch_size").drop_nulls("steps"))
    names = [name for name in curve.columns if name not in ANALYSIS_SCHEMA]
    if "momentum" not in names and EFFECTIVE in names:
        names.remove(EFFECTIVE)  # it would repeat the learning rate
    if curve.is_empty() or not names:
        return None
    derived = [name for name in (BETA2_HALF_LIFE, DECAY_TIME_SCALE) if any(name in v for v in answer.derived.values())]
    sizes = _size_columns(answer)
    rows = [
        (
            *(text(row) for text in sizes.values()),
            f"{row['trial_id']}",
            *(_value(row, name) for name in names),
            *(derived_text(name, answer.derived[row["batch_size"]].get(name)) for name in derived),
        )
        for row in curve.iter_rows(named=True)
    ]
    labels = [*map(metaparameter_label, names), *(derived_label(name, answer.unit) for name in derived)]
    columns = (*sizes, "trial", *labels)
    return ReportTable(columns, tuple(rows), frozenset(range(len(columns))))


def _value(row: Mapping[str, Any], name: str) -> str:
    return "" if row[name] is None else metaparameter_text(row[name], 2)


def _heuristics(records: Records, answer: Analysis) -> str | None:
    assert answer.goal is not None
    if answer.curve["steps"].drop_nulls().len() < 2:
        return None
    try:
        return heuristic_sentence(
            judge_heuristics(heuristic_errors(answer.curve, trial_outcomes(records, answer.goal)))
        )
    except BatchscaleError as error:
        return str(error)


def _trust(answer: Analysis) -> Sequence[str]:
    doubts = [f"{doubt[:1].upper()}{doubt[1:]}." for doubt in answer.doubts]
    notes = answer.curve["interval_note"].drop_nulls().unique(maintain_order=True)
    without = answer.curve.filter(pl.col("interval_note").is_not_null())["batch_size"]
    sizes = ", ".join(answer.unit.short(size) for size in without)
    return [*doubts, *(f"No interval at batch size {sizes}: {note}." for note in notes[:1])]
