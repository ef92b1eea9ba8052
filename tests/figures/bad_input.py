"""Records that lack something, by the name of what they lack: every chart and the report must still come out."""

from collections.abc import Callable, Mapping
from math import nan

from made_records import METRIC, SPACE, WORKLOAD, MadeStudy, MadeTrial, make_records, simulated

from batchscale.records.frames import Records
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import Hardware, TrialMetadata
from batchscale.spec.workload_name import WorkloadName

HOSTILE = '"><script>alert("x")</script>\'&{{7*7}}'


def _goal_never_reached() -> Records:
    return simulated((1, 16, 256), hardest=0.5)


def _one_batch_size() -> Records:
    return simulated((64,))


def _one_trial() -> Records:
    return simulated((1, 16, 256), 1)


def _one_trial_in_all() -> Records:
    return simulated((16,), 1)


def _nan_metrics() -> Records:
    trial = MadeTrial(
        {"learning_rate": 0.1, "momentum": 0.9, "label_smoothing": 0.0}, [(0, {METRIC: nan}), (9, {METRIC: nan})]
    )
    return make_records([MadeStudy(size, [trial, trial]) for size in (1, 8, 64)])


def _some_nan_metrics() -> Records:
    good = MadeTrial(
        {"learning_rate": 0.1, "momentum": 0.9}, [(0, {METRIC: nan}), (5, {METRIC: 0.05}), (9, {METRIC: nan})]
    )
    worse = MadeTrial({"learning_rate": nan, "momentum": nan}, [(0, {METRIC: 0.9}), (9, {METRIC: 0.01})])
    return make_records([MadeStudy(size, [good, worse]) for size in (1, 8, 64)])


def _thousand_trials() -> Records:
    return simulated((64,), 1000, evaluations=6)


def _hostile_names() -> Records:
    study = StudyMetadata(goal=f"{METRIC} < 0.1", spec_hash=HOSTILE, code_version=HOSTILE, stop_rule=HOSTILE)
    trial = TrialMetadata(hardware=Hardware(HOSTILE), stop_reason=HOSTILE)
    space = {HOSTILE: SPACE["learning_rate"], "learning_rate": SPACE["learning_rate"]}
    studies = []
    for size in (1, 8, 64):
        trials = [
            MadeTrial(
                {HOSTILE: rate, "learning_rate": rate, "momentum": 0.9},
                [(0, {METRIC: 0.9, HOSTILE: 0.1}), (100 // size + 10, {METRIC: rate / 4, HOSTILE: 0.1})],
                facts=trial,
            )
            for rate in (0.1, 0.2, 0.3)
        ]
        studies.append(MadeStudy(size, trials, space=space, facts=study))
    return make_records(studies)


def _no_metaparameters() -> Records:
    trials = [MadeTrial({}, [(0, {METRIC: 0.9}), (50 + i, {METRIC: 0.05})]) for i in range(3)]
    return make_records([MadeStudy(size, trials, space={}) for size in (1, 8)])


def _only_diverged() -> Records:
    trial = MadeTrial({"learning_rate": 9.0, "momentum": 0.9}, [(0, {METRIC: 0.9})], "INFEASIBLE")
    return make_records([MadeStudy(8, [trial, trial])])


def _no_measurements() -> Records:
    trials = [MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9})]), MadeTrial({"learning_rate": 0.1}, [])]
    return make_records([MadeStudy(8, trials), MadeStudy(16, [MadeTrial({"learning_rate": 0.1}, [])])])


def _another_metric() -> Records:
    trial = MadeTrial({"learning_rate": 0.1}, [(0, {"val/loss": 1.0}), (9, {"val/loss": 0.5})])
    return make_records([MadeStudy(8, [trial]), MadeStudy(16, [trial], WorkloadName("other", "model", "sgd"))])


def _nothing() -> Records:
    return make_records([])


BAD_INPUT: Mapping[str, Callable[[], Records]] = {
    name[1:]: make
    for name, make in sorted(globals().items())
    if name.startswith("_") and callable(make) and getattr(make, "__module__", "") == __name__
}
assert WORKLOAD is not None and len(BAD_INPUT) == 13, BAD_INPUT.keys()
