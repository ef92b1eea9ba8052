"""The tables and keys of an experiment file with their types and defaults.

Owns the shape of the file only, and `explain`, the sentence about a file of another shape. Goals, batch sizes and
search spaces are parsed by their own classes; ``file`` turns these tables into an Experiment. The text under each key
is its description in docs/experiment-file.md, which ``make pages`` writes.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, WithJsonSchema

from batchscale.errors import one_line, suggest_names
from batchscale.spec.adaptive import FIRST_TRIALS, MOST_TRIALS, Aim
from batchscale.spec.batch_sizes import MAX_BATCH_SIZE
from batchscale.spec.durations import MAX_MEASUREMENTS, MAX_STEPS, Unit
from batchscale.spec.experiment import DEFAULT_FILE_TIMEOUT_S, Algorithm, StopRule
from batchscale.spec.gradient_noise import NoiseKind
from batchscale.spec.tokens import MAX_TOKENS, MAX_TOKENS_PER_EXAMPLE

Name = Annotated[str, Field(min_length=1, max_length=500)]
StepCount = Annotated[int, Field(ge=1, le=MAX_STEPS)]
StopName = Annotated[StopRule, Field(strict=False), WithJsonSchema({"type": "string", "enum": list(StopRule)})]
ExampleCount = Annotated[int, Field(ge=0, le=2**40)] | Literal["all"]
LongText = Annotated[str, Field(max_length=10_000)]
SpaceTable = dict[str, dict[str, Any]]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class WorkloadTable(_Table):
    """The workload, as a table or as `workload = "dataset/model/optimizer"`. `batchscale workloads` lists the names.

    [Workloads](workloads.md) and [Data sets](data.md) list the options.
    """

    dataset: Name
    """The data set."""
    model: Name
    """The model."""
    optimizer: Name
    """The optimizer."""
    schedule: Name | None = None
    """The learning rate schedule. Default: the model's own."""
    file: Name | None = None
    """A Python file, relative to this one, that registers your own workload. Default: none."""
    file_timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=False)] = DEFAULT_FILE_TIMEOUT_S
    """Seconds that loading and checking that file may take, its data included, before training starts."""
    dataset_options: dict[str, Any] = {}
    """Options of the data set: numbers, texts, true or false, and lists of these."""
    model_options: dict[str, Any] = {}
    """Options of the model."""
    optimizer_options: dict[str, Any] = {}
    """Options of the optimizer and of its schedule."""


def _read_workload(value: object) -> object:
    """Return the table, or the one that a text such as "digits/fc_64/sgd" stands for."""
    if isinstance(value, dict | WorkloadTable):
        return value
    parts = value.strip("/").rsplit("/", 2) if isinstance(value, str) else ()
    if len(parts) != 3:
        raise ValueError('must be a table of dataset, model and optimizer, or a text "DATASET/MODEL/OPTIMIZER"')
    return dict(zip(("dataset", "model", "optimizer"), parts, strict=True))


class BudgetTable(_Table):
    """The longest training of a trial: one of steps, examples, epochs and tokens."""

    steps: StepCount | None = None
    """Optimizer steps."""
    examples: StepCount | None = None
    """Training examples; the steps are rounded up."""
    epochs: Annotated[float, Field(gt=0, strict=False)] | None = None
    """Passes over the training set; the steps are rounded up. Used when none of the four is given."""
    tokens: Annotated[float, Field(ge=1, le=MAX_TOKENS, strict=False)] | None = None
    """Tokens of training text, `20e6`; the steps are rounded up. See [Think in tokens](tokens.md)."""
    at_least_steps: StepCount | None = None
    """The smallest budget at any batch size, because large batches make few steps per epoch. 1 if a budget is given."""
    per_batch_size: dict[str, Annotated[float, Field(gt=0, strict=False)]] = {}
    """Another budget at single batch sizes of the experiment, in the same unit: `{ 64 = 20 }`."""


