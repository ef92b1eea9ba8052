"""Adaptive experiments against fixed ones: trial-steps, answers and coverage, where the truth is known or was measured.

``simulated``: studies of a known law, as ``tests/analysis/simulated_studies.py`` draws them, B_crit at random between
32 and 1,024. Both designs see the same trials: the fixed one 20 or 100 of them at eight sizes from 1 to 16,384, the
adaptive one as many as it chooses at doublings between the same ends. A race ends trials: with four finishers in the
fixed design, in the adaptive one with two of eight trials, and four from 16 on.
``replayed``: trials are drawn from kept records, in another order each time; the fixed design has all of them.
``live``: both designs are run on the small workloads of ``prediction_cases``, in one process.

    python benchmarks/adaptive.py simulated --repetitions 25
    python benchmarks/adaptive.py replayed --repetitions 20
    python benchmarks/adaptive.py live --out FOLDER
"""

import argparse
import math
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from batchscale.adaptive.progress import study_costs
from batchscale.adaptive.rounds import run_experiment
from batchscale.analysis.curve_analysis import analyze
from batchscale.analysis.intervals import Estimate, Finishers, StudyPoint
from batchscale.analysis.noise import trial_noise
from batchscale.analysis.outcomes import Outcome, trial_outcomes
from batchscale.analysis.summary import CurveData, CurveSummary, summarize
from batchscale.errors import AnalysisError
from batchscale.figures.selection import find_goal
from batchscale.formatting import rounded_text, span_text
from batchscale.prediction.next_round import Design, MeasuredSize, RoundProgress, next_round, start_round
from batchscale.prediction.quantities import AimQuestion, OpenQuestion
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA, stored_choices
from batchscale.records.read import read_records
from batchscale.run.preflight import make_checked_plan
from batchscale.run.settings import RunSettings
from batchscale.spec.adaptive import AdaptivePlan, Aim, ChoiceKind, CostUnit, finishers_of
from batchscale.spec.experiment import Experiment
from batchscale.spec.file import parse_experiment
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "analysis"))

FINISHERS = 4
S_MIN = 1e6
NEVER = 4.0  # times the law: the step budget of trials that do not reach the goal
FIXED = tuple(4**power for power in range(8))
POOL = tuple(2**power for power in range(15))


@dataclass
class Trials:
    """The trials of an experiment by batch size: their steps to the goal, infinite if they never reach it."""

    draw: Callable[[int, int], np.ndarray]
    budget: Callable[[int], float]
    spacing_share: Mapping[int, float] = field(default_factory=dict)
    drawn: dict[int, np.ndarray] = field(default_factory=dict)

    def study(self, size: int, trials: int, finishers: int = FINISHERS) -> tuple[StudyPoint | None, float]:
        """The point of a race between the first trials, None if none reached the goal, and its trial-steps."""
        known = self.drawn.get(size, np.empty(0))
        if len(known) < trials:
            known = np.concatenate([known, self.draw(size, trials - len(known))])
            self.drawn[size] = known
        steps = np.sort(known[:trials])
        reached = steps[np.isfinite(steps)][:finishers]
        end = reached[-1] if len(reached) == finishers else self.budget(size)
        if not reached.size:
            return None, trials * end
        spacing = round(self.spacing_share.get(size, 0.0) * reached[0])
        return StudyPoint(size, round(reached[0]), Finishers(reached, trials), spacing), trials * end


@dataclass(frozen=True)
class Run:
    """A design on one experiment: its summary (None: too few points), trial-steps, sizes, trials, and the end."""

    summary: CurveSummary | None
    cost: float
    sizes: tuple[int, ...]
    trials: int
    rounds: int = 0
    reason: str = ""
    points: tuple[StudyPoint, ...] = ()

    @property
    def factor(self) -> float:
        """The upper end of the interval of B_crit over its lower end."""
        if self.summary is None or not self.summary.critical.low or not self.summary.critical.high:
            return math.inf
        return self.summary.critical.high / self.summary.critical.low


def summary_of(points: Sequence[StudyPoint]) -> CurveSummary | None:
    """The summary of the analysis."""
    sizes, steps = np.array([[float(point.batch_size), float(point.steps)] for point in points]).T
    spacings = [point.spacing for point in points]
    try:
        return summarize(CurveData(sizes, steps, [(None, None)] * len(points), spacings, trial_noise(points)))
    except AnalysisError:
        return None


