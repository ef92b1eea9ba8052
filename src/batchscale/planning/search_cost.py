"""What measuring a curve took: the seconds of all its trials, as the records have them."""

import math

from batchscale.errors import PlanningError
from batchscale.planning.step_times import trial_facts
from batchscale.records.frames import Records
from batchscale.spec import WorkloadName


def trial_seconds(records: Records, workload: WorkloadName) -> float:
    """The seconds that all trials of a workload trained, whatever became of them.

    Raises:
        PlanningError: the records do not say.
    """
    found = [trial_facts(extra) for extra in records.workload(workload).trials["extra"]]
    seconds = [facts.timing.total_s for facts in found if facts is not None and facts.timing is not None]
    known = [s for s in seconds if s is not None and math.isfinite(s) and s >= 0]
    if not known or sum(known) <= 0:
        raise PlanningError(f"The records of {workload} do not say how long their trials took; leave the search out.")
    return sum(known)