class ExamplesTable(_Table):
    """The number of examples of each split to measure; 0 leaves the split out."""

    train: ExampleCount = 1000
    """Of the training set."""
    val: ExampleCount = "all"
    """Of the validation set."""
    test: ExampleCount = 0
    """Of the test set."""


def _check_noise(value: Any) -> Any:
    if isinstance(value, bool) or (
        isinstance(value, list) and value and all(item in list(NoiseKind) for item in value)
    ):
        return value
    raise ValueError(f"must be true, false, or a list of kinds of {', '.join(NoiseKind)}")


class EvaluationTable(_Table):
    """The steps at which trials are measured, the same for all trials of a study, and the examples."""

    every: StepCount | LongText | None = None
    """Steps between measurements, or `"1M tokens"`; not together with `count` or `spacing`. Default: `count` ones."""
    count: Annotated[int, Field(ge=1, le=MAX_MEASUREMENTS)] | None = None
    """The number of measurements."""
    spacing: Literal["even", "log"] | None = None
    """The spacing of the `count` measurements: even, or even in the logarithm of the step."""
    start: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    """The share of the step budget before which only step 0 is measured."""
    examples: ExamplesTable = ExamplesTable()
    """The number of examples of each split to measure."""
    gradient_noise: Annotated[
        bool | Annotated[list[Literal["euclidean", "preconditioned", "sign", "spectral"]], Field(min_length=1)],
        BeforeValidator(_check_noise),
    ] = False
    """Measure the [gradient noise scale](noise-scale.md) too: true, or the kinds: `["euclidean", "sign"]`."""


class AveragingTable(_Table):
    """Measure exponential averages of the weights, see [its guide](horizon.md). Default: the weights themselves."""

    half_life: Annotated[
        list[Annotated[float, Field(strict=False)]], BeforeValidator(lambda v: v if isinstance(v, list) else [v])
    ]
    """The half-life of each average, growing: `[50, 200, 800]`; the best one counts. Or one number."""
    unit: Annotated[Unit, Field(strict=False), WithJsonSchema({"type": "string", "enum": list(Unit)})] = Unit.STEPS
    """The unit of the half-lives: steps, examples, epochs or tokens."""


class BranchesTable(_Table):
    """Measure the ends of branches that anneal from a trunk, see [its guide](horizon.md#measure-annealed-branches)."""

    decay: Annotated[float, Field(gt=0, le=1, strict=False)] | None = None
    """The share of a branch's steps, from the first step of the trunk to its end, that anneal. Default: 0.2."""
    decay_steps: StepCount | None = None
    """The steps that anneal, instead of a share; at most those of the first branch. Default: none."""
    shape: Literal["linear", "cosine", "sqrt"] = "linear"
    """The fall of the learning rate: a line, half a cosine, or 1 - √ of the annealed share."""
    end_factor: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    """The learning rate at the end of a branch, as a factor of the trunk's."""


class SearchTable(_Table):
    """The metaparameter search."""

    algorithm: Literal["halton", "sobol"] = Algorithm.HALTON.value
    """The low-discrepancy sequence of the points."""
    paired: bool = False
    """Use the same points of the unit cube at every batch size."""
    edge_margin: Annotated[float, Field(ge=0, lt=0.5, strict=False)] = 0.05
    """Search again if the best of many trials is nearer to an end of a range than this share of it; 0: never."""
    repeats: Annotated[int, Field(ge=0, le=100)] = 2
    """The most further searches of a study, each in a moved space."""
    max_attempts: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """The most trials that a search starts to get its non-divergent ones, at least `trials`. Default: 10 × `trials`."""
    space: SpaceTable = {}
    """Ranges by metaparameter, replacing the optimizer's own."""
    fixed: dict[str, Annotated[float, Field(strict=False)]] = {}
    """Metaparameters held at a value instead of searched: `{ momentum = 0.9 }`."""
    per_batch_size: dict[str, SpaceTable] = {}
    """Other ranges at single batch sizes of the experiment: `[search.per_batch_size.64]`."""


