"""The sources of the atlas: licence, date, attribution, and what each can and cannot show."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class PublicSource:
    """A source of curves.

    Attributes:
        name: The key of the column ``source``.
        title: The name in texts.
        address: The place of the published numbers.
        licence: The licence of the numbers.
        date: The day or year of the version that was read.
        credit: The authors to name.
        tuning: What was tuned at each batch size.
        shows: What its curves can tell.
        limits: What they cannot tell.
    """

    name: str
    title: str
    address: str
    licence: str
    date: str
    credit: str
    tuning: str
    shows: str
    limits: str


_ALL = (
    PublicSource(
        "paper",
        "Shallue et al. 2019",
        "JMLR 20(112), the authors' public notebook",
        "CC-BY-4.0 (paper)",
        "2019",
        "Shallue, Lee, Antognini, Sohl-Dickstein, Frostig and Dahl, Measuring the Effects of Data Parallelism"
        " on Neural "
        "Network Training",
        "learning rate, momentum and schedule, anew at every batch size (100 trials, 50 for some)",
        "steps to a validation goal with everything tuned anew: the fairest curves there are",
        "points are read off figures (0.1 % at worst); one number per size without repeats; steps are multiples of the "
        "evaluation interval; Figures 3 and 5 are relative to one batch size",
    ),
    PublicSource(
        "mlperf",
        "MLPerf reference convergence points",
        "github.com/mlcommons/logging, mlperf_logging/rcp_checker",
        "Apache-2.0",
        "2026-07-29",
        "MLCommons and the submitters of the reference runs",
        "by the benchmark's owners and submitters, by hand, with few metaparameters free",
        "many repeated runs of large models, up to 405 billion parameters, at the sizes that submitters use",
        "tuned by others and to unknown depth; rounded up to the next evaluation; only sizes of interest to "
        "submitters, so "
        "small sizes are missing and B_opt cannot be seen; the column 'epochs' has samples or tokens for some"
        " benchmarks "
        "(corrected here)",
    ),
    PublicSource(
        "zeus",
        "Zeus",
        "github.com/ml-energy/zeus, examples/research_reproducibility/zeus_nsdi23/trace/summary_train.csv",
        "Apache-2.0",
        "2026-08-20",
        "You, Chung and Chowdhury, Zeus: Understanding and Optimizing GPU Energy Consumption of DNN Training,"
        " NSDI 2023",
        "nothing: the learning rate follows a rule (fixed, or by the square root of the batch size)",
        "epochs to a family of goals from the same runs, at many sizes",
        "a poor learning rate at some size looks like poor scaling; rounded up to whole epochs; runs stop at "
        "a limit of epochs",
    ),
    PublicSource(
        "ddsp",
        "Distributed training of an audio autoencoder",
        "the design document that came with this project",
        "published with this project (Apache-2.0)",
        "2020",
        "the authors of the design document",
        "learning rate, two or three values at each batch size",
        "steps to a loss with failed runs counted, on real machines with times and costs",
        "few runs a size, several learning rates mixed; runs that failed are left out of the mean",
    ),
    PublicSource(
        "step_law",
        "Step Law (via ScaleBench)",
        "github.com/PlanarG/active-sl, benchmark/dataset, lr_bsz_scaling_law",
        "CC-BY-4.0",
        "2025",
        "Li et al., Predictable Scale: Part I, Step Law, arXiv 2503.04715 (runs); ScaleBench, PlanarG/active-"
        "sl (the table)",
        "learning rate on a grid of factors of 1.41, at every batch size and budget",
        "final losses of dense language models over batch size, learning rate, tokens and parameters: B_opt "
        "at fixed tokens",
        "a curve to a loss is interpolated between token budgets, each a run of its own with its own "
        "schedule; only the "
        "learning rate was tuned; no repeats, losses differ by 0.003 between neighbours",
    ),
    PublicSource(
        "nqs",
        "Noisy Quadratic System",
        "github.com/chuningxdy/Noisy-Quadratic-System, dataset.csv",
        "MIT",
        "2026",
        "Li and Maddison 2026, arXiv 2605.09154",
        "not stated in the data",
        "losses of language models at fixed sequences over a factor of 500 in batch size: the far side of B_crit",
        "a curve to a loss is interpolated between two or three budgets; sequence length not stated, so batch"
        " sizes are in "
        "sequences",
    ),
    PublicSource(
        "batchscale",
        "Our reproduction of Figure 3d",
        "examples/mnist_fc_records in this project, docs/reproduction.md",
        "Apache-2.0",
        "2026",
        "the batchscale project",
        "learning rate (and momentum), anew at every batch size (20 to 50 trials)",
        "whole searches with all trials: intervals come from the trials",
        "small networks on MNIST only",
    ),
    PublicSource(
        "own",
        "Your own curves",
        "added with 'batchscale atlas add'",
        "yours",
        "",
        "",
        "as you measured them",
        "your workloads beside the public ones",
        "only on this machine",
    ),
)
SOURCES: Mapping[str, PublicSource] = {source.name: source for source in _ALL}
