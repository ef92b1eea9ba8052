"""The best measurement under a budget of steps, examples or epochs, and which studies a budget may judge.

The rule of the paper's Figure 11: a batch size enters a budget only if its trials were trained that far.
"""

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from batchscale.analysis.improvements import check_metric
from batchscale.errors import AnalysisError, one_line
from batchscale.records.frames import STUDY_COLUMNS, Records
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.records.precision import widen
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.workload_name import WorkloadName

# Training examples after the paper's splits (appendix A.1); sentences for text. Half-ImageNet is by images.
PAPER_TRAIN_EXAMPLES: Mapping[str, int] = {
    "mnist": 55_000,
    "fashion_mnist": 55_000,
    "cifar_10": 45_000,
    "imagenet": 1_281_167,
    "open_images_v4": 4_526_492,
    "lm1b": 30_301_028,
    "mnist_55000": 55_000,
    "mnist_27500": 27_500,
    "mnist_13750": 13_750,
    "mnist_6875": 6_875,
}

BEST_MEASUREMENT_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "dataset": pl.String,
    "model": pl.String,
    "optimizer": pl.String,
    "batch_size": pl.Int64,
    "budget": pl.String,  # "10000 steps", "2 epochs"
    "budget_amount": pl.Float64,
    "budget_unit": pl.String,
    "limit": pl.Float64,  # the budget in steps of this batch size
    "metric": pl.String,
    "value": pl.Float64,
    "step": pl.Int64,  # the first step with that value
    "trial_id": pl.Int64,
    "early_stopping": pl.Boolean,  # trials may have ended before the budget: the value is a bound then
}
# behind these columns: ``by``, then one Float64 column per metaparameter of the best trial


PAPER_GROUPS = ("", "imagenet_subsets", "mnist_subsets", "solution_quality")
"""The group folders of the published data sets; a data set of that name elsewhere is another one."""


def train_examples(dataset: str, num_train_examples: int | Mapping[str, int] | None = None) -> int | None:
    """Return the size of a data set's training split: as passed, or as the paper gives it; None if unknown."""
    if isinstance(num_train_examples, int):
        return num_train_examples
    group, _, last = dataset.rpartition("/")
    sizes = num_train_examples or {}
    published = PAPER_TRAIN_EXAMPLES.get(last) if group in PAPER_GROUPS else None
    return sizes.get(dataset, sizes.get(last, published))


def examples_by_dataset(
    records: Records, num_train_examples: int | Mapping[str, int] | None
) -> int | Mapping[str, int]:
    """Return the sizes of training splits by data set: as passed, or else as the runs recorded them."""
    if isinstance(num_train_examples, int):
        return num_train_examples
    sizes = records.studies[METADATA].struct.field("num_train_examples")
    recorded: dict[str, set[int]] = {}
    if sizes.null_count() < len(sizes):
        for dataset, size in zip(records.studies["dataset"], sizes, strict=True):
            recorded.setdefault(dataset, set()).update([] if size is None else [size])
    return {dataset: values.pop() for dataset, values in recorded.items() if len(values) == 1} | dict(
        num_train_examples or {}
    )


def budget_steps(
    records: Records, budget: Budget, num_train_examples: int | Mapping[str, int] | None = None
) -> pl.DataFrame:
    """Return per study the budget in steps (``limit``, not rounded), the steps ``trained``, and if it ``enters``.

    ``trained`` is the study's train_steps. Studies with a time budget (train_steps 0) have the median steps of their
    COMPLETE trials instead: half of the search was trained at least that far.
    """
    examples = examples_by_dataset(records, num_train_examples)
    tokens = pl.col(METADATA).struct.field("tokens_per_example")
    rows = [
        _limit(budget, size, train_examples(dataset, examples), tokens_per_example, dataset)
        for dataset, size, tokens_per_example in records.studies.select("dataset", "batch_size", tokens).rows()
    ]
    median = (
        records.trials.filter(pl.col("status") == Status.COMPLETE.value)
        .group_by(STUDY_COLUMNS)
        .agg(pl.col("steps").median().alias("median_steps"))
    )
    studies = records.studies.with_columns(pl.Series("limit", rows, dtype=pl.Float64))
    trained = pl.when(pl.col("train_steps") > 0).then(pl.col("train_steps")).otherwise(pl.col("median_steps"))
    return (
        studies.join(median, on=STUDY_COLUMNS, how="left")
        .with_columns(trained.cast(pl.Float64).alias("trained"))
        .with_columns((pl.col("trained") >= pl.col("limit")).fill_null(False).alias("enters"))
        .select(*STUDY_COLUMNS, "limit", "trained", "enters", "early_stopping")
    )


