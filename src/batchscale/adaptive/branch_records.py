"""The records of branches: a study per batch size, a trial per branch.

A record has the batch size and the metaparameters that the branch was trained with; its step 0 is the state that it
left. The key ``branch`` of its ``metadata.json`` names the trunk, that state, the factors and the order of examples; by
it a repeated command finds the branch again.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchscale import __version__
from batchscale.prediction.base_trial import BaseTrial
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.measurements import Measurement
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.writer import StudyWriter
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace

BRANCH = "branch"
LEARNING_RATE = "learning_rate"


@dataclass(frozen=True)
class BranchGroup:
    """The branches that leave one state with the same factors.

    Attributes:
        state_step: The step of the trunk that they leave.
        factor: The batch size, as a multiple of the trunk's.
        exponent: The learning rate is the factor to this power times the trunk's.
        steps: The measured steps since the state, growing.
        orders: The numbers of their orders of examples.
    """

    state_step: int
    factor: int
    exponent: float
    steps: tuple[int, ...]
    orders: tuple[int, ...]

    @property
    def trial_steps(self) -> int:
        """The steps of all these branches together."""
        return len(self.orders) * self.steps[-1]


class BranchRecords:
    """The recorded branches of one trunk in a tree; a context manager, which holds the locks of its studies."""

    def __init__(self, root: Path, study: Study, trunk: BaseTrial) -> None:
        self._root, self._study, self._trunk = root, study, trunk
        self._writers: dict[int, StudyWriter] = {}
        self._trial_ids: dict[str, int] = {}

    def has(self, group: BranchGroup) -> bool:
        """Return True if all branches of a group are recorded."""
        self._open(group)
        return all(self._key(group, order) in self._trial_ids for order in group.orders)

    def add(self, group: BranchGroup, order: int, rows: Sequence[Mapping[str, float] | None]) -> None:
        """Record a branch by its rows at the group's steps; None from where it diverged."""
        writer = self._open(group)
        measured = [Measurement(step, row) for step, row in zip(group.steps, rows, strict=True) if row is not None]
        diverged = len(measured) < len(rows)
        key = self._key(group, order)
        record = TrialRecord(
            max([0, *writer.committed_trials()]) + 1,
            Status.INFEASIBLE if diverged else Status.COMPLETE,
            group.steps[-1],
            self._parameters(group),
            TrialMetadata(seed=self._trunk.seed, stop_reason="diverged" if diverged else "budget"),
            {BRANCH: json.loads(key)},
        )
        writer.commit(record, measured)
        self._trial_ids[key] = record.trial_id

    def read(self, group: BranchGroup, order: int, metric: str) -> list[float]:
        """Return a metric of a recorded branch at the group's steps, infinite from where it diverged."""
        table = self._open(group).read_measurements(self._trial_ids[self._key(group, order)])
        cells = table.columns[table.metrics.index(metric)] if metric in table.metrics else []
        column = dict(zip(table.steps, cells, strict=False))
        values = [column.get(step) for step in group.steps]
        return [math.inf if value is None or not math.isfinite(value) else value for value in values]

    def _key(self, group: BranchGroup, order: int) -> str:
        trunk = self._trunk
        values = {
            "batch_size": trunk.batch_size,
            "parameters": dict(trunk.parameters),
            "seed": trunk.seed,
            "state_step": group.state_step,
            "factor": group.factor,
            "rate_exponent": group.exponent,
            "steps": group.steps,
            "order": order,
        }
        return json.dumps(values, sort_keys=True)

    def _parameters(self, group: BranchGroup) -> dict[str, float]:
        rate = self._trunk.parameters[LEARNING_RATE] * group.factor**group.exponent
        return {**self._trunk.parameters, LEARNING_RATE: rate}

    def _open(self, group: BranchGroup) -> StudyWriter:
        size = group.factor * self._trunk.batch_size
        if size not in self._writers:
            study = self._study
            configs = tuple(
                ParameterConfig(name, ParameterType.DISCRETE, feasible_points=(value,))
                for name, value in self._parameters(group).items()
            )
            metadata = StudyMetadata(
                code_version=__version__,
                seed=self._trunk.seed,
                num_train_examples=study.num_train_examples,
                tokens_per_example=study.tokens_per_example,
            )
            record = StudyRecord(study.workload, size, group.steps[-1], True, SearchSpace(configs), metadata)
            writer = self._writers[size] = open_study(self._root, record)
            for trial_id, trial in writer.committed_trials().items():
                self._trial_ids[json.dumps(trial.extra.get(BRANCH), sort_keys=True)] = trial_id
        return self._writers[size]

    def __enter__(self) -> "BranchRecords":
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()
