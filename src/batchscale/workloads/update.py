"""The whole update of a workload: L2 penalty, clipping, optimizer and schedule in one transformation."""

from collections.abc import Callable

import optax

from batchscale.workloads.optimizers import get_optimizer, regularize
from batchscale.workloads.schedules import make_schedule
from batchscale.workloads.tunables import Tuning
from batchscale.workloads.workload import Metaparameters


def make_update(tuning: Tuning) -> Callable[[Metaparameters], optax.GradientTransformation]:
    """The function from metaparameters to the update, to be called inside the compiled program."""
    schedule = make_schedule(tuning.schedule)
    optimizer = get_optimizer(tuning.optimizer.name)

    def update(values: Metaparameters) -> optax.GradientTransformation:
        return optax.chain(*regularize(values), optimizer.make(values, schedule))

    return update
