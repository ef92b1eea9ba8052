"""Predictions by the noisy quadratic model: train the tuned trial to its goal, and measure curvature and noise there.

The measured spectrum is stored beside the records of the search, so that a repeated command measures nothing.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np

from batchscale.adaptive.preparation import Preparation
from batchscale.errors import AnalysisError
from batchscale.noisy_quadratic.measured import MeasuredSpectrum, SpectralMeasure
from batchscale.prediction.base_trial import BaseTrial
from batchscale.prediction.noisy_quadratic import ASSUMED, MEASURED, TunedPoint, noisy_quadratic_predictions
from batchscale.prediction.prediction import Prediction
from batchscale.records.output_file import write_output
from batchscale.spec.horizon_free import HALF_LIFE

FILE = "noisy_quadratic.json"
MOMENTUM = 0.9  # where the workload has none among its metaparameters


def predict_measured(preparation: Preparation) -> list[Prediction]:
    """Return the prediction with the measured spectrum.

    Raises:
        AnalysisError: The experiment has a script of the user's, or the state has no curvature.
    """
    return _predict(preparation, MEASURED)


def predict_assumed(preparation: Preparation) -> list[Prediction]:
    """Return the prediction with an assumed spectrum and the measured traces."""
    return _predict(preparation, ASSUMED)


def _predict(preparation: Preparation, method: str) -> list[Prediction]:
    plan = preparation.plan
    if plan.experiment.trainer is not None:
        raise AnalysisError(
            "The noisy quadratic model needs states of the built-in engine: a script's curvature cannot be measured."
        )
    base = preparation.base
    measured = _read(preparation, base)
    if measured is None:
        measured = _measure(preparation, base)
        _write(preparation, base, measured)
    momentum = float(base.parameters.get("momentum", MOMENTUM))
    optimizer = plan.experiment.workload.name.optimizer
    point = TunedPoint(optimizer, base.batch_size, base.steps, base.trial_steps + base.steps, momentum)
    return noisy_quadratic_predictions(measured, point, [method])


def _measure(preparation: Preparation, base: BaseTrial) -> MeasuredSpectrum:
    """Train the tuned trial again to its goal, and measure there."""
    from batchscale.training.settings import EngineSettings
    from batchscale.training.spectrum import measure_spectrum
    from batchscale.training.study_engine import StudyEngine, TrialTask
    from batchscale.workloads.registry import get_workload

    experiment, study = preparation.plan.experiment, preparation.plan.studies[0]
    workload = get_workload(experiment.workload, preparation.settings.run.data_dir)
    train_steps = max(study.train_steps, base.steps)
    alone = replace(
        study, batch_size=base.batch_size, train_steps=train_steps, evaluation_steps=(0,), half_lives=(), branches=None
    )
    engine = StudyEngine(workload, alone, experiment.evaluation, EngineSettings(population=1))
    parameters = {name: value for name, value in base.parameters.items() if name != HALF_LIFE}
    task = TrialTask(0, parameters, base.seed, 0)
    engine.advance([task])
    start = engine.state(0)
    progress = engine.advance([replace(task, until_step=base.steps)])[0]
    if progress.diverged_at is not None or progress.step < base.steps:
        raise AnalysisError(f"The tuned trial did not train to its goal a second time: it ended at {progress.step:,}.")
    return measure_spectrum(workload, start, engine.state(0))


def _identity(preparation: Preparation, base: BaseTrial) -> str:
    workload = preparation.plan.experiment.workload
    values = sorted(base.parameters.items())
    return repr((str(workload.name), workload.dataset_options, base.batch_size, values, base.seed, base.steps))


def _read(preparation: Preparation, base: BaseTrial) -> MeasuredSpectrum | None:
    """Return the stored spectrum of the same trial; None if there is none, or if it cannot be read."""
    try:
        stored = json.loads((preparation.folder / FILE).read_text(encoding="utf-8"))
        if stored["trial"] != _identity(preparation, base):
            return None
        return MeasuredSpectrum(
            _measure_of(stored["start"]),
            tuple(map(_measure_of, stored["noise"])),
            tuple(map(_measure_of, stored["density"])),
            *(int(stored[name]) for name in ("parameters", "products", "examples")),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(preparation: Preparation, base: BaseTrial, measured: MeasuredSpectrum) -> None:
    def plain(measure: SpectralMeasure) -> list[list[float]]:
        return [part.tolist() for part in measure]

    stored: dict[str, Any] = {
        "version": 1,
        "trial": _identity(preparation, base),
        "start": plain(measured.start),
        "noise": [plain(each) for each in measured.noise],
        "density": [plain(each) for each in measured.density],
        "parameters": measured.parameters,
        "products": measured.products,
        "examples": measured.examples,
    }
    preparation.folder.mkdir(parents=True, exist_ok=True)
    write_output(preparation.folder / FILE, json.dumps(stored) + "\n")


def _measure_of(parts: list[list[float]]) -> SpectralMeasure:
    nodes, weights = (np.asarray(part, dtype=np.float64) for part in parts)
    return nodes, weights
