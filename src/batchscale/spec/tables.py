"""The tables and keys of an experiment file, typed: what may be written, and its default.

Owns the shape of the file only. What the text of a goal, a range of batch sizes or a search space means belongs to
the values themselves; ``file`` turns these tables into an Experiment. The text under each key is its description in
docs/experiment-file.md, which ``make pages`` writes.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from batchscale.spec.durations import MAX_MEASUREMENTS, MAX_STEPS
from batchscale.spec.experiment import DEFAULT_FILE_TIMEOUT_S, Algorithm, StopRule

Name = Annotated[str, Field(min_length=1, max_length=500)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
StopName = Annotated[StopRule, Field(strict=False), WithJsonSchema({"type": "string", "enum": list(StopRule)})]
ExampleCount = Annotated[int, Field(ge=0, le=2**40)] | Literal["all"]
Text = Annotated[str, Field(max_length=10_000)]
SpaceTable = dict[str, dict[str, Any]]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class WorkloadTable(_Table):
    """What is trained, as a table or as `workload = "dataset/model/optimizer"`. `batchscale workloads` lists the names.

    [Workloads](workloads.md) and [Data sets](data.md) have the options.
    """

    dataset: Name
    """The data set."""
    model: Name
    """The model."""
    optimizer: Name
    """The optimizer."""
    schedule: Name | None = None
    """The learning rate schedule. Left out: the model's own."""
    file: Name | None = None
    """A Python file, relative to this one, that registers a workload of your own. Left out: none."""
    file_timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=False)] = DEFAULT_FILE_TIMEOUT_S
    """How long that file may take to be loaded and checked, its data included, before anything is trained."""
    dataset_options: dict[str, Any] = {}
    """Options of the data set: numbers, texts, true or false, and lists of these."""
    model_options: dict[str, Any] = {}
    """Options of the model."""
    optimizer_options: dict[str, Any] = {}
    """Options of the optimizer and of its schedule."""


def _read_workload(value: object) -> object:
    """The table, or the one that a text stands for."""
    if isinstance(value, dict | WorkloadTable):
        return value
    parts = value.strip("/").rsplit("/", 2) if isinstance(value, str) else ()
    if len(parts) != 3:
        raise ValueError('is a table of dataset, model and optimizer, or a text "DATASET/MODEL/OPTIMIZER"')
    return dict(zip(("dataset", "model", "optimizer"), parts, strict=True))


class BudgetTable(_Table):
    """The longest a trial may train: one of steps, examples and epochs."""

    steps: Steps | None = None
    """Optimizer steps."""
    examples: Steps | None = None
    """Training examples; the steps are rounded up."""
    epochs: Annotated[float, Field(gt=0, strict=False)] | None = None
    """Passes over the training set; the steps are rounded up. What is used when none of the three is given."""
    at_least_steps: Steps | None = None
    """The least budget at any batch size, because large batches make few steps in an epoch. 1 if a budget is given."""
    per_batch_size: dict[str, Annotated[float, Field(gt=0, strict=False)]] = {}
    """Another budget at single batch sizes of the experiment, in the same unit: `{ 64 = 20 }`."""


class ExamplesTable(_Table):
    """How many examples of each split are measured; 0 leaves the split out."""

    train: ExampleCount = 1000
    """Of the training set."""
    val: ExampleCount = "all"
    """Of the validation set."""
    test: ExampleCount = 0
    """Of the test set."""


class EvaluationTable(_Table):
    """When trials are measured, and on what. All trials of a study are measured at the same steps."""

    every: Steps | None = None
    """Measure every so many steps; not together with `count` or `spacing`. Left out: `count` times."""
    count: Annotated[int, Field(ge=1, le=MAX_MEASUREMENTS)] | None = None
    """Measure so many times."""
    spacing: Literal["even", "log"] | None = None
    """How the `count` measurements lie over a trial: evenly, or evenly in the logarithm of the step."""
    start: Annotated[float, Field(ge=0, lt=1, strict=False)] = 0.0
    """The share of the step budget before which nothing is measured but step 0."""
    examples: ExamplesTable = ExamplesTable()
    """How many examples of each split are measured."""


class SearchTable(_Table):
    """The metaparameters and how they are searched."""

    algorithm: Literal["halton", "sobol"] = Algorithm.HALTON.value
    """The low-discrepancy sequence that points are drawn from."""
    paired: bool = False
    """Whether every batch size gets the same points of the unit cube."""
    edge_margin: Annotated[float, Field(ge=0, lt=0.5, strict=False)] = 0.05
    """How near an end of its range, as a share of it, the best of many trials calls for another search; 0: never."""
    repeats: Annotated[int, Field(ge=0, le=100)] = 2
    """How often a study may be searched again in a moved space."""
    max_attempts: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """The trials that a search may start to get its non-divergent ones, not below `trials`. Left out: 10 × `trials`."""
    space: SpaceTable = {}
    """Ranges by metaparameter, in place of the optimizer's own."""
    fixed: dict[str, Annotated[float, Field(strict=False)]] = {}
    """Metaparameters held at a value instead of searched: `{ momentum = 0.9 }`."""
    per_batch_size: dict[str, SpaceTable] = {}
    """Other ranges at single batch sizes of the experiment: `[search.per_batch_size.64]`."""


class ReportsTable(_Table):
    """How a script's measurements are read that does not report by the protocol: one of pattern, csv and jsonl."""

    pattern: Text | None = None
    """A printed line: `"step={step} val/loss={val/loss}"`; `{}` stands for anything. Left out: none."""
    csv: Text | None = None
    """A table with a header that each trial writes: `"{folder}/metrics.csv"`. Left out: none."""
    jsonl: Text | None = None
    """A file of one JSON object per line that each trial writes. Left out: none."""
    names: dict[Name, Name] = {}
    """The script's names of metrics and of the step, and ours: `{ eval_loss = "val/loss", global_step = "step" }`."""


