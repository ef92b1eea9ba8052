"""What is known of several folders to hold beside each other: their analyses, names, and best learning rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from batchscale.analysis.comparison import shared_sizes
from batchscale.analysis.curve_analysis import Analysis, analyze
from batchscale.errors import AnalysisError, BatchscaleError
from batchscale.records.frames import Records
from batchscale.web.charts import require_goal, workload_at
from batchscale.web.overview import OverviewRow
from batchscale.web.records_folders import RecordsFolder, visible
from batchscale.web.shelf import OpenRecords

NOT_SHARED = "Curves are normalised at a batch size that all of them reached their goal at; these share none."


@dataclass(frozen=True)
class ComparedCurves:
    """Rows with a curve, and its analysis, by names that no two share; ``left_out`` says why others have none."""

    rows: Mapping[str, OverviewRow]
    answers: Mapping[str, Analysis]
    left_out: Mapping[str, str]

    @property
    def common_size(self) -> int | None:
        """The smallest batch size at which every curve reached its goal; None: there is none."""
        shared = shared_sizes({name: answer.curve for name, answer in self.answers.items()})
        return shared[0] if shared else None

    def require_common_size(self) -> int:
        """The batch size at which curves are normalised.

        Raises:
            AnalysisError: there is none.
        """
        found = self.common_size
        if found is None:
            raise AnalysisError(NOT_SHARED)
        return found


def make_curves(shelf: OpenRecords, rows: Sequence[OverviewRow]) -> ComparedCurves:
    """The analysis of every row that has one."""
    kept: dict[str, OverviewRow] = {}
    answers: dict[str, Analysis] = {}
    left_out: dict[str, str] = {}
    for name, row in name_rows(rows).items():
        try:
            answers[name] = analysis_of(shelf, row.folder, row.number)
            kept[name] = row
        except BatchscaleError as error:
            left_out[name] = visible(error, 400)
    return ComparedCurves(kept, answers, left_out)


def name_rows(rows: Sequence[OverviewRow]) -> dict[str, OverviewRow]:
    """Rows by their workloads; those of the same workload by their folders as well. A row that comes twice is one."""
    named: dict[str, OverviewRow] = {}
    once = list({row.key: row for row in rows}.values())
    for row in once:
        twice = sum(other.workload == row.workload for other in once) > 1
        named[f"{row.folder.name}: {row.workload}" if twice else row.workload] = row
    return named


def analysis_of(shelf: OpenRecords, folder: RecordsFolder, number: int) -> Analysis:
    """The analysis of one workload of a folder, kept until its records change."""

    def work(records: Records) -> Analysis:
        name = workload_at(records, number)
        return analyze(records, name, require_goal(records, name))

    return shelf.answer(folder.path, f"analysis {number}", work)


def best_rates(answers: Mapping[str, Analysis]) -> list[tuple[str, dict[int, float]]]:
    """The winning learning rate by batch size, for each curve that has learning rates."""
    return [
        (name, {size: rate for size, rate in answer.curve.select("batch_size", "learning_rate").rows() if rate})
        for name, answer in answers.items()
        if "learning_rate" in answer.curve.columns
    ]
