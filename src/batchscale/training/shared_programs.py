"""What all studies of a workload share in a process: data on the devices, and the programs that know no batch size.

A second study of the same workload then traces and compiles only its training loop.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.training.branches import make_fork, make_join, on_trunk
from batchscale.training.compilation import compile_in_turn
from batchscale.training.devices import choose_devices
from batchscale.training.evaluation import Evaluate, EvaluationSets, make_evaluate
from batchscale.training.loop import StepConfig, make_enter
from batchscale.training.measured_loop import MeasuredAdvance, make_measured_advance
from batchscale.training.settings import EngineSettings
from batchscale.training.sizes import MAX_EVALUATION_BATCH, example_bytes, memory_bytes
from batchscale.training.state import DIVERGENCE_FACTOR, TrialState, init_trial, take_member
from batchscale.training.training_data import find_fed_split, make_probe, place_training_data
from batchscale.workloads.tunables import NEUTRAL
from batchscale.workloads.workload import Workload


class SharedPrograms:
    """The data of a workload on the devices, and its programs: init, evaluate, and those that move a trial's state.

    ``fed`` is the training set if its batches are read on the host; then ``data`` is empty. ``names`` are the
    metaparameters that are compiled in, ``template`` the state of a trial.
    """

    def __init__(self, workload: Workload, study: Study, plan: EvaluationPlan, settings: EngineSettings) -> None:
        self._workload = workload
        self.devices = choose_devices(settings.devices, settings.exact)
        self.fed = find_fed_split(workload.dataset, self.devices, memory_bytes())
        self.data = {} if self.fed else place_training_data(workload.dataset, self.devices)
        self._probe = make_probe(workload.dataset)
        start = on_trunk if study.branches else lambda state: state
        self._init = jax.jit(
            lambda seed, metaparameters, probe: start(
                init_trial(workload, seed, metaparameters, probe, DIVERGENCE_FACTOR, len(study.half_lives))
            )
        )
        self.names = _used_names(workload, study)
        self.template = self.init(0, {name: workload.defaults[name] or 0.5 for name in self.names})
        self.example_bytes = example_bytes(workload, self._probe)
        largest = max(1, min(MAX_EVALUATION_BATCH, memory_bytes() // self.example_bytes))
        self.sets = EvaluationSets(workload, plan, largest, self.devices)
        self.enter, self.fork, self.join = make_enter(self.devices), make_fork(self.devices), make_join(self.devices)
        self.take: Callable[..., TrialState] = jax.jit(take_member)
        self._evaluate: dict[int, Evaluate] = {}
        self._measured_advances: dict[Any, MeasuredAdvance] = {}

    def init(self, seed: int, metaparameters: Mapping[str, float]) -> TrialState:
        """Return the state of a trial before its first step."""
        values = {name: np.float32(value) for name, value in metaparameters.items()}
        state: TrialState = self._init(np.uint32(seed % 2**32), values, self._probe)
        return state

    def evaluate_program(self, slots: int) -> Evaluate:
        """Return the program that evaluates a population of this many slots."""
        if slots not in self._evaluate:
            self._evaluate[slots] = make_evaluate(self._workload, slots, self.devices)
        return self._evaluate[slots]

    def measured_advance(self, config: StepConfig, slots: int, goal: Goal, several_sizes: bool) -> MeasuredAdvance:
        """Return the program that trains and measures; one of several batch sizes is made once for all of them."""
        make = partial(make_measured_advance, self._workload, config, slots, self.devices, goal, several_sizes)
        if not several_sizes:
            return make()
        key = replace(config, batch_size=0), slots, goal.metric, goal.maximize
        if key not in self._measured_advances:
            self._measured_advances[key] = compile_in_turn(make())
        return self._measured_advances[key]


_last: tuple[Workload, Any, SharedPrograms] | None = None


def share_programs(workload: Workload, study: Study, plan: EvaluationPlan, settings: EngineSettings) -> SharedPrograms:
    """Return what studies of the workload share: that of the last call, if it was for the same."""
    global _last
    names = _used_names(workload, study)
    facts = (plan, settings.devices, settings.exact, names, len(study.half_lives), study.branches is None)
    if _last is None or _last[0] is not workload or _last[1] != facts:
        _last = None  # its data goes before that of the next workload comes
        _last = (workload, facts, SharedPrograms(workload, study, plan, settings))
    return _last[2]


def _used_names(workload: Workload, study: Study) -> tuple[str, ...]:
    """Return the metaparameters that are compiled in: optional ones only if the study searches or fixes them.

    A penalty of 0 or a clip norm of infinity changes nothing, but costs several passes over all gradients.
    """
    used = {*study.space.names, *study.fixed}
    return tuple(sorted(name for name in workload.defaults if name not in NEUTRAL or name in used))
