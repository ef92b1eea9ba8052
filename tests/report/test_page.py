import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from bad_input import BAD_INPUT, HOSTILE
from made_records import GOAL, METRIC, MadeStudy, MadeTrial, make_records, simulated

from batchscale import __version__
from batchscale.analysis.curve_analysis import analyze
from batchscale.errors import SpecError
from batchscale.figures.theme import DARK, LIGHT
from batchscale.records.frames import Records
from batchscale.records.metadata.study import StudyMetadata
from batchscale.report.drawing import roles, theme_colour
from batchscale.report.page import make_report, write_report
from batchscale.report.text import result_sentences, status_sentence
from batchscale.spec.workload_name import WorkloadName

PARTS = (
    "Critical batch size", "Perfect scaling up to", "Fewest steps", "What this means", "How sure is it?", "Batch sizes",
    "times the examples", "What a batch size costs", "The best metaparameters", "How the trials went",
    "What to trust less", "How it was run", "range of learning rate", "x86_64",
    "How to reproduce and cite it", "@article",
)  # fmt: skip
VOID = {"meta", "link", "br", "img", "input", "hr"}
FIRST = ("goal_never_reached", "hostile_names", "nan_metrics", "one_batch_size", "one_trial", "thousand_trials")


class Page(HTMLParser):
    """Elements, attributes and text of a page; fails if tags do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.words = ""
        self.tables: list[list[list[str]]] = []  # rows of cells
        self.feed(text)
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.words += data
            if "td" in self.open or "th" in self.open:
                self.tables[-1][-1][-1] += data.strip()


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(make_report(simulated(), GOAL))


def test_the_page_asks_for_nothing_from_outside(page: Page):
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "xlink:href", "action", "data"):
                assert (value or "").startswith(("#", "data:,")), (tag, value)
    policy = next(a["content"] for t, a in page.elements if t == "meta" and a.get("http-equiv"))
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy
    assert len(page.scripts) == 1


def test_every_part_is_there(page: Page):
    for words in PARTS:
        assert words in page.words, words
    charts = [a for t, a in page.elements if t == "svg"]
    assert len(charts) >= 8
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_the_report_names_its_version_and_promises_no_index(page: Page):
    assert f"batchscale {__version__}" in page.words
    assert not re.search(r"pip install '?batchscale", page.words)


def test_the_table_has_the_analysed_numbers(page: Page):
    records = simulated()
    curve = analyze(records, records.workloads[0], GOAL).curve
    table = next(rows for rows in page.tables if rows[0][:3] == ["batch size", "steps to result", "90 % interval"])
    shown = [[_number(cell) for cell in (row[0], row[1], *row[2].split(" to "))] for row in table[1:]]
    rows = curve.sort("batch_size").select("batch_size", "steps", "steps_low", "steps_high").rows()
    assert len(rows) == len(shown) > 3
    for row, cells in zip(rows, shown, strict=True):
        assert cells == pytest.approx(row, abs=0.5)  # whole numbers are shown


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def test_colours_are_variables_with_a_value_for_light_and_for_dark(page: Page):
    used = {a[key] for t, a in page.elements for key in ("fill", "stroke") if a.get(key, "").startswith(("#", "var("))}
    assert not [colour for colour in used if colour.startswith("#")]
    assert {f"var(--{role})" for role in ("ground", "text", "series-0", "good")} <= used
    assert all(theme_colour(DARK, role) != theme_colour(LIGHT, role) for role in roles())


def test_the_answer_says_up_to_where_steps_fall_in_proportion():
    def trials(steps: int) -> list[MadeTrial]:
        rates = [0.01 + i / 1000 for i in range(9)]
        return [
            MadeTrial(
                {"learning_rate": rate},
                [(0, {METRIC: 0.9}), (steps + i - 1, {METRIC: 0.5}), (steps + i, {METRIC: 0.05})],
            )
            for i, rate in enumerate(rates)
        ]

    law = {1: 6400, 4: 1600, 16: 400, 64: 100, 256: 90, 1024: 90}
    records = make_records([MadeStudy(size, trials(steps)) for size, steps in law.items()])
    text = " ".join(result_sentences(analyze(records, records.workloads[0], GOAL)))
    assert "Use up to batch size 64 at no extra cost over 1, the cheapest size; 1,024 needed 14 times as many." in text
    assert "Above 64 a larger batch saves at most 10 % of the steps (measured up to 1,024)." in text
    assert "from 6,400 to 90, 71 times fewer, at 3.6 times the examples" in text


SAYS = {
    "one_batch_size": "measure more batch sizes",
    "goal_never_reached": "none of the 30 trials reached the goal",
    "nan_metrics": "none of the 6 trials reached the goal",
    "hostile_names": HOSTILE[:24],  # shown, as text
    "only_diverged": "no COMPLETE trial",
    "nothing": "There are no studies here",
}


@pytest.mark.parametrize(
    "problem", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in sorted(BAD_INPUT)]
)
def test_a_report_comes_out_of_any_records(problem: str):
    text = make_report(BAD_INPUT[problem](), GOAL, name=HOSTILE)
    page = Page(text)
    assert "How to reproduce and cite it" in page.words
    assert len(page.scripts) == 1 and "alert" not in page.scripts[0]
    assert len(text) < 3_000_000
    assert SAYS.get(problem, "How the trials went") in page.words


def test_several_workloads_get_an_overview_and_a_section_each():
    first, second = simulated((1, 16, 256), 6), simulated((1, 16), 6, workload=WorkloadName("other", "model", "sgd"))
    both = Records(
        pl.concat([first.studies, second.studies]),
        pl.concat([first.trials, second.trials]),
        {**first.sources, **second.sources},
    )
    page = Page(make_report(both))
    assert "Overview: 2 workloads" in page.words
    anchors = {a["id"] for t, a in page.elements if t == "h2"}
    links = {a["href"][1:] for t, a in page.elements if t == "a"}
    assert {"w0", "w1"} <= links & anchors


def test_without_a_goal_the_report_asks_for_one():
    trial = MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (9, {METRIC: 0.05})])
    assert "--goal" in Page(make_report(make_records([MadeStudy(8, [trial])]))).words


def test_a_report_is_an_html_file(tmp_path: Path):
    with pytest.raises(SpecError, match=r"report\.pdf"):
        write_report(simulated((1,), 1), tmp_path / "report.pdf", GOAL)
    assert not list(tmp_path.iterdir())


def test_raced_trials_are_not_said_to_have_run_to_their_end():
    trials = [
        MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (100, {METRIC: 0.05})]),
        MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (1000, {METRIC: 0.3})]),
    ]
    raced = make_records([MadeStudy(8, trials)])
    studies = raced.studies.with_columns(early_stopping=pl.lit(True))
    said = status_sentence(Records(studies, raced.trials, raced.sources))
    assert said == (
        "1 COMPLETE trial ran through the budget, 1 COMPLETE trial ended before by the stop rule, at the goal or out "
        "of the race."
    )
    assert status_sentence(raced) == "2 COMPLETE trials ran through the budget."


def test_batch_sizes_without_training_curves_are_named(page: Page):
    assert "Training curves are drawn for batch sizes 1, 64, 1,024; those of 4, 16, 256 are left out" in page.words


def test_the_bars_are_called_what_they_are(page: Page):
    assert (
        "90\N{NO-BREAK SPACE}% intervals for the median of what fresh searches of the same size would find"
        in page.words
    )
    assert "nine of ten" not in page.words


def test_one_trial_is_one_trial():
    words = Page(make_report(BAD_INPUT["one_trial_in_all"](), GOAL)).words
    assert "· 1 trial" in words and "1 trials" not in words


def test_the_experiment_file_is_on_the_page_as_it_was_written():
    text = 'goal = "val/classification_error < 0.1"  # <b>mine</b>'
    trial = MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (9, {METRIC: 0.05})])
    studies = [MadeStudy(size, [trial], facts=StudyMetadata(experiment=text)) for size in (8, 64)]
    words = Page(make_report(make_records(studies), GOAL)).words
    assert words.count(text) == 1 and "save it as experiment.toml" in words
    assert "save it as experiment.toml" not in Page(make_report(make_records([MadeStudy(8, [trial])]), GOAL)).words
