"""Instruments: uploads that are checked and limited, work that outlives the page, and the whole way with a tiny one."""

import asyncio
import io
import json
import os
import subprocess
import sys
import time
import wave
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from sounds import make_wav

from batchscale.instruments.web.instruments import TrainingSettings, WebInstruments
from batchscale.instruments.web.steps import listen_steps, train_steps
from batchscale.instruments.web.uploads import list_uploads, save_upload
from batchscale.records.tree.layout import StudyPaths
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.command_sequence import CommandStep
from batchscale.web.process_record import process_start
from batchscale.web.processes import ProcessStore
from batchscale.web.refusals import RefusedError
from batchscale.web.settings import Limits

ORIGIN = "http://127.0.0.1:8765"


WAV = make_wav()


def upload(site, client, page: str, data: bytes = WAV, name: str = "a.wav", target: str = "recordings", **headers: str):
    own = {
        "origin": ORIGIN, "x-csrf-token": site.csrf(client), "x-file-name": name,
        "content-type": "application/octet-stream", **headers,
    }  # fmt: skip
    return client.post(f"{page}/{target}", content=data, headers=own)


def make(site, client, name: str = "violin") -> str:
    answer = site.post(client, "/instruments", name=name)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


def wait(condition, seconds: float = 100) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def reap(jobs: ProcessStore) -> None:
    """Until no child is left: what lives on when tests end is complained of."""
    wait(lambda: jobs.count == 0 and not jobs._children)


def test_a_recording_is_kept_under_a_name_of_ours(site):
    client = site.visitor()
    page = make(site, client)
    answer = upload(site, client, page, name="..%2F..%2Fetc%2FMy%20%E2%80%AEviolin.WAV")
    assert (answer.status_code, answer.text) == (201, "001-etc-My-violin.wav")
    assert upload(site, client, page).text == "002-a.wav"
    stored = site.folder / "instruments" / "violin" / "recordings"
    assert (stored / "002-a.wav").read_bytes() == WAV and len(list(stored.iterdir())) == 2
    assert "002-a.wav" in client.get(page).text and "violin" in client.get("/instruments").text
    assert '"upload"' in (site.settings.state / "audit.jsonl").read_text()


def test_without_a_script_recordings_are_copied_to_where_the_page_says(site):
    client = site.visitor()
    page = make(site, client)
    assert "<code>instruments/violin/recordings</code>" in client.get(page).text.partition("<noscript>")[2]
    (site.folder / "instruments" / "violin" / "recordings" / "mine.wav").write_bytes(WAV)
    assert "mine.wav" in client.get(page).text
    assert upload(site, client, page).text == "001-a.wav"


@pytest.mark.parametrize(
    ("data", "name", "status"),
    [
        (b"PK\x03\x04" + b"0" * 100, "bomb.wav", 415),
        (WAV, "a.exe", 415),
        (WAV, "wav", 415),
        (WAV, "a.flac", 415),
        (b"RIFF", "short.wav", 415),
        (b"", "empty.wav", 415),
        (WAV + b"\0" * 100_000, "large.wav", 413),
    ],
)
def test_what_is_no_recording_or_too_large_is_refused_and_leaves_nothing(make_site, data, name, status):
    site = make_site(limits=replace(Limits(), upload_bytes=len(WAV) + 1000))
    client = site.visitor()
    page = make(site, client)
    assert upload(site, client, page, data, name).status_code == status
    assert list((site.folder / "instruments" / "violin" / "recordings").iterdir()) == []


def test_recordings_are_limited_in_number_and_in_all(make_site):
    site = make_site(limits=replace(Limits(), upload_files=2, upload_total_bytes=3 * len(WAV)))
    client = site.visitor()
    page = make(site, client)
    assert [upload(site, client, page).status_code for _ in range(3)] == [201, 201, 413]
    other = make(site, client, "large")
    assert upload(site, client, other, WAV + b"\0" * 2 * len(WAV)).status_code == 201
    assert upload(site, client, other).status_code == 413


def test_an_upload_needs_the_session_the_origin_and_the_token(make_site, few):
    site = make_site()
    client = site.visitor()
    page = make(site, client)
    assert upload(site, client, page, **{"x-csrf-token": "0" * 64}).status_code == 403
    assert upload(site, client, page, origin="http://127.0.0.1:9999").status_code == 403
    assert upload(site, client, page, **{"content-type": "multipart/form-data"}).status_code == 415
    assert site.stranger().post(f"{page}/recordings", content=WAV, headers={"origin": ORIGIN}).status_code == 401
    assert upload(site, client, "/instruments/" + "0" * 16).status_code == 404
    reader = make_site(read_only=True)
    assert upload(reader, reader.visitor(), page).status_code == 403
    limited = make_site(limits=replace(few, uploads=1, actions=60))
    visitor = limited.visitor()
    assert [upload(limited, visitor, page).status_code for _ in range(2)] == [201, 429]


