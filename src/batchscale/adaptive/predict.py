"""Predictions for an experiment: each method trains the little that it needs, stored as records, and reads it.

`predict` is the only way in. The cost of a prediction counts everything that its method trained, the search for the
tuned trial included, as if it were the only method: what two methods share is trained once.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from batchscale.adaptive.branched import predict_branched
from batchscale.adaptive.easier_goals import predict_easier_goals
from batchscale.adaptive.noise_scale import METHOD as NOISE_SCALE
from batchscale.adaptive.noise_scale import predict_noise_scale, read_noise_scale
from batchscale.adaptive.noisy_quadratic import predict_assumed, predict_measured
from batchscale.adaptive.preparation import PredictSettings, Preparation
from batchscale.adaptive.stored_predictions import write_predictions
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.units import unit_of
from batchscale.atlas.curve import model_kind
from batchscale.atlas.similar import OwnCurve
from batchscale.atlas.table import read_atlas
from batchscale.errors import AnalysisError, SpecError, UnknownNameError, one_line, suggest_names
from batchscale.prediction.branched import METHOD as BRANCHED
from batchscale.prediction.easier_goals import METHOD as EASIER_GOALS
from batchscale.prediction.easier_goals import read_easier_goals
from batchscale.prediction.noisy_quadratic import ASSUMED, MEASURED
from batchscale.prediction.prediction import Prediction, refuse_vague
from batchscale.prediction.public import ATLAS, LAWS, atlas_prediction, law_predictions
from batchscale.records.frames import Records
from batchscale.run.signals import StopFlag
from batchscale.run.status import RunStatus
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Plan
from batchscale.spec.workload_name import WorkloadName

Method = Callable[[Preparation], list[Prediction]]


def predict(
    plan: Plan,
    folder: Path,
    methods: Sequence[str] = (),
    settings: PredictSettings | None = None,
    show: Callable[[RunStatus], None] = lambda _status: None,
    stop: StopFlag | None = None,
) -> list[Prediction]:
    """Return the predictions of the methods, in their order; a method that cannot predict gives its reason.

    Args:
        plan: The plan of the experiment; its batch sizes bound what is trained.
        folder: The folder of the records of everything that is trained; made if need be, continued if it is there.
        methods: Names of `METHODS`; empty: all.
        settings: Where and how to train.
        show: Called with the status of each run.
        stop: A flag that others set; without one, signals do.

    Raises:
        UnknownNameError: There is no such method.
        RunError: The folder belongs to another experiment, or trials cannot be trained at all.
        KeyboardInterrupt: Training was stopped; the same call continues it.
    """
    names = check_methods(methods)
    preparation = Preparation(plan, folder, settings or PredictSettings(), show, stop)
    predictions: list[Prediction] = []
    for name in names:
        try:
            predictions += map(refuse_vague, METHODS[name](preparation))
        except AnalysisError as error:
            predictions.append(Prediction(name, "critical_batch_size", Estimate(), 0, 0, "", str(error)))
    if folder.is_dir():  # something was trained
        write_predictions(folder, plan.experiment, predictions)
    return predictions


def predict_from_records(
    records: Records, name: WorkloadName, goal: Goal, methods: Sequence[str] = ()
) -> list[Prediction]:
    """Return the predictions that need no training, from records of a study, finished or not.

    Args:
        records: Of the workload, and perhaps others.
        name: The workload.
        goal: The asked goal; at least one trial must have reached it.
        methods: Names of `METHODS`; empty: those that train nothing.

    Raises:
        SpecError: A method must train, which needs an experiment.
        AnalysisError: The noise scale is asked for, but no gradient noise was recorded.
    """
    names = check_methods(methods) if methods else (ATLAS, EASIER_GOALS, NOISE_SCALE)
    for method in names:
        if method not in (ATLAS, EASIER_GOALS, NOISE_SCALE):
            raise SpecError(
                f"From records alone, a method must be {ATLAS}, {EASIER_GOALS} or {NOISE_SCALE}. Found '{method}'; "
                "give the experiment file to train for others, with --tuned RECORDS if you like."
            )
    predictions = []
    if ATLAS in names:
        unit = unit_of(records.workload(name))
        predictions.append(atlas_prediction(_own_curve(name), read_atlas(), unit.tokens_per_example))
    if EASIER_GOALS in names:
        predictions.append(read_easier_goals(records, name, goal))
    if NOISE_SCALE in names:
        predictions += read_noise_scale(records, name, goal, required=NOISE_SCALE in methods)
    return predictions


def check_methods(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the methods, all if none is given; UnknownNameError with the nearest ones for another."""
    for name in names:
        if name not in METHODS:
            raise UnknownNameError(
                f"A method must be one of {', '.join(METHODS)}. Found '{one_line(name)}'; "
                f"{suggest_names(name, METHODS)}"
            )
    return tuple(dict.fromkeys(names)) or tuple(METHODS)


def _atlas(preparation: Preparation) -> list[Prediction]:
    study = preparation.plan.studies[0]
    return [atlas_prediction(_own_curve(study.workload), read_atlas(), study.tokens_per_example)]


def _published_laws(preparation: Preparation) -> list[Prediction]:
    study = preparation.plan.studies[0]
    tokens = study.tokens_per_example
    planned = tokens and float(study.train_steps * study.batch_size * tokens)
    return law_predictions(_own_curve(study.workload).kind, planned, tokens)


def _own_curve(name: WorkloadName) -> OwnCurve:
    return OwnCurve(name.dataset, name.model, name.optimizer, model_kind(name.model))


METHODS: Mapping[str, Method] = {
    ATLAS: _atlas,
    LAWS: _published_laws,
    EASIER_GOALS: predict_easier_goals,
    BRANCHED: predict_branched,
    NOISE_SCALE: predict_noise_scale,
    MEASURED: predict_measured,
    ASSUMED: predict_assumed,
}
