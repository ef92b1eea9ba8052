"""Answers in tokens say what answers in examples say, with sequences beside them; numbers of records do not change."""

import json
import math
import re

import numpy as np
import polars as pl
import pytest
from build_records import NAME, curve_studies, make_records, study, trial, write_tree
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from batchscale.analysis.as_json import analysis_json
from batchscale.analysis.budgets import budget_steps
from batchscale.analysis.curve_analysis import AnalysisOptions, analyze, analyze_points
from batchscale.analysis.metaparameters import derive_values
from batchscale.analysis.sentences import answer_sentences
from batchscale.analysis.units import EXAMPLES, SizeUnit, unit_of
from batchscale.cli.app import make_app
from batchscale.errors import AnalysisError
from batchscale.figures.kinds.curve import analysis_frame, plot_curve
from batchscale.records.read import read_records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.trials import TrialQuery, trial_page

GOAL = Goal.parse("val/error < 0.1")
SIZES = [2**i for i in range(0, 16, 2)]
LAW = {size: 1000 * (1 + 64 / size) for size in SIZES}
NUMBER = r"\d(?:[\d.,]*\d)?[kMBT]?"
PHRASE = re.compile(
    rf"(?:at (?:least|most) )?{NUMBER}(?:(?:, | and | to ){NUMBER})* tokens "
    r"\((?:(?P<span>[^();]*); )?(?P<sequences>[^()]*?) sequences?\)"
)


def in_examples(text: str) -> str:
    """Return a sentence in tokens as it would be in examples, without intervals."""
    short = re.sub(r"(measured up to )[\d.]+[kMBT]?", r"\1…", PHRASE.sub(r"\g<sequences>", text))
    return short.replace("tokens", "examples")


def without_intervals(text: str) -> str:
    text = re.sub(r"(measured up to )[\d,]+", r"\1…", text)
    return re.sub(r" \((?:at (?:least|most) )?[\d.,]+(?: M)?(?: to [\d.,]+(?: M)?)?\)", "", text)


def points(steps: dict[int, float]) -> pl.DataFrame:
    return pl.DataFrame(list(steps.items()), schema=["batch_size", "steps"], orient="row")


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(0.7, 1.4), min_size=5, max_size=8),
    st.sampled_from([0.0, 20.0, 300.0]),
    st.sampled_from([512, 1000, 2048]),
)
def test_sentences_in_tokens_state_what_sentences_in_examples_state(noise, critical, tokens):
    steps = {2 ** (i + 2): float(round(3000 * (1 + critical / 2 ** (i + 2)) * n)) for i, n in enumerate(noise)}
    plain = answer_sentences(analyze_points(points(steps)))
    spoken = answer_sentences(analyze_points(points(steps), AnalysisOptions(tokens_per_example=tokens)))
    assert [in_examples(text) for text in spoken] == [without_intervals(text) for text in plain]
    assert not any("tokens" in text or "sequence" in text for text in plain)