class TrainerTable(_Table):
    """Your own training script instead of our engine: [Any trainer](trainers.md). `[workload]` names are free then."""

    command: Annotated[list[Text], Field(min_length=1, max_length=1000)]
    """The program and its arguments; `{learning_rate}`, `{batch_size}` and others stand for what a trial has."""
    resume: bool = False
    """Whether the script can go on from its own checkpoint folder."""
    workers: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """How many trials are trained at once. Left out: one per device, else per accelerator or core."""
    devices: Annotated[list[Name], Field(max_length=10_000)] = []
    """What each worker's trials train on, told to the script: `["cuda:0", "cuda:1"]`."""
    timeout_s: Annotated[float, Field(gt=0, le=1e7, strict=False)] = 3600.0
    """The longest between two measurements; a script that takes longer is killed."""
    grace_s: Annotated[float, Field(gt=0, le=3600, strict=False)] = 10.0
    """The time that a script has to save when it is asked to leave; then it is killed."""
    max_paused: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """How many paused trials may wait in memory on each worker. Left out: 16, fewer if large; 1 with devices."""
    num_train_examples: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """The size of the training set, for budgets in epochs and the batch size `"full"`. Left out: not known."""
    env: dict[Name, Text] = {}
    """Environment variables of the script, with placeholders: `{ CUDA_VISIBLE_DEVICES = "{device}" }`."""
    reports: ReportsTable | None = None
    """How measurements are read of a script that does not report them by the protocol."""


class SlurmTable(_Table):
    """What each worker asks of SLURM with `--runner slurm`: [Many machines](many-machines.md)."""

    partition: Name | None = None
    """The partition. Left out: the cluster's default, here as below."""
    account: Name | None = None
    """The account that is charged."""
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
    """How long before the time limit a worker saves its trials and is put in the queue again."""
    options: Annotated[list[Name], Field(max_length=100)] = []
    """Other options of sbatch, each one word: `["--constraint=a100", "--exclusive"]`."""


class RayTable(_Table):
    """What each worker takes of its node with `--runner ray`: [Many machines](many-machines.md)."""

    num_cpus: Annotated[float, Field(ge=0, le=100_000, strict=False)] | None = None
    """Cores. Left out: one for each device of a trial; 1 where accelerators or resources are taken."""
    num_gpus: Annotated[float, Field(ge=0, le=100_000, strict=False)] | None = None
    """GPUs; a part of one lets workers share it. Left out: one for each device of a trial where nodes have GPUs."""
    resources: dict[Name, Annotated[float, Field(gt=0, le=1e12, strict=False)]] = {}
    """Other resources that nodes declare, by name: `{ TPU = 4 }`."""
    checkpoints: Name | None = None
    """A remote path for the states of running trials, `s3://…` or `gs://…`. Left out: the records folder."""
    data_from: Name | None = None
    """Where a node without the data set takes it: a folder or an archive that it sees, or a remote archive."""


class RunTable(_Table):
    """What each trial is trained on: [Several devices and hosts](distributed.md). Changes no result but by rounding."""

    devices_per_trial: Annotated[int, Field(ge=1, le=100_000)] | Literal["all"] = 1
    """The devices of one host that train a trial together. One trial per device is the cheapest parallelism."""
    hosts_per_trial: Annotated[int, Field(ge=1, le=100_000)] | Literal["all"] = "all"
    """The hosts of a cluster that train a trial together: other groups of as many train other trials meanwhile."""
    exact: bool = False
    """Whether gradients are added in a fixed order, for the same bits on any number of devices; costs time."""
    slurm: SlurmTable = SlurmTable()
    """What each worker asks of SLURM."""
    ray: RayTable = RayTable()
    """What each worker takes of its node with `--runner ray`."""


class ExperimentTable(_Table):
    """What is run and how long the search is."""

    workload: Annotated[WorkloadTable, BeforeValidator(_read_workload)]
    """What is trained: a table, or the three names as one text, `"digits/fc_64/sgd"`."""
    goal: Annotated[Any, WithJsonSchema({"type": "string"})]
    """What to reach: a metric of `train`, `val` or `test`, `<` (or `>` for a metric to maximise), a number."""
    batch_sizes: Annotated[Any, WithJsonSchema({"type": "array", "items": {}})] = None
    """Whole numbers, ranges (`"1..4096"`: powers of two; `"2..8192 by 4"`), `"full"` for all examples; or one range."""
    trials: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    """The non-divergent trials of every search."""
    stop: StopName = StopRule.RACE
    """When a trial ends: at its budget, at the goal, or as soon as it can no longer be among the first to reach it."""
    finishers: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """How many trials must have reached the goal before a race ends; at most `trials`. Five tell how sure it is."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """What every random choice of the experiment follows from."""
    metrics: list[Name] | None = None
    """The metrics to record; the goal's is one of them. Left out: all that the workload reports."""
    budget: BudgetTable = BudgetTable()
    """The longest a trial may train."""
    evaluation: EvaluationTable = EvaluationTable()
    """When trials are measured, and on what."""
    search: SearchTable = SearchTable()
    """The metaparameters and how they are searched."""
    trainer: TrainerTable | None = None
    """Your own training script, in place of our engine."""
    run: RunTable = RunTable()
    """What each trial is trained on."""
