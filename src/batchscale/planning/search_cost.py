"""What measuring a curve took: the seconds of all its trials, as the records have them."""

from batchscale.errors import PlanningError
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA
from batchscale.spec.workload_name import WorkloadName


def trial_seconds(records: Records, workload: WorkloadName) -> float:
    """The seconds that all trials of a workload trained, whatever became of them.

    Raises:
        PlanningError: the records do not say.
    """
    seconds = records.workload(workload).trials[METADATA].struct.field("total_s")
    total = float(seconds.filter(seconds > 0).sum())
    if total <= 0:
        raise PlanningError(f"The records of {workload} do not say how long their trials took; leave the search out.")
    return total
