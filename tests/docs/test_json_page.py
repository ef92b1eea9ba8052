"""docs/json.md describes every object that a command prints, key by key."""

import json
import re
from pathlib import Path

import jax
import numpy as np
import pytest
import soundfile
import typer.main
from build_records import curve_studies, write_tree
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.instruments.playing.instrument import Instrument, write_instrument
from batchscale.instruments.sound.prepared import SoundStatistics
from batchscale.workloads.models.declaration import Shape, find_model

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "examples" / "mnist_fc_records"
WORKLOAD = "mnist/fc_1024/sgd"
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \|", re.MULTILINE)
PLAIN = {"text": str, "whole": int, "number": (int, float), "bool": bool, "object": dict}
WITHOUT = {"init", "trainer copy", "web"}  # two write a file, web answers in a browser
GOAL = "val/error < 0.1"
EXPERIMENT = """
goal = "val/loss < 0.5"
batch_sizes = [4, 16]
trials = 2
search = { repeats = 1 }
budget = { steps = 40 }
evaluation = { count = 4 }
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
"""


def read_page() -> dict[str, dict[str, str]]:
    """The keys with their kinds of every heading of the page."""
    parts = re.split(r"^#{3,4} (.+)$", (ROOT / "docs" / "json.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found: dict[str, dict[str, str]] = {}
    for heading, text in zip(parts[::2], parts[1::2], strict=True):
        for name in re.findall(r"`([^`]+)`", heading):
            found[name] = dict(ROW.findall(text))
    return found


PAGE = read_page()


def check(value: object, kind: str, where: str) -> None:
    if kind.endswith("?"):
        if value is None:
            return
        kind = kind[:-1]
    if kind[0] == "[":
        assert isinstance(value, list), where
        for one in value:
            check(one, kind[1:-1], f"{where}[]")
    elif kind[0] == "{":
        assert isinstance(value, dict), where
        for name, one in value.items():
            check(one, kind[1:-1], f"{where}.{name}")
    elif kind in PLAIN:
        assert isinstance(value, PLAIN[kind]), (where, kind, value)
        assert kind in ("bool", "object") or not isinstance(value, bool), where
    else:
        check_object(value, PAGE[kind], where)


def check_object(value: object, keys: dict[str, str], where: str) -> None:
    assert isinstance(value, dict), where
    assert set(value) == set(keys), where
    for key, kind in keys.items():
        check(value[key], kind, f"{where}.{key}")


def printed(*words: object) -> str:
    result = CliRunner().invoke(make_app(), [*map(str, words), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    law = {size: 1000 * (1 + 64 / size) for size in (1, 4, 16, 64, 256, 1024)}
    return write_tree(tmp_path_factory.mktemp("records"), curve_studies(law))


@pytest.fixture
def curve(tmp_path) -> Path:
    path = tmp_path / "curve.csv"
    path.write_text("batch_size,steps\n8,1000\n16,520\n32,300\n64,180\n128,140\n256,120\n")
    return path


def test_the_atlas_prints_its_objects(tmp_path, curve, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_ATLAS", str(tmp_path / "atlas"))
    check(json.loads(printed("atlas", "--all")), "atlas", "atlas")
    check(json.loads(printed("atlas", "show", "ddsp-autoencoder")), "atlas show", "atlas show")
    check(json.loads(printed("atlas", "like", curve)), "atlas like", "atlas like")
    check(json.loads(printed("atlas", "add", curve)), "atlas add", "atlas add")


def test_laws_and_launches_print_their_objects():
    answer = json.loads(printed("law", "--tokens", "20B", "--parameters", "1B"))
    for law in answer["laws"].values():
        law["exponent_ranges"] = {name: {"ends": ends} for name, ends in law["exponent_ranges"].items()}
    check(answer, "law", "law")
    launch = json.loads(printed("suggest", "--tokens", "20B", "--parameters", "1B", "--export", "nanochat"))
    check(launch, "suggest --tokens", "suggest")


def test_every_command_with_an_answer_has_the_option_and_a_heading():
    def walk(command, words: tuple[str, ...] = ()):
        for name, sub in getattr(command, "commands", {}).items():
            yield from walk(sub, (*words, name))
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield " ".join(words), command

    for name, command in walk(typer.main.get_command(make_app())):
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--json" in options) == (name not in WITHOUT), name
        assert (name in PAGE) == (name not in WITHOUT), name


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("machines", ["machines"]),
        ("devices", ["devices"]),
        ("workloads", ["workloads"]),
        ("data list", ["data", "list"]),
        ("plan", ["plan", ROOT / "examples" / "ddsp_training_runs.csv"]),
        ("summary", ["summary", RECORDS]),
        ("doctor", ["doctor"]),
        ("figure", ["figure", "curve", RECORDS, "--workload", WORKLOAD]),
    ],
)
def test_a_command_prints_what_the_page_says(name, words):
    check_object(json.loads(printed(*words)), PAGE[name], name)


def test_analyses_print_what_the_page_says(tree, curve, tmp_path):
    check_object(json.loads(printed("analyze", tree, "--goal", GOAL)), PAGE["analyze"], "analyze")
    check_object(json.loads(printed("suggest", tree, "--batch-size", 16, "--goal", GOAL)), PAGE["suggest"], "suggest")
    check_object(json.loads(printed("fit", curve)), PAGE["scaling"] | PAGE["fit"], "fit")
    check_object(json.loads(printed("compare", curve, tree, "--goal", GOAL)), PAGE["compare"], "compare")
    check_object(
        json.loads(printed("report", tree, "--goal", GOAL, "--out", tmp_path / "r.html")), PAGE["report"], "report"
    )


def test_records_commands_print_what_the_page_says(tree, tmp_path):
    check_object(json.loads(printed("check", tree)), PAGE["check"], "check")
    check_object(json.loads(printed("import", tree, "--out", tmp_path / "t")), PAGE["import"], "import")
    rows = [f"{b},{b},{step},{1 / (b * step)}" for b in (8, 16) for step in (10, 20)]
    (tmp_path / "runs.csv").write_text("\n".join(["run,batch_size,step,val_loss", *rows]) + "\n")
    words = ("import", tmp_path / "runs.csv", "--out", tmp_path / "imported")
    check_object(json.loads(printed(*words)), PAGE["import-runs"], "import-runs")
    check_object(json.loads(printed("export", tmp_path / "t", "--out", tmp_path / "x")), PAGE["export"], "export")


def test_getting_data_prints_what_the_page_says(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.txt").write_text("One sentence.\n")
    words = ["data", "get", "common_crawl", "--from", tmp_path / "mine", "--data-dir", tmp_path / "data"]
    check_object(json.loads(printed(*words)), PAGE["data get"], "data get")


def test_sound_commands_print_what_the_page_says(tmp_path):
    model = find_model("ddsp_tiny", {"tiny": True}).for_data(Shape((10, 2), 640))
    params = jax.tree.map(np.asarray, jax.jit(model.init)(jax.random.key(0))[0])
    quiet = SoundStatistics((-20.0,) * 101, (60.0,) * 101, 1.0)
    write_instrument(tmp_path / "model", Instrument("ddsp_tiny", {"tiny": True}, 0, quiet, params))
    (tmp_path / "in").mkdir()
    times = np.arange(32_000) / 16_000
    line = sum(0.2 * np.sin(2 * np.pi * 220 * n * times) / n for n in range(1, 9))
    soundfile.write(tmp_path / "in" / "line.wav", line, 16_000)
    words = ["data", "audio", tmp_path / "in", "--out", tmp_path / "prepared"]
    check_object(json.loads(printed(*words)), PAGE["data audio"], "data audio")
    words = ["audio", "transfer", tmp_path / "model", tmp_path / "in" / "line.wav", "--out", tmp_path / "x.wav"]
    check_object(json.loads(printed(*words)), PAGE["audio transfer"], "audio transfer")
    words = ["audio", "resynthesise", tmp_path / "model", tmp_path / "prepared", "--out", tmp_path / "y.wav"]
    check_object(json.loads(printed(*words)), PAGE["audio resynthesise"], "audio resynthesise")


@pytest.mark.slow
def test_timing_prints_what_the_page_says(tmp_path):
    words = ["calibrate", "digits/fc_64/sgd", "--batch-sizes", "8", "--repetitions", "3", "--seconds", "0.05"]
    check_object(json.loads(printed(*words, "--out", tmp_path / "t.csv")), PAGE["calibrate"], "calibrate")


def test_measuring_prints_what_the_page_says(tmp_path):
    file, out = tmp_path / "experiment.toml", tmp_path / "out"
    file.write_text(EXPERIMENT)
    check_object(json.loads(printed("validate", file)), PAGE["validate"], "validate")
    words = ("predict", file, "--methods", "atlas,published_laws")
    check_object(json.loads(printed(*words)), PAGE["predict"], "predict")
    told = json.loads(printed("run", file, "--out", out, "--runner", "inline"))
    check_object(told, PAGE["run"], "run")
    check_object(json.loads(printed("status", out)), PAGE["status"], "status")
    lines = printed("train", file, "--batch-size", 4, "--steps", 5, "--set", "learning_rate=0.1").splitlines()
    assert lines
    for line in lines:
        measured = json.loads(line)
        check_object({key: measured[key] for key in PAGE["train"]}, PAGE["train"], "train")
        assert all("/" in key for key in set(measured) - set(PAGE["train"]))
