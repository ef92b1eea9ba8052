"""Predictors of the critical batch size beside the measured one, on a dozen workloads.

Each case is an experiment in ``prediction_cases``, or one whose records are kept in ``examples``. Its study is measured
and its predictors are trained in ``build/prediction``; a repeated command continues there. What came out is kept in two
small tables beside this file, from which the page and its figure are made without training.

    python benchmarks/prediction.py                        # measure, predict, write tables, page and figure
    python benchmarks/prediction.py --cases digits_sgd     # one case
    python benchmarks/prediction.py --page                 # page and figure from the kept tables
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from prediction_page import MEASURED, MEASURED_SCHEMA, PREDICTED, PREDICTED_SCHEMA, read_kept, write_page

from batchscale.adaptive.predict import METHODS, predict
from batchscale.adaptive.preparation import PredictSettings
from batchscale.analysis.curve_analysis import Analysis, analyze, analyze_points
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.atlas.curve import model_kind
from batchscale.atlas.similar import OwnCurve
from batchscale.atlas.table import read_atlas
from batchscale.errors import AnalysisError
from batchscale.noisy_quadratic import best_steps_to_loss, parse_problem
from batchscale.prediction.base_trial import base_batch_size, read_base_trial
from batchscale.prediction.easier_goals import METHOD as EASIER_GOALS
from batchscale.prediction.easier_goals import easier_goals, read_easier_goals
from batchscale.prediction.prediction import Prediction
from batchscale.prediction.public import atlas_prediction
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.run.preflight import make_checked_plan
from batchscale.run.session import run_plan
from batchscale.run.settings import RunSettings
from batchscale.spec.file import read_experiment
from batchscale.spec.plan import Plan

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
BUILD = HERE.parent / "build" / "prediction"


@dataclass(frozen=True)
class Case:
    """An experiment whose curve is known: its file, and the folder of its records if they are kept."""

    name: str
    file: Path
    kept: Path | None = None


def find_cases() -> list[Case]:
    """Return all cases: the files of ``prediction_cases``, and three experiments with kept records."""
    own = [Case(path.stem, path) for path in sorted((HERE / "prediction_cases").glob("*.toml"))]
    mnist = EXAMPLES / "mnist_fc_records"
    kept = [
        Case("mnist_fc_128_128_128", EXAMPLES / "mnist_fc_128_128_128.toml", mnist),
        Case("mnist_fc_1024", EXAMPLES / "mnist_fc_1024.toml", mnist),
        Case("gpt_100k", EXAMPLES / "gpt_study" / "adamw_rate.toml", EXAMPLES / "gpt_study" / "records" / "adamw_rate"),
    ]
    return own + kept


def measure(case: Case, plan: Plan, settings: RunSettings) -> Records:
    """Return the records of a case's study: kept ones, or those measured now or before."""
    if case.kept is not None:
        return read_records(case.kept)
    folder = BUILD / "studies" / case.name
    run_plan(plan, folder, settings)
    return read_records(folder)


def measured_row(case: Case, plan: Plan, records: Records) -> dict[str, object]:
    """Return the row of a measured case; the noisy quadratic model has its closed form instead."""
    experiment = plan.experiment
    name, goal = experiment.workload.name, experiment.goal
    analysis = analyze(records, name, goal)
    if name.dataset == "noisy_quadratic":
        analysis = closed_form(plan)
    trained = trial_outcomes(records.workload(name), goal).filter(pl.col("last_step") > 0)
    assert analysis.summary is not None, analysis.refusal
    critical = analysis.summary.critical
    source = "closed form" if name.dataset == "noisy_quadratic" else "kept" if case.kept else "measured"
    return {
        "case": case.name, "workload": str(name), "goal": str(goal), "source": source, "b_crit": critical.value,
        "low": critical.low, "high": critical.high, "trial_steps": int(trained["last_step"].sum()),
        "examples": int((trained["last_step"] * trained["batch_size"]).sum()),
    }  # fmt: skip


def closed_form(plan: Plan) -> Analysis:
    """Return the analysis of the exact steps of the noisy quadratic model with its best learning rates."""
    problem = parse_problem(plan.experiment.workload.dataset_options)
    sizes = [2**power for power in range(14)]
    rows = [(size, best_steps_to_loss(problem, size, plan.experiment.goal.value).steps) for size in sizes]
    return analyze_points(pl.DataFrame(rows, schema=["batch_size", "steps"], orient="row"))