def best_measurement(
    records: Records,
    metric: str,
    budget: Budget | Iterable[Budget] | None = None,
    *,
    maximize: bool = False,
    by: Sequence[str] = (),
    num_train_examples: int | Mapping[str, int] | None = None,
) -> pl.DataFrame:
    """Return the best value of a metric that any COMPLETE trial of each study measured within each budget.

    Args:
        records: Any number of workloads that have the metric.
        metric: ``split/metric``.
        budget: One budget or several; None for all that was measured.
        maximize: True if larger is better.
        by: Metaparameters whose values split each study (``label_smoothing`` in Figure 7).
        num_train_examples: Size of the training set, for epochs, where it is not one of the paper's.

    Returns:
        A frame of ``BEST_MEASUREMENT_SCHEMA``; studies that were not trained as far as a budget are left out of it.
        Ties go to the lower step, then to the lower trial id.
    """
    budgets: list[Budget | None] = [budget] if budget is None or isinstance(budget, Budget) else list(budget)
    frames = [
        _best_of(records.workload(name), name, metric, limit, maximize, by, num_train_examples)
        for limit in budgets
        for name in records.workloads
    ]
    if not frames:
        return pl.DataFrame(schema=BEST_MEASUREMENT_SCHEMA)
    return pl.concat(frames).sort(*STUDY_COLUMNS, "budget_unit", "budget_amount", *by, nulls_last=True)


def best_per_trial(
    records: Records,
    workload: WorkloadName,
    metric: str,
    *,
    maximize: bool = False,
    limits: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Return the best value of every COMPLETE trial and its first step: batch_size, trial_id, value, step.

    ``limits`` (columns batch_size, limit) leaves out later steps, and batch sizes that it does not have.
    """
    frame = records.sources[workload]()
    check_metric(frame, metric, workload)
    value = pl.col(metric).alias("value")
    inside = frame.select("batch_size", "trial_id", "step", value).filter(pl.col("value").is_finite())
    if limits is not None:
        inside = inside.join(limits.lazy(), on="batch_size").filter(pl.col("step") <= pl.col("limit"))
    best = pl.col("value").max() if maximize else pl.col("value").min()
    place = pl.col("step").filter(pl.col("value") == best).min().alias("step")
    per_trial = inside.group_by("batch_size", "trial_id").agg(best.alias("value"), place).collect()
    if per_trial.schema["value"] == pl.Float32:
        per_trial = per_trial.with_columns(widen(per_trial["value"]))
    complete = records.workload(workload).trials.filter(pl.col("status") == Status.COMPLETE.value)
    return complete.select("batch_size", "trial_id").join(per_trial, on=["batch_size", "trial_id"])


def _limit(
    budget: Budget, batch_size: int, num_examples: int | None, tokens_per_example: int | None, dataset: str
) -> float:
    amount = budget.per_batch_size.get(batch_size, budget.amount)
    if budget.unit is Unit.STEPS:
        return max(float(amount), float(budget.at_least_steps))
    if budget.unit is Unit.EPOCHS:
        if num_examples is None:
            raise AnalysisError(
                f"A budget in epochs needs the size of the training set, which is unknown for data set "
                f"'{one_line(dataset)}'; pass num_train_examples, or a budget in steps or examples."
            )
        amount *= num_examples
    if budget.unit is Unit.TOKENS:
        if tokens_per_example is None:
            raise AnalysisError(
                f"A budget in tokens needs records that state the tokens of an example. Found none for data set "
                f"'{one_line(dataset)}'; pass a budget in steps or examples."
            )
        amount /= tokens_per_example
    return max(amount / batch_size, float(budget.at_least_steps))


def _best_of(
    records: Records,
    workload: WorkloadName,
    metric: str,
    budget: Budget | None,
    maximize: bool,
    by: Sequence[str],
    num_train_examples: int | Mapping[str, int] | None,
) -> pl.DataFrame:
    studies = budget_steps(records, budget or Budget(0, Unit.STEPS, at_least_steps=0), num_train_examples)
    limits = studies.filter("enters").select("batch_size", "limit", "early_stopping")
    trials = records.trials.filter(pl.col("status") == Status.COMPLETE.value).drop("status", "steps", "extra")
    inside = limits.select("batch_size", "limit") if budget is not None else None
    per_trial = best_per_trial(records, workload, metric, maximize=maximize, limits=inside)
    winners = (
        trials.join(per_trial, on=["batch_size", "trial_id"])
        .join(limits, on="batch_size")
        .sort("value", "step", "trial_id", descending=[maximize, False, False])
        .unique(["batch_size", *by], keep="first", maintain_order=True)
    )
    named = winners.with_columns(
        pl.lit("all" if budget is None else f"{budget.amount:.12g} {budget.unit}").alias("budget"),
        pl.lit(None if budget is None else float(budget.amount), dtype=pl.Float64).alias("budget_amount"),
        pl.lit(None if budget is None else budget.unit.value, dtype=pl.String).alias("budget_unit"),
        pl.lit(metric).alias("metric"),
        pl.col("value").cast(pl.Float64),
        pl.col("limit") if budget is not None else pl.lit(None, dtype=pl.Float64).alias("limit"),
    )
    return named.select(*BEST_MEASUREMENT_SCHEMA, *dict.fromkeys((*by, *records.metaparameters)))