def test_an_upload_that_stops_in_the_middle_leaves_nothing(tmp_path):
    async def never_ending():
        yield WAV[:100]
        await asyncio.sleep(60)
        yield b""

    with pytest.raises(RefusedError, match="too long"):
        asyncio.run(save_upload(never_ending(), tmp_path, "a.wav", replace(Limits(), body_s=0.1)))
    assert list(tmp_path.iterdir()) == []


def test_links_among_recordings_are_not_listed(tmp_path):
    (tmp_path / "outside").write_bytes(WAV)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "001-a.wav").symlink_to(tmp_path / "outside")
    assert list_uploads(tmp_path / "in") == []


@pytest.mark.parametrize("name", ["..%2f..%2ftoken.wav", "a.txt", "%00.wav", "A.wav", "none.wav"])
def test_sounds_are_a_list(site, name):
    client = site.visitor()
    page = make(site, client)
    (site.folder / "instruments" / "violin" / "sounds" / "link.wav").symlink_to(site.settings.state / "token")
    assert client.get(f"{page}/sounds/{name}").status_code in (404, 422)
    assert client.get(f"{page}/sounds/link.wav").status_code == 404


def test_a_sound_is_played_in_parts(site):
    client = site.visitor()
    page = make(site, client)
    (site.folder / "instruments" / "violin" / "sounds" / "transfer-1.wav").write_bytes(WAV)
    part = client.get(f"{page}/sounds/transfer-1.wav", headers={"range": "bytes=0-3"})
    assert part.status_code == 206 and part.content == b"RIFF" and part.headers["content-type"] == "audio/wav"
    assert "transfer 1" in client.get(page).text


@pytest.mark.parametrize(
    "form",
    [
        {"model": "../x"},
        {"steps": "1e9"},
        {"steps": "x"},
        {"learning_rate": "nan"},
        {"loss": "-1"},
        {"batch_size": "0"},
    ],
)
def test_what_the_form_of_training_cannot_mean_is_refused(site, form):
    client = site.visitor()
    page = make(site, client)
    (site.folder / "instruments" / "violin" / "prepared.json").write_text(
        '{"recordings": [], "skipped": {}, "seconds": {}}\n'
    )
    assert site.post(client, f"{page}/train", **form).status_code == 422


def test_steps_that_are_too_early_say_what_comes_first(site):
    client = site.visitor()
    page = make(site, client)
    for path, word in (("prepare", "upload"), ("train", "prepared"), ("listen", "trained"), ("transfer", "Choose")):
        answer = site.post(client, f"{page}/{path}")
        assert answer.status_code == 409 and word in answer.text


def test_a_job_outlives_the_server_and_is_stopped_by_the_next(tmp_path):
    folder = tmp_path / "violin"
    folder.mkdir()
    jobs = ProcessStore(tmp_path / "state" / "jobs")
    slow = CommandStep(("quickstart", "--workload", "digits", "--out", "out", "--workers", "1"), "waiting")
    jobs.start(folder, "train", [CommandStep(("--version",), "first"), slow, slow])
    with pytest.raises(RefusedError, match="Only one job"):
        jobs.start(folder, "train", [slow])
    again = ProcessStore(tmp_path / "state" / "jobs")  # another server
    wait(lambda: (standing := again.status(folder)) is not None and standing.number == 2)
    assert again.is_alive(folder) and again.count == 1
    wait(lambda: (folder / "out").exists())
    again.stop(folder)
    wait(lambda: not again.is_alive(folder))
    standing = again.status(folder)
    assert standing is not None and (standing.number, standing.code) == (2, 130)
    with pytest.raises(RefusedError, match="Nothing that was started here"):
        again.stop(folder)
    reap(jobs)


def test_a_job_that_fails_says_why(tmp_path):
    jobs = ProcessStore(tmp_path / "state" / "jobs")
    steps = [
        CommandStep(("validate", "none.toml"), "first", may_fail=True),
        CommandStep(("validate", "no.toml"), "second"),
    ]
    jobs.start(tmp_path, "prepare", steps)
    wait(lambda: not jobs.is_alive(tmp_path))
    standing = jobs.status(tmp_path)
    assert standing is not None and (standing.title, standing.code) == ("second", 2)
    assert "no.toml" in jobs.last_output(tmp_path)
    reap(jobs)


def test_a_process_that_is_not_the_job_is_never_signalled(tmp_path):
    jobs = ProcessStore(tmp_path / "state" / "jobs")
    (tmp_path / "state" / "jobs").mkdir(parents=True)
    code = "import time; print(1, flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline()
        began = process_start(child.pid)
        for pid, start in ((child.pid, process_start(os.getpid())), (2**22 - 1, began), (child.pid, ""), (None, "")):
            note = {"kind": "train", "claim": {"pid": pid, "began": start, "noted_at": 0.0}}
            jobs.file(tmp_path, "json").write_text(json.dumps(note))
            with pytest.raises(RefusedError):
                jobs.stop(tmp_path)
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_only_folders_that_were_made_here_are_instruments(tmp_path):
    instruments = WebInstruments(tmp_path)
    instruments.make("mine")
    (tmp_path / "instruments" / "other").mkdir()
    os.symlink(tmp_path / "instruments" / "mine", tmp_path / "instruments" / "linked")  # noqa: PTH211 - as an attacker
    assert [instrument.name for instrument in instruments.all()] == ["mine"]
    with pytest.raises(RefusedError, match="is taken"):
        instruments.make("mine")