def predict_case(case: Case, plan: Plan, settings: RunSettings, chosen: Sequence[str]) -> Iterator[Prediction]:
    """Yield the predictions of a case; the atlas without our own curves, which would predict themselves.

    Kept records give the tuned trial, and the first measurements of their trials stand for short runs.
    """
    name = plan.experiment.workload.name
    atlas = read_atlas(BUILD / "no_own_atlas")
    others = atlas.select(atlas.curves.filter(pl.col("source") != "batchscale"))
    own = OwnCurve(name.dataset, name.model, name.optimizer, model_kind(name.model))
    yield atlas_prediction(own, others, plan.studies[0].tokens_per_example)
    if case.kept is not None:
        yield replay_easier_goals(read_records(case.kept), plan)
    read = ("atlas", EASIER_GOALS) if case.kept else ("atlas",)
    methods = [method for method in chosen if method not in read]
    if methods:
        tuned = PredictSettings(settings, tuned=case.kept)
        yield from predict(plan, BUILD / "predictions" / case.name, methods, tuned)


def replay_easier_goals(records: Records, plan: Plan) -> Prediction:
    """Return the prediction of easier goals from a whole study, at the cost of a race that ends with them."""
    name, goal = plan.experiment.workload.name, plan.experiment.goal
    sizes = tuple(study.batch_size for study in plan.studies)
    base = read_base_trial(records, name, goal, base_batch_size(sizes), paid=False)
    try:
        prediction = read_easier_goals(records, name, goal)
    except AnalysisError as error:
        return Prediction(EASIER_GOALS, "critical_batch_size", Estimate(), 0, 0, "", str(error))
    hardest = easier_goals(base.values, base.steps, goal)[0]
    outcomes = trial_outcomes(records.workload(name), hardest).filter(pl.col("last_step") > 0)
    third = pl.col("steps_to_goal").sort(nulls_last=True).get(2, null_on_oob=True).over("batch_size")
    trained = outcomes.with_columns(pl.min_horizontal("last_step", third).alias("trained"))
    examples = int((trained["trained"] * trained["batch_size"]).sum())
    return replace(prediction, trial_steps=int(trained["trained"].sum()), examples=examples)


def predicted_rows(case: Case, predictions: Sequence[Prediction]) -> list[dict[str, object]]:
    """Return the rows of the predictions of the critical batch size."""
    return [
        {
            "case": case.name, "method": item.method, "b_crit": item.estimate.value, "low": item.estimate.low,
            "high": item.estimate.high, "trial_steps": item.trial_steps, "examples": item.examples,
            "reason": item.reason,
        }
        for item in predictions
        if item.quantity == "critical_batch_size"
    ]  # fmt: skip


def replace_rows(path: Path, schema: dict[str, pl.DataType], case: str, rows: Sequence[dict[str, object]]) -> None:
    """Write the rows of a case into a kept table, in place of its former ones."""
    new = pl.DataFrame(rows, schema=schema)
    if path.exists():
        new = pl.concat([pl.read_csv(path, schema=schema).filter(pl.col("case") != case), new])
    numbers = [name for name, kind in schema.items() if kind == pl.Float64]
    new.with_columns(pl.col(numbers).round_sig_figs(4)).sort("case", maintain_order=True).write_csv(path)


def main() -> None:
    """Measure and predict the chosen cases, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", help="names with commas between them; all if left out")
    parser.add_argument("--methods", help="likewise; the rows of a case are replaced by those of these methods")
    parser.add_argument("--data-dir", type=Path, help="the folder of the data sets")
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--page", action="store_true", help="only write the page and its figure from the kept tables")
    given = parser.parse_args()
    names = given.cases.split(",") if given.cases else [case.name for case in find_cases()]
    methods = given.methods.split(",") if given.methods else list(METHODS)
    settings = RunSettings(workers=given.workers, data_dir=given.data_dir)
    for case in [] if given.page else [case for case in find_cases() if case.name in names]:
        plan = make_checked_plan(read_experiment(case.file), given.data_dir)
        row = measured_row(case, plan, measure(case, plan, settings))
        replace_rows(MEASURED, MEASURED_SCHEMA, case.name, [row])
        rows = predicted_rows(case, list(predict_case(case, plan, settings, methods)))
        replace_rows(PREDICTED, PREDICTED_SCHEMA, case.name, rows)
        for each in rows:
            print(case.name, each["method"], each["b_crit"], each["reason"], "measured", row["b_crit"], flush=True)
    write_page(*read_kept())


if __name__ == "__main__":
    main()
