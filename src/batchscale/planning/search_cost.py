"""What measuring a curve took: the seconds of all its trials, as the records have them."""

import math

from batchscale.errors import PlanningError
from batchscale.records.frames import Records
from batchscale.records.own_facts import own_facts
from batchscale.spec import WorkloadName


def trial_seconds(records: Records, workload: WorkloadName) -> float:
    """The seconds that all trials of a workload trained, whatever became of them.

    Raises:
        PlanningError: the records do not say.
    """
    timings = [own_facts(extra).get("timing") for extra in records.workload(workload).trials["extra"]]
    seconds = [timing.get("seconds") for timing in timings if isinstance(timing, dict)]
    known = [float(s) for s in seconds if isinstance(s, int | float) and math.isfinite(s) and s >= 0]
    if not known or sum(known) <= 0:
        raise PlanningError(f"The records of {workload} do not say how long their trials took; leave the search out.")
    return sum(known)