def run_fixed(trials: Trials, sizes: Sequence[int], count: int, finishers: int = FINISHERS) -> Run:
    """Run a fixed design."""
    studies = [trials.study(size, count, finishers) for size in sizes]
    points = [point for point, _ in studies if point is not None]
    return Run(summary_of(points), sum(cost for _, cost in studies), tuple(sizes), count, points=tuple(points))


def run_adaptive(
    trials: Trials,
    pool: Sequence[int],
    plan: AdaptivePlan,
    prediction: float | None = None,
    question: OpenQuestion | None = None,
) -> Run:
    """Run an adaptive design to its end."""
    design = Design(plan, question or AimQuestion(plan.aim, pool[0], pool[-1]), tuple(pool))
    choices = [start_round(design, None if prediction is None else (prediction, "a guess"))]
    while choices[-1].kind is not ChoiceKind.STOP:
        sizes = sorted({size for choice in choices for size in choice.sizes})
        count = max(choice.trials for choice in choices)
        studies = {size: trials.study(size, count, finishers_of(count)) for size in sizes}
        points = tuple(point for point, _ in studies.values() if point is not None)
        measured = tuple(
            MeasuredSize(size, None if point is None else float(point.steps), cost)
            for size, (point, cost) in studies.items()
        )
        choices.append(next_round(design, RoundProgress(measured, trial_noise(points), points, count, len(choices))))
    cost = sum(size.cost for size in measured)
    return Run(summary_of(points), cost, tuple(sizes), count, len(choices) - 1, choices[-1].reason, points)


# --- simulated studies ------------------------------------------------------------------------------------------


def simulated_trials(shape: str, b_crit: float, sharpness: float, rng: np.random.Generator) -> Trials:
    """Trials above a law by a random factor, of which 30 % never reach the goal."""
    from simulated_studies import REACH, SHAPES

    def law(size: int) -> float:
        return S_MIN * (1 + (b_crit / size) ** sharpness) ** (1 / sharpness)

    def draw(size: int, count: int) -> np.ndarray:
        steps = law(size) * SHAPES[shape](rng, (count,))
        return np.where(rng.random(count) < REACH, steps, np.inf)

    return Trials(draw, lambda size: NEVER * law(size))


def simulate(
    repetitions: int,
    plan: AdaptivePlan,
    sharpness: float = 1.0,
    guess: float | None = None,
    shapes: Sequence[str] = (),
    seed: int = 17,
) -> None:
    """Print a row per shape of the trials' distribution, and one for all."""
    from simulated_studies import SHAPES

    header = (
        "shape | B_crit within: adaptive | fixed, 20 trials | factor: adaptive | fixed, 20 | sizes | trials | rounds"
    )
    print(f"| {header} | trial-steps saved: of 20 trials (10 to 90 %) | of 100 trials | error |\n|{'---|' * 11}")
    every: list[tuple[float, ...]] = []
    for shape in shapes or SHAPES:
        rng = np.random.default_rng([seed, *shape.encode()])
        rows = []
        for _ in range(repetitions):
            b_crit = float(np.exp(rng.uniform(math.log(32), math.log(1024))))
            trials = simulated_trials(shape, b_crit, sharpness, rng)
            prediction = None if guess is None else b_crit * math.exp(guess * rng.normal())
            run, few, many = (
                run_adaptive(trials, POOL, plan, prediction),
                run_fixed(trials, FIXED, 20),
                run_fixed(trials, FIXED, 100),
            )
            value = run.summary.critical.value if run.summary else None
            error = abs(math.log(value / b_crit)) if value else math.nan
            row = (
                _holds(run, b_crit),
                _holds(few, b_crit),
                run.factor,
                few.factor,
                len(run.sizes),
                run.trials,
                run.rounds,
            )
            rows.append((*row, few.cost / run.cost, many.cost / run.cost, error))
        print(_row(shape.replace("_", " "), rows), flush=True)
        every += rows
    print(_row("all", every))


def _holds(run: Run, b_crit: float) -> bool:
    return run.summary is not None and run.summary.critical.has_interval and run.summary.critical.includes(b_crit)


def _row(name: str, rows: Sequence[tuple[float, ...]]) -> str:
    table = np.array(rows, dtype=float)
    cells = [f"{100 * table[:, i].mean():.0f} %" for i in (0, 1)]
    cells += [f"{np.median(table[:, i]):.2f}" for i in (2, 3)]
    cells += [f"{table[:, i].mean():.1f}" for i in (4, 5, 6)]
    low, high = np.quantile(table[:, 7], [0.1, 0.9])
    cells += [f"{np.median(table[:, 7]):.1f}× ({low:.1f} to {high:.1f})", f"{np.median(table[:, 8]):.0f}×"]
    return f"| {name} | " + " | ".join([*cells, f"{100 * math.expm1(np.nanmedian(table[:, 9])):.0f} %"]) + " |"