class ReportsTable(_Table):
    """The output to read measurements from if a script does not report by the protocol: pattern, csv or jsonl."""

    pattern: LongText | None = None
    """A printed line: `"step={step} val/loss={val/loss}"`; `{}` matches anything. Default: none."""
    csv: LongText | None = None
    """A table with a header that each trial writes: `"{folder}/metrics.csv"`. Default: none."""
    jsonl: LongText | None = None
    """A file of one JSON object per line that each trial writes. Default: none."""
    names: dict[Name, Name] = {}
    """The script's names of metrics and of the step, with ours: `{ eval_loss = "val/loss", global_step = "step" }`."""


class TrainerTable(_Table):
    """Your own training script instead of our engine, see [its guide](trainers.md). `[workload]` names are free."""

    command: Annotated[list[LongText], Field(min_length=1, max_length=1000)]
    """The program and its arguments; `{learning_rate}`, `{batch_size}` and others become the trial's values."""
    resume: bool = False
    """The script can continue from its own checkpoint folder."""
    workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The number of trials trained at once. Default: one per device, else per accelerator or core."""
    devices: Annotated[list[Name], Field(max_length=10_000)] = []
    """The device of each worker, passed to the script: `["cuda:0", "cuda:1"]`."""
    timeout_s: Annotated[float, Field(gt=0, le=1e7, strict=False)] = 3600.0
    """The longest time between two measurements; a script that takes longer is killed."""
    grace_s: Annotated[float, Field(gt=0, le=3600, strict=False)] = 10.0
    """The time that a script has to save after it is asked to stop; then it is killed."""
    max_paused: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """The most paused trials in memory on each worker. Default: 16, fewer if large; 1 with devices."""
    num_train_examples: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """The size of the training set, for budgets in epochs and the batch size `"full"`. Default: unknown."""
    env: dict[Name, LongText] = {}
    """Environment variables of the script, with placeholders: `{ CUDA_VISIBLE_DEVICES = "{device}" }`. Not stored."""
    pass_env: Annotated[list[Name], Field(max_length=1000)] = []
    """Variables of your environment that the script needs: `["WANDB_API_KEY"]`. Their values are never stored."""
    reports: ReportsTable | None = None
    """The output to read measurements from, for a script that does not report by the protocol."""


class SlurmTable(_Table):
    """The resources that each worker requests with `--runner slurm`, see [its guide](many-machines.md)."""

    partition: Name | None = None
    """The partition. Default: the cluster's own, here and below."""
    account: Name | None = None
    """The account to charge."""
    qos: Name | None = None
    """The quality of service."""
    time: Annotated[int, Field(ge=1, le=10_000_000)] | Name | None = None
    """The time limit as SLURM writes it: minutes, or `"hours:minutes:seconds"`, `"days-hours"`."""
    gpus: Annotated[int, Field(ge=1, le=1000)] | Name | None = None
    """The GPUs of a worker: a number, or kind and number, `"a100:1"`."""
    cpus: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """The cores of a worker."""
    memory: Name | None = None
    """The memory of a worker: `"16G"`."""
    save_s: Annotated[int, Field(ge=10, le=3600)] = 120
    """Seconds before the time limit at which a worker saves its trials and is queued again."""
    options: Annotated[list[Name], Field(max_length=100)] = []
    """Other options of sbatch, each one word: `["--constraint=a100", "--exclusive"]`."""


