"""A curve as an object: key figures, chart, advice, frame and dictionary of an analysis."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from batchscale.analysis.answer import KeyFigure, make_answer
from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.sentences import answer_sentences
from batchscale.analysis.summary import CurveSummary
from batchscale.formatting import count_text
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

if TYPE_CHECKING:
    from batchscale.figures.layout import Chart


class Curve:
    """Steps to result against batch size, with the critical batch size, the regimes and how sure they are.

    ``fit``, ``analyze`` and ``measure`` return one. A notebook shows its key figures, its chart and its advice.

    Attributes:
        analysis: The analysis behind it.
        records: The records that were analysed; None for bare points.
        folder: The folder of ``measure``; else None.

    >>> import batchscale as bs
    >>> curve = bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900, 256: 1300, 512: 990, 1024: 850})
    >>> round(curve.critical_batch_size)
    244
    >>> curve.perfect_scaling_up_to
    128
    """

    def __init__(
        self,
        analysis: Analysis,
        records: Records | None = None,
        *,
        folder: Path | None = None,
        title: str | None = None,
    ) -> None:
        self.analysis = analysis
        self.records = records
        self.folder = folder
        self._title = title

    # --- numbers ----------------------------------------------------------------------------------------------

    @property
    def workload(self) -> WorkloadName | None:
        """The workload; None for bare points."""
        return self.analysis.workload

    @property
    def goal(self) -> Goal | None:
        """The goal; None for bare points."""
        return self.analysis.goal

    @property
    def batch_sizes(self) -> list[int]:
        """The measured batch sizes, growing."""
        return [int(size) for size in self.analysis.curve["batch_size"].sort()]

    @property
    def critical_batch_size(self) -> float | None:
        """The batch size at which the curve bends, halfway between perfect scaling and no gain.

        By the law S_min (1 + B_crit/B) the goal takes twice the fewest steps there, and twice the fewest examples. None
        if the points do not determine it; then ``summary`` has the reason.
        """
        return self._critical.value

    @property
    def critical_batch_size_interval(self) -> tuple[float | None, float | None]:
        """The 90 % interval of the critical batch size; an end that the points leave open is None."""
        return self._critical.low, self._critical.high

    @property
    def perfect_scaling_up_to(self) -> int | None:
        """The largest measured size up to which twice the batch takes half the steps; None if it is not determined."""
        regimes = None if self._summary is None else self._summary.regimes
        if regimes is None or regimes.is_end_open or regimes.is_too_short:
            return None
        return None if regimes.perfect_scaling_start == regimes.largest else regimes.perfect_end

    @property
    def fewest_steps_from(self) -> int | None:
        """The smallest measured size with steps within 20 % of the fewest; None if steps still fall."""
        regimes = None if self._summary is None else self._summary.regimes
        return regimes.max_useful_batch_size if regimes is not None and regimes.max_useful_reached else None

    @property
    def optimal_batch_size(self) -> float | None:
        """The batch size of fewest examples, where it lies between the measured sizes; else None."""
        return None if self._summary is None else self._summary.optimal.batch_size.value

    @property
    def tokens_per_example(self) -> int | None:
        """The tokens of an example, where they are known; texts and charts are then in tokens, numbers in examples."""
        return self.analysis.unit.tokens_per_example

    def steps_at(self, batch_size: int) -> float | None:
        """Return the steps to result at a batch size: as measured, or by the scaling law; None without a law."""
        return None if self._summary is None else self._summary.steps_at(batch_size).value

    # --- text -------------------------------------------------------------------------------------------------

    @property
    def advice(self) -> tuple[str, ...]:
        """At most three sentences: the sizes to use, what smaller ones cost, what larger ones save."""
        return make_answer(self.analysis).advice

    @property
    def doubts(self) -> tuple[str, ...]:
        """The reasons to trust the curve less."""
        return tuple(self.analysis.doubts)

    @property
    def summary(self) -> str:
        """All sentences about the curve, as ``batchscale analyze`` prints them."""
        return "\n".join(answer_sentences(self.analysis))

    def key_figures(self) -> tuple[KeyFigure, ...]:
        """Return the three numbers that a curve is read for, as text, each with its interval and the trust in it."""
        return make_answer(self.analysis).figures

    # --- forms ------------------------------------------------------------------------------------------------

    def plot(self, theme: str = "light") -> "Chart":
        """Return the chart: steps against batch size with regimes and intervals. ``theme`` is light or dark.

        It is an Altair chart: a notebook shows it, and ``save("curve.svg")`` writes it.
        """
        from dataclasses import replace

        from batchscale.figures.kinds.curve import LOOK, analysis_frame, plot_curve
        from batchscale.figures.theme import find_theme

        return plot_curve(analysis_frame(self.analysis), replace(LOOK, theme=find_theme(theme)))

    def to_frame(self) -> pl.DataFrame:
        """Return a row per batch size: steps and their interval, and what is known of the trials or runs behind them.

        Where the tokens of an example are known, ``batch_size_tokens`` has the tokens of a batch. It is a Polars frame;
        ``pandas.DataFrame(curve.to_frame().to_dicts())`` is the same for pandas.
        """
        tokens = self.tokens_per_example
        if tokens is None:
            return self.analysis.curve
        return self.analysis.curve.with_columns((pl.col("batch_size") * tokens).alias("batch_size_tokens"))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as ``batchscale analyze --json`` (of bare points ``fit --json``) prints them."""
        from batchscale.analysis.as_json import analysis_json, fit_json

        return fit_json(self.analysis) if self.workload is None else analysis_json(self.analysis)

    def __repr__(self) -> str:
        title = str(self.workload) if self.workload is not None else "curve"
        goal = f", goal {self.goal}" if self.goal is not None else ""
        lines = [f"{title}{goal}: {count_text(len(self.batch_sizes), 'batch size')}"]
        for figure in self.key_figures():
            interval = f" ({figure.interval})" if figure.interval else ""
            lines.append(f"  {figure.label:<35} {figure.value:>8}{interval}, {figure.trust}")
        return "\n".join([*lines, *(f"  {sentence}" for sentence in self.advice)])

    def _repr_html_(self) -> str:
        from batchscale.api.html import NARROW, WIDE, render
        from batchscale.figures.kinds.curve import analysis_frame, plot_curve
        from batchscale.figures.layout import Look
        from batchscale.figures.names import goal_label, workload_label

        answer, frame = make_answer(self.analysis), analysis_frame(self.analysis)
        counts = count_text(len(self.batch_sizes), "batch size")
        return render(
            title=self._title or ("Scaling curve" if self.workload is None else workload_label(self.workload)),
            subtitle=counts if self.goal is None else f"{goal_label(self.goal)} · {counts}",
            figures=answer.figures,
            charts=[plot_curve(frame, Look(columns=1, size=size, is_bare=True)) for size in (WIDE, NARROW)],
            label="Steps to result against batch size",
            advice=answer.advice,
            notes=answer.notes,
            basis=answer.basis,
        )

    # --- inner ------------------------------------------------------------------------------------------------

    @property
    def _summary(self) -> CurveSummary | None:
        return self.analysis.summary

    @property
    def _critical(self) -> Estimate:
        return Estimate() if self._summary is None else self._summary.critical