# --- kept records -----------------------------------------------------------------------------------------------

ROOT = Path(__file__).parents[1]
MNIST, GPT = ROOT / "examples/mnist_fc_records", ROOT / "examples/gpt_study/records"
KEPT = ("mnist/fc_1024/sgd", "mnist/fc_128_128_128/sgd", "mnist/fc_128_128_128/nesterov_momentum")
SYNTHETIC = ("mnist/simple_cnn_base/sgd", "mnist/fc_1024/sgd", "cifar_10/resnet_8/nesterov_momentum")


def replay(repetitions: int, factor: float) -> None:
    """Print a row per kept workload: the answers of its whole records, and of adaptive runs on its trials."""
    header = "records | sizes × trials | B_crit of all trials | adaptive: B_crit inside | intervals overlap | factor"
    print(f"| {header} | sizes | trials | saved of all trials (10 to 90 %) |\n|{'---|' * 9}")
    for name in KEPT:
        _replay_records(name, read_records(MNIST), name, None, repetitions, factor)
    for path in sorted(GPT.iterdir()):
        _replay_records(f"small GPT, {path.name}", read_records(path), None, None, repetitions, factor)
    with tempfile.TemporaryDirectory() as folder:
        for name in SYNTHETIC:
            path, goal = _write_synthetic(Path(folder), name)
            _replay_records(f"{name}, synthetic", read_records(path), name, goal, repetitions, factor)


def _write_synthetic(folder: Path, name: str) -> tuple[Path, Goal]:
    """The records of a workload as in the published archive, from its loss model, and its goal."""
    from synthetic_archive import Scale, published_studies, write_tree
    from synthetic_workloads import loss_model

    workload = WorkloadName.parse(name)
    studies = [s for s in published_studies() if (s.dataset, s.model, s.optimizer) == tuple(name.rsplit("/", 2))]
    path = folder / name.replace("/", "-")
    write_tree(path, Scale(1.0, 0.2), studies=studies)
    model = loss_model(workload.dataset, workload.model, workload.optimizer)
    return path, Goal.parse(f"val/classification_error < {model.goal}")


def _replay_records(
    label: str, records: Records, name: str | None, goal: Goal | None, repetitions: int, factor: float
) -> None:
    workload = records.workloads[0] if name is None else WorkloadName.parse(name)
    goal = goal or find_goal(records, workload)
    selected = records.workload(workload)
    assert goal is not None
    outcomes = trial_outcomes(selected, goal)
    whole = analyze(selected, workload, goal)
    kept: dict[int, np.ndarray] = {}
    for (size,), group in outcomes.group_by("batch_size"):
        reached = pl.when(pl.col("outcome") == Outcome.REACHED.value).then(pl.col("steps_to_goal"))
        kept[int(size)] = group.select(reached.cast(pl.Float64).fill_null(math.inf)).to_series().to_numpy()
    budgets = dict(selected.studies.select("batch_size", "train_steps").rows())
    spacing = {point.batch_size: point.spacing / point.steps for point in whole.points}
    count = min(len(steps) for steps in kept.values())
    sizes = tuple(sorted(kept))
    critical = Estimate() if whole.summary is None else whole.summary.critical
    rows = []
    for seed in range(repetitions):
        rng = np.random.default_rng(seed)
        orders = {size: rng.permutation(steps) for size, steps in kept.items()}
        trials = Trials(
            lambda size, number, orders=orders: orders[size][:number], budgets.__getitem__, drawn=dict(orders)
        )
        trials.spacing_share = spacing
        plan = AdaptivePlan(Aim.CRITICAL, factor, most_trials=count)
        run, all_trials = run_adaptive(trials, sizes, plan), run_fixed(trials, sizes, count)
        own = Estimate() if run.summary is None else run.summary.critical
        inside = critical.value is not None and own.has_interval and own.includes(critical.value)
        overlap = own.has_interval and (own.low or 0) <= (critical.high or math.inf)
        overlap = overlap and (own.high or math.inf) >= (critical.low or 0)
        rows.append((inside, overlap, run.factor, len(run.sizes), run.trials, all_trials.cost / run.cost))
    table = np.array(rows, dtype=float)
    low, high = np.quantile(table[:, 5], [0.1, 0.9])
    text = "none" if critical.value is None else f"{rounded_text(critical.value)}"
    cells = [label, f"{len(sizes)} × {count}", f"{text} ({span_text(critical.low, critical.high)})"]
    cells += [f"{100 * table[:, i].mean():.0f} %" for i in (0, 1)] + [f"{np.median(table[:, 2]):.2f}"]
    cells += [f"{table[:, i].mean():.1f}" for i in (3, 4)]
    print("| " + " | ".join([*cells, f"{np.median(table[:, 5]):.1f}× ({low:.1f} to {high:.1f})"]) + " |", flush=True)