class RayTable(_Table):
    """The resources that each worker takes with `--runner ray`, see [its guide](many-machines.md)."""

    num_cpus: Annotated[float, Field(ge=0, le=100_000, strict=False)] | None = None
    """Cores. Default: one for each device of a trial; 1 if accelerators or resources are taken."""
    num_gpus: Annotated[float, Field(ge=0, le=100_000, strict=False)] | None = None
    """GPUs; a part of one lets workers share it. Default: one for each device of a trial if nodes have GPUs."""
    resources: dict[Name, Annotated[float, Field(gt=0, le=1e12, strict=False)]] = {}
    """Other resources that nodes declare, by name: `{ TPU = 4 }`."""
    checkpoints: Name | None = None
    """A remote path for the states of running trials, `s3://…` or `gs://…`. Default: the records folder."""


class RunTable(_Table):
    """The devices that train each trial, see [the guide](distributed.md). Changes results by rounding only."""

    devices_per_trial: Annotated[int, Field(ge=1, le=100_000)] | Literal["all"] = 1
    """The number of devices of one host that train a trial together. One trial per device is the cheapest."""
    exact: bool = False
    """Add gradients in a fixed order, for the same bits on any number of devices; costs time."""
    track: str | list[str] = []
    """The tools that trials are mirrored to, each as `"NAME:TARGET"`, see [the guide](trackers.md)."""
    slurm: SlurmTable = SlurmTable()
    """The resources that each worker requests with `--runner slurm`."""
    ray: RayTable = RayTable()
    """The resources that each worker takes with `--runner ray`."""


class AdaptiveTable(_Table):
    """The aim of an experiment whose batch sizes or trials are `"auto"`, see [its guide](adaptive.md)."""

    quantity: Annotated[Aim, Field(strict=False), WithJsonSchema({"type": "string", "enum": list(Aim)})] = Aim.CRITICAL
    """The batch size that is measured, or the machines that are chosen."""
    factor: Annotated[float, Field(gt=1, le=1000, strict=False)] | None = None
    """The run ends at a narrower interval, or if no configuration may be better by more. Default: 2, or 1.1."""
    smallest: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)] = 1
    """The smallest batch size that may be chosen; all others are doublings of it."""
    largest: Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)] | None = None
    """The largest batch size that may be chosen. Default: the training set."""
    first_trials: Annotated[int, Field(ge=2, le=1_000_000)] = FIRST_TRIALS
    """The trials of every search at first, with `trials = "auto"`."""
    most_trials: Annotated[int, Field(ge=2, le=1_000_000)] = MOST_TRIALS
    """The most trials of a search, with `trials = "auto"`."""
    max_trial_steps: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """The budget in optimizer steps of all trials together. Give one budget at most. Default: none."""
    max_examples: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """The budget in training examples of all trials together. Default: none."""
    max_hours: Annotated[float, Field(gt=0, le=1e6, strict=False)] | None = None
    """The budget in hours of training, summed over all trials. Default: none."""
    machines: Name | None = None
    """For a configuration: the file of machines with prices, as `plan` takes it. Default: the shipped prices."""
    step_times: Name | list[Name] = []
    """For a configuration: files of step times, as `batchscale calibrate` writes them."""
    work: Name | None = None
    """For a configuration: a file of the work of a step, to estimate step times that were not measured."""