def test_jobs_and_runs_share_one_quota(make_site):
    site = make_site(limits=replace(Limits(), runs=0))
    client = site.visitor()
    page = make(site, client)
    upload(site, client, page)
    assert site.post(client, f"{page}/prepare").status_code == 429


def test_long_training_stops_to_be_listened_to(tmp_path):
    instrument = WebInstruments(tmp_path).make("violin")
    steps = train_steps(instrument, TrainingSettings(steps=1000))
    trained = [step.words[step.words.index("--steps") + 1] for step in steps if step.words[0] == "train"]
    assert trained == ["334", "667", "1000"] and ["--resume" in step.words for step in steps[::4]] == [
        False,
        True,
        True,
    ]
    exported = [step.words[-1] for step in steps if step.words[:2] == ("audio", "export")]
    assert exported == ["models/1", "models/2", "models/3"]
    assert str(tmp_path / "instruments" / "violin" / "prepared") in (instrument.path / "train.toml").read_text()


def test_training_goes_on_where_the_same_was_trained_before(tmp_path):
    instrument = WebInstruments(tmp_path).make("violin")
    settings = TrainingSettings(steps=100)
    assert instrument.settings is None and not instrument.has_checkpoint
    assert "--new-trial" in train_steps(instrument, settings)[0].words
    assert instrument.settings == settings and not instrument.has_checkpoint
    study = StudyPaths.of(
        instrument.path / "trained", WorkloadName("recordings", settings.model, "adam"), settings.batch_size
    )
    study.checkpoints.mkdir(parents=True)
    (study.checkpoints / "1").mkdir()
    assert instrument.has_checkpoint
    for other in ({"learning_rate": 0.5}, {"batch_size": 4}, {"model": "ddsp"}):  # another trial, or another study
        assert not instrument.can_continue(replace(settings, **other))
    longer = replace(settings, steps=300, loss=0.1)
    assert "--resume" in train_steps(instrument, longer)[0].words and instrument.settings == longer
    (export,) = [step.words for step in listen_steps(instrument, longer) if step.words[:2] == ("audio", "export")]
    assert export[-4:] == ("--batch-size", "8", "--out", "models/1")
    (instrument.path / "wish.json").write_text("[1]")
    assert instrument.settings is None


def test_an_empty_form_has_the_default_settings():
    assert TrainingSettings.of_form({}) == TrainingSettings()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_from_recordings_to_a_transfer(make_site):
    pytest.importorskip("swift_f0")
    site = make_site()
    client = site.visitor()
    page = make(site, client)
    instrument = WebInstruments(site.folder).all()[0]
    upload(site, client, page, make_wav(8.0, notes=(220.0, 262.0, 330.0, 392.0) * 4))
    upload(site, client, page, b"RIFF\0\0\0\0WAVE" + b"no sound" * 20, "broken.wav")

    def work(path: str, **form: str) -> None:
        assert site.post(client, f"{page}/{path}", **form).status_code == 303
        wait(lambda: "state running" not in client.get(f"{page}/standing").text, 400)
        told = client.get(f"{page}/standing").text
        assert "state finished" in told, told

    work("prepare")
    assert instrument.prepared is not None and list(instrument.prepared["skipped"]) == ["002-broken.wav"]
    work("train", model="ddsp_tiny", steps="6", batch_size="4", loss="0.001")
    assert [path.name for path in instrument.models] == ["1"]
    assert instrument.losses()[-1][0] == 6 and "<polyline" in client.get(f"{page}/loss.svg").text
    assert (instrument.path / "sounds" / "1-train-played.wav").exists()
    shown = client.get(page).text
    assert "Continue training" in shown and "Listen to the current model" in shown
    work("train", model="ddsp_tiny", steps="9", batch_size="4", loss="0.001")
    study = instrument.path / "trained" / "recordings" / "ddsp_tiny" / "adam" / "4"
    assert [trial.name for trial in study.glob("[0-9]*")] == ["1"]  # the same trial, longer
    assert instrument.losses()[-1][0] == 9
    work("listen")
    assert [path.name for path in instrument.models] == ["1", "2", "3"]
    upload(site, client, page, make_wav(3.0, 8000, (440.0, 330.0)), target="voices")
    work("transfer", voice="001-a.wav", octaves="-1")
    played = client.get(f"{page}/sounds/transfer-1.wav")
    with wave.open(io.BytesIO(played.content)) as file:
        assert file.getframerate() == 16_000 and file.getnframes() == 3 * 16_000
    with zipfile.ZipFile(io.BytesIO(client.get(f"{page}/model.zip").content)) as archive:
        assert {Path(name).name for name in archive.namelist()} >= {"instrument.json", "parameters.npz"}