# --- live runs --------------------------------------------------------------------------------------------------

CASES = ("digits_sgd", "two_moons", "regression", "noisy_quadratic")


def run_live(out: Path, cases: Sequence[str], designs: Sequence[str]) -> None:
    """Run both designs of each case into a folder, or continue them, and print a row per design."""
    print(f"| workload | design | B_crit | factor | sizes | trials | trial-steps | as narrow after |\n|{'---|' * 8}")
    for case in cases:
        factor = math.inf
        for design in designs:
            experiment = _live_experiment(case, design)
            root = out / case / design
            run_experiment(make_checked_plan(experiment, None), root, RunSettings("inline"))
            records = read_records(root)
            summary = analyze(records, records.workloads[0], experiment.goal).summary
            critical = Estimate() if summary is None else summary.critical
            steps = sum(study_costs(records, CostUnit.TRIAL_STEPS).values())
            narrow = _steps_until(records, factor) if design == "adaptive" else ""
            factor = critical.high / critical.low if critical.low and critical.high else math.inf
            value = "none" if critical.value is None else rounded_text(critical.value)
            cells = [case, design, f"{value} ({span_text(critical.low, critical.high)})", f"{factor:.2f}"]
            cells += [f"{records.studies.height}", f"{records.trials.height}", f"{steps:,.0f}", narrow]
            print("| " + " | ".join(cells) + " |", flush=True)


def _live_experiment(case: str, design: str) -> Experiment:
    """The fixed experiment of a case, or the adaptive one between its smallest and its largest size."""
    file = Path(__file__).parent / "prediction_cases" / f"{case}.toml"
    text = file.read_text(encoding="utf-8")
    experiment = parse_experiment(text, folder=file.parent)
    if design == "fixed":
        return experiment
    plan = make_checked_plan(experiment, None)
    ends = f"smallest = {plan.studies[0].batch_size}\nlargest = {plan.studies[-1].batch_size}"
    auto = re.sub(r"^batch_sizes = .*$", 'batch_sizes = "auto"', text, flags=re.MULTILINE)
    auto = re.sub(r"^trials = .*$", 'trials = "auto"', auto, flags=re.MULTILINE)
    auto = re.sub(r"^finishers = .*$", "", auto, flags=re.MULTILINE)
    return parse_experiment(f"{auto}\n[adaptive]\n{ends}\n", folder=file.parent)


def _steps_until(records: Records, factor: float) -> str:
    """The trial-steps after which the adaptive interval was as narrow as that of the fixed design, as text."""
    choices = stored_choices(records.studies)
    for i, choice in enumerate(choices):
        is_narrow = choice.low is not None and choice.high is not None and choice.high <= factor * choice.low
        if i and (is_narrow or math.isinf(factor)):
            sizes = {size for each in choices[:i] for size in each.sizes}
            count = max(each.trials for each in choices[:i])
            point = pl.col(METADATA).struct.field("point")
            trained = records.trials.filter(pl.col("batch_size").is_in(sizes) & (point < count))
            return f"{trained['steps'].sum():,}"
    return "never"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("simulated", "replayed", "live"))
    parser.add_argument("--repetitions", type=int, default=25)
    parser.add_argument("--factor", type=float, default=2.0)
    parser.add_argument("--sharpness", type=float, default=1.0, help="k of the simulated law")
    parser.add_argument("--guess", type=float, help="start around a prediction with this error of its logarithm")
    parser.add_argument("--shapes", nargs="*", default=())
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--out", type=Path, default=Path("build/adaptive"))
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--designs", nargs="*", default=("fixed", "adaptive"))
    options = parser.parse_args()
    if options.part == "replayed":
        replay(options.repetitions, options.factor)
    elif options.part == "live":
        run_live(options.out, options.cases, options.designs)
    else:
        plan = AdaptivePlan(Aim.CRITICAL, options.factor)
        simulate(options.repetitions, plan, options.sharpness, options.guess, options.shapes, options.seed)


if __name__ == "__main__":
    main()
