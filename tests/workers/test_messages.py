"""Messages between driver and worker as checked data: what is said is what is heard, and nothing else is taken in."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from study_fakes import FAKE_ENGINE, fake_experiment, fake_study

from batchscale.errors import RunError
from batchscale.records.metadata.trial import Hardware
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.experiment import RunPlan, WorkloadSpec
from batchscale.spec.trainer import ReportSource, ReportsSpec, TrainerSpec
from batchscale.spec.workload_name import WorkloadName
from batchscale.study.failure import Failure
from batchscale.study.trial import Activity, TrialProgress, TrialTask
from batchscale.workers.messages import (
    Answered,
    Begin,
    Discard,
    Drain,
    Finish,
    Raised,
    Ready,
    Refused,
    Saved,
    Started,
    decode_instruction,
    decode_reply,
    encode_instruction,
    encode_reply,
)
from batchscale.workers.messages import Stop as StopMessage
from batchscale.workers.remote_setup import OwnFile, RemoteSetup
from batchscale.workers.runner import Job, JobResult, LossReason, Setup, WorkerActivity

STUDY = fake_study()
TASK = TrialTask(1, {"learning_rate": 0.1234567890123456, "momentum": 5e-324}, 2**63 - 1, 50, -1)
OPTIONS = {"a": True, "b": 1, "c": 1.0, "d": "1", "e": (1, (2.5, "x"), False)}
BUDGET = Budget(200.0, Unit.STEPS)
OWN = fake_experiment(
    budget=BUDGET,
    workload=WorkloadSpec(WorkloadName("own", "net", "sgd"), OPTIONS, OPTIONS, {}, "linear", Path("own.py"), 7.0),
    run=RunPlan(None, exact=True),
    metrics=("val/error",),
    text='workload = "ünicode"\n',
)
SCRIPT = fake_experiment(
    budget=BUDGET,
    trainer=TrainerSpec(("python", "t.py"), Path("/x"), True, 2, ("cuda:0",), env={"A": "{device}"},
                        reports=ReportsSpec(ReportSource.CSV, "{folder}/m.csv", {"loss": "val/loss"})),
)  # fmt: skip
ROW = (10, {"val/error": 1 / 3, "val/loss": math.nan, "train/loss": math.inf, "x": -math.inf, "y": -0.0})
PROGRESS = TrialProgress(1, (ROW,), 10, 10, {"train": 0.1}, Hardware("cpu", "cpu", 1, 1), "jax 0.6", Failure("failed"))


@pytest.mark.parametrize(
    "message",
    [
        Begin(Setup(fake_experiment(budget=BUDGET), engine=FAKE_ENGINE, options={"mischief": "raise"}), "w"),
        Begin(
            Setup(OWN, Path("/data"), Path("/c"), "m:f", 10**12, {"workers": "2"}, 4), "w", RemoteSetup({"jax": "1"})
        ),
        Begin(Setup(SCRIPT), "w", RemoteSetup({}, OwnFile("o.py", "x = 'é'\n", "ab"))),
        Job(3, STUDY, (TASK,), STUDY.goal, 2),
        Job(4, STUDY, (TASK, TASK)),
        Discard(8, (1, 2)),
        Finish(8, {1: 50}),
        StopMessage(),
        Drain(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_an_instruction_is_decoded_as_it_was_encoded(message):
    data = encode_instruction(message)
    assert b"\n" not in data
    assert repr(decode_instruction(data)) == repr(message)  # by text: an endless range has a NaN


@pytest.mark.parametrize(
    "reply",
    [
        Ready("node7"),
        Refused("node7", "no data"),
        Started(3),
        WorkerActivity("w", Activity.TRAINING, 8, (1, 2), 30),
        Answered(JobResult(3, "w", (PROGRESS, replace(PROGRESS, diverged_at=None, hardware=None)), 1.5, 4), 10**11),
        Raised(3, LossReason.OUT_OF_MEMORY, Failure("too large\nby far", ("a", ""), " Alas.")),
        Saved(),
    ],
    ids=lambda reply: type(reply).__name__,
)
def test_a_reply_is_decoded_as_it_was_encoded(reply):
    assert repr(decode_reply(encode_reply(reply))) == repr(reply)


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b'["exec", []]', b'["Job", [1]]', b'["Ready", 3]', b"\x80\x04N.", b"[" * 100_000,
     b'["Job", {"job_id": 1}]', b'[["Job"], {}]'],
)  # fmt: skip
def test_anything_else_is_refused_in_words(data):
    for decode in (decode_instruction, decode_reply):
        with pytest.raises(RunError, match="same version of batchscale on all hosts"):
            decode(data)


def test_a_driver_takes_no_messages_of_drivers_and_a_worker_no_replies():
    with pytest.raises(RunError, match="A worker's reply is one of Ready"):
        decode_reply(encode_instruction(Discard(8)))
    with pytest.raises(RunError, match="A driver's message is one of Begin"):
        decode_instruction(encode_reply(Saved()))