class ExperimentTable(_Table):
    """The experiment: workload, goal, batch sizes and number of trials."""

    workload: Annotated[WorkloadTable, BeforeValidator(_read_workload)]
    """The workload to train: a table, or the three names as one text, `"digits/fc_64/sgd"`."""
    goal: Annotated[Any, WithJsonSchema({"type": "string"})]
    """The goal to reach: a metric of `train`, `val` or `test`, `<` (or `>` for a metric to maximise), a number."""
    batch_sizes: Annotated[Any, WithJsonSchema({"type": "array", "items": {}})] = None
    """Numbers, ranges (`"1..4096"`: powers of two; `"2..8192 by 4"`), `"full"`; or `"16k tokens"`; or `"auto"`."""
    tokens_per_example: Annotated[int, Field(ge=1, le=MAX_TOKENS_PER_EXAMPLE)] | None = None
    """The tokens of an example, for a workload that does not state them. Default: as the workload states, or none."""
    trials: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = 100
    """The number of non-divergent trials of every search, or `"auto"`: as many as the aim of `[adaptive]` needs."""
    stop: StopName = StopRule.RACE
    """The end of a trial: at its budget, at the goal, or as soon as it can no longer be among the first to reach it."""
    finishers: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """The trials that must reach the goal before a race ends, at most `trials`. Five give the result an interval."""
    confirm: Annotated[int, Field(ge=0, le=1000)] = 0
    """The new seeds with which the best trials are trained again after the search; the curve then uses their median."""
    confirm_best: Annotated[int, Field(ge=1, le=100)] = 1
    """The number of best trials that `confirm` trains again; the one of the fewest median steps counts."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The seed of every random choice of the experiment."""
    metrics: list[Name] | None = None
    """The metrics to record; the goal's must be one of them. Default: all that the workload reports."""
    budget: BudgetTable = BudgetTable()
    """The longest training of a trial."""
    evaluation: EvaluationTable = EvaluationTable()
    """The steps at which trials are measured, and the examples."""
    averaging: AveragingTable | None = None
    """Measure averages of the weights."""
    branches: BranchesTable | None = None
    """Measure branches that anneal."""
    search: SearchTable = SearchTable()
    """The metaparameter search."""
    adaptive: AdaptiveTable | None = None
    """The aim of an experiment whose batch sizes or trials are chosen while it runs."""
    trainer: TrainerTable | None = None
    """Your own training script instead of our engine."""
    run: RunTable = RunTable()
    """The devices that train each trial."""


_REMOVED_KEYS = {
    "run.hosts_per_trial": (
        "with --cluster every trial is trained by all hosts, one trial after the other. To train several trials at "
        "once on many hosts, use --runner ray or --runner slurm: they place one trial per worker, with "
        "run.devices_per_trial devices each. Remove the key."
    ),
    "run.ray.data_from": (
        "workers do not copy data sets. Put the data in a folder that all nodes see and give it as --data-dir, or run "
        "'batchscale data get NAME' on each node once. Remove the key."
    ),
}
"""Keys of earlier versions, and what to do instead."""


def explain(error: ValidationError) -> str:
    """Describe one problem of the file: key, rule and value. Unknown keys come first: they cause others."""
    problems = error.errors(include_url=False)
    problem = next((item for item in problems if item["type"] == "extra_forbidden"), problems[0])
    path = _key_path(problem["loc"])
    key, value = one_line(".".join(path), 200), one_line(repr(problem["input"]))
    if key in _REMOVED_KEYS:
        return f"key '{key}' was removed: {_REMOVED_KEYS[key]}"
    if problem["type"] == "extra_forbidden" and path[-1] in ExperimentTable.model_fields:
        return f"key '{path[-1]}' must stand at the top of the file, before any [table]. Found '{key}'; move it up."
    if problem["type"] == "extra_forbidden":
        return f"unknown key '{key}'; {suggest_names(path[-1], _valid_keys(path[:-1]))}"
    if problem["type"] == "missing":
        return f"key '{key}' is required but missing. 'batchscale init' writes a commented example."
    rule = problem["msg"].removeprefix("Input ").removeprefix("Value error, ")
    return f"key '{key}' {rule}. Found {value}."


def _key_path(location: tuple[int | str, ...]) -> list[str]:
    """Return the keys of a problem, without the alternatives of a value that pydantic lists among them."""
    return [str(part) for part in location if not str(part).startswith(("constrained-", "literal[", "int", "float"))]


def _valid_keys(path: list[str]) -> list[str]:
    table: Any = ExperimentTable
    for part in path:
        annotation = table.model_fields[part].annotation
        table = next((kind for kind in get_args(annotation) if hasattr(kind, "model_fields")), annotation)
    return list(table.model_fields)