@given(st.integers(1, 2**40), st.integers(1, 2**20))
def test_tokens_are_rounded_and_the_sequences_beside_them_are_exact(batch_size, tokens):
    text = SizeUnit(tokens).size(batch_size)
    written, sequences = re.fullmatch(r"([\d.,]+[kMBT]?) tokens \(([\d,]+) sequences?\)", text).groups()
    assert int(sequences.replace(",", "")) == batch_size
    power = {"k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(written[-1], 1)
    assert float(written.rstrip("kMBT").replace(",", "")) * power == pytest.approx(batch_size * tokens, rel=0.05)
    assert EXAMPLES.size(batch_size) == f"{batch_size:,}"


def own(**more):
    return {"format_version": 2, "goal": str(GOAL), "tokens_per_example": 512, **more}


def test_an_analysis_takes_the_tokens_from_the_records_and_keeps_every_number():
    plain = analysis_json(analyze(make_records(curve_studies(LAW)), NAME, GOAL))
    records = make_records(curve_studies(LAW, own=own()))
    spoken = analysis_json(analyze(records, NAME, GOAL))
    assert unit_of(records) == SizeUnit(512) and spoken["tokens_per_example"] == 512
    for key, value in plain["scaling"].items():
        if key not in ("in_tokens", "advice", "sentences", "key_figures", "doubts", "unfinished_batch_sizes"):
            assert spoken["scaling"][key] == value, key
    for key, value in spoken["scaling"]["in_tokens"].items():
        assert value == (None if plain["scaling"][key] is None else round(512 * plain["scaling"][key])), key
    assert plain["scaling"]["in_tokens"] is None and plain["tokens_per_example"] is None
    for row in spoken["curve"]:
        assert (row["batch_size_tokens"], row["tokens"]) == (512 * row["batch_size"], 512 * row["examples"])


def test_a_budget_in_tokens_limits_the_same_steps_as_in_examples():
    records = make_records(curve_studies(LAW, own=own()))
    limits = [budget_steps(records, Budget(*b))["limit"] for b in ((512e6, Unit.TOKENS), (1e6, Unit.EXAMPLES))]
    assert limits[0].to_list() == limits[1].to_list()
    with pytest.raises(AnalysisError, match="A budget in tokens needs records that state"):
        budget_steps(make_records(curve_studies(LAW)), Budget(512e6, Unit.TOKENS))


def test_studies_that_disagree_are_read_in_examples():
    mixed = [*curve_studies({4: 500, 8: 260}, own=own()), *curve_studies({16: 140}, own=own(tokens_per_example=256))]
    assert unit_of(make_records(mixed)) == EXAMPLES


@given(st.floats(0.01, 0.9999), st.integers(1, 4096), st.sampled_from([None, 1, 512]))
def test_after_its_half_life_a_squared_gradient_counts_half(beta2, batch_size, tokens):
    (half_life,) = derive_values({"beta2": beta2}, batch_size, 100, SizeUnit(tokens)).values()
    batches = half_life / (batch_size * (tokens or 1))
    assert beta2**batches == pytest.approx(0.5, rel=1e-9)


def test_the_time_scale_is_the_part_of_the_training_that_weight_decay_averages_over():
    values = {"learning_rate": 0.02, "weight_decay": 0.5, "beta1": 0.9}
    batch, steps, tokens = 64, 400, 512
    derived = derive_values(values, batch, steps, SizeUnit(tokens))
    data = steps * batch * tokens
    assert derived == {"decay_time_scale": pytest.approx(batch * tokens / (0.02 * 0.5 * data))}
    weights = np.cumprod(np.full(steps, 1 - 0.02 * 0.5))  # of updates, by how many steps ago they were made
    assert weights[round(derived["decay_time_scale"] * steps) - 1] == pytest.approx(1 / math.e, rel=0.01)
    assert derive_values({"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.1}, 8, 10, EXAMPLES) == {}


ADAM = WorkloadName("text", "gpt", "adamw")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A curve of AdamW with β2 searched and the weight decay held fixed."""
    studies = [
        study(
            size,
            [
                trial(i, {0: 1.0, round(steps * f): 0.05}, parameters={"learning_rate": 0.01 * f, "beta2": 0.95})
                for i, f in enumerate((1.0, 1.05, 1.1, 1.3, 2.0), 1)
            ],
            train_steps=10**6,
            own=own(fixed={"weight_decay": 0.1}),
        )
        for size, steps in LAW.items()
    ]
    return write_tree(tmp_path_factory.mktemp("tokens") / "tree", {ADAM: studies})


def run(*words):
    answer = CliRunner().invoke(make_app(), [str(word) for word in words])
    assert answer.exit_code == 0, answer.output + str(answer.exception)
    return answer.stdout


def test_commands_write_tokens_with_sequences_beside_them(tree, tmp_path):
    shown = run("analyze", tree)
    assert "33k tokens (64 sequences)" in shown and "batch size (tokens)  sequences" in shown
    summary = run("summary", tree)
    assert "Tokens a Batch" in summary and "524k" in summary
    suggested = run("suggest", tree, "--batch-size", "32k tokens")
    assert "at batch size 33k tokens (64 sequences)" in suggested
    half_life = math.log(2) / -math.log(0.95) * 64 * 512
    assert "Half-life of β2 (tokens): 443k" in suggested and round(half_life, -3) == 443_000
    compared = run("compare", tree, tree)
    assert "B_crit (tokens)" in compared
    (tmp_path / "curve.csv").write_text("batch_size,steps\n" + "".join(f"{b},{s}\n" for b, s in LAW.items()))
    fitted = run("fit", tmp_path / "curve.csv", "--tokens-per-example", 512)
    assert "33k tokens (64 sequences)" in fitted
    assert "tokens" not in run("fit", tmp_path / "curve.csv")
    other = CliRunner().invoke(make_app(), ["suggest", str(tree), "--batch-size", "1000 tokens"])
    assert "Nearest: 512 tokens (1) and 1,024 tokens (2)" in str(other.exception)


def test_derived_columns_stand_in_the_report_and_in_json(tree, tmp_path):
    (row,) = [row for row in json.loads(run("analyze", tree, "--json"))["curve"] if row["batch_size"] == 64]
    assert row["derived"]["decay_time_scale"] == pytest.approx(1 / (0.01 * 0.1 * row["steps"]))
    assert row["derived"]["beta2_half_life"] == pytest.approx(64 * 512 * 13.5134, rel=1e-4)
    assert set(row["metaparameters"]) == {"learning_rate", "beta2"}
    run("report", tree, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "half-life of β2 (tokens)" in page and "time scale B/(ηλD)" in page and ">443k<" in page


def test_plans_and_the_table_of_trials_are_in_tokens(tree, tmp_path):
    machines = tmp_path / "machines.toml"
    machines.write_text(
        '[[machine]]\nname = "box"\ndevice = "cpu"\ndevices_per_host = 1\nprice_per_host_hour = 1\nunit = "USD"\n'
    )
    times = tmp_path / "times.csv"
    times.write_text(
        "device,hosts,devices_per_host,batch_size,step_time_s\n"
        + "".join(f"cpu,1,1,{b},{0.01 + b / 1e4}\n" for b in SIZES)
    )
    shown = run("plan", tree, "--step-times", times, "--machines", machines)
    assert re.search(r"\d+k tokens \(\d+ sequences\)", shown)
    data = json.loads(run("plan", tree, "--step-times", times, "--machines", machines, "--json"))
    assert data["tokens_per_example"] == data["cheapest"]["tokens_per_example"] == 512
    page = trial_page(read_records(tree), TrialQuery(batch_size=64))
    assert page.derived == ["half-life of β2 (tokens)", "time scale B/(ηλD)"]
    assert page.rows[0].values[-2] == "443k"


def test_axes_are_in_tokens_unless_examples_are_asked_for(tree, tmp_path):
    answer = analyze_points(points(LAW), AnalysisOptions(tokens_per_example=512))
    spec = json.dumps(plot_curve(analysis_frame(answer)).to_dict())
    assert "batch size (tokens)" in spec and "'64': '33k'" in spec
    rows = run("figure", "curves", tree, "--json")
    assert json.loads(rows)["rows"][0]["tokens_per_example"] == 512
    for unit in ("tokens", "examples"):
        file = tmp_path / f"{unit}.json"
        run("figure", "curve", tree, "--out", file, "--unit", unit)
        assert f"batch size ({unit})" in file.read_text()
    other = CliRunner().invoke(make_app(), ["figure", "curve", str(tree), "--out", str(file), "--unit", "words"])
    assert "--unit must be tokens or examples" in str(other.exception)
