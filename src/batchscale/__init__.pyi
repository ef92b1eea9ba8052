from batchscale.api.curve import Curve as Curve
from batchscale.api.inputs import analyze as analyze
from batchscale.api.inputs import fit as fit
from batchscale.api.inputs import read as read
from batchscale.api.measuring import measure as measure
from batchscale.api.plans import TrainingPlan as TrainingPlan
from batchscale.api.plans import plan as plan
from batchscale.api.ranges import choice as choice
from batchscale.api.ranges import linear as linear
from batchscale.api.ranges import log as log
from batchscale.api.ranges import reverse_log as reverse_log
from batchscale.errors import BatchscaleError as BatchscaleError
from batchscale.spec.experiment import Experiment as Experiment
from batchscale.spec.goal import Goal as Goal
from batchscale.spec.space import SearchSpace as SearchSpace
from batchscale.spec.workload_name import WorkloadName as WorkloadName
from batchscale.workloads.user.registration import register_workload as register_workload

__version__: str
