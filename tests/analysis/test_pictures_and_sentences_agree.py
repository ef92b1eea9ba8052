"""One source for regimes: the picture, its data, JSON and `compare` claim what the sentences beside them state.

The test reads only what users read (text, JSON keys, columns, the shades of the chart's specification).
"""

import re

import numpy as np
import pytest
from build_records import METRIC, NAME, curve_studies, make_records
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.analysis import AnalysisOptions, Baseline, analyze, answer_sentences, compare
from batchscale.analysis.as_json import analysis_json
from batchscale.figures.export import chart_spec
from batchscale.figures.kinds.curve import analysis_frame, plot_curve
from batchscale.figures.theme import LIGHT
from batchscale.spec.goal import Goal

GOAL = Goal(METRIC, 0.1)
FINISHERS = {"one trial": (1.0,), "five trials": (1.0, 1.05, 1.1, 1.3, 2.0), "wide": (1.0, 1.4, 2.1, 3.0, 5.0)}


@st.composite
def curves(draw):
    """Steps of a law S_min (1 + (B_crit/B)^k)^(1/k) with noise, perhaps too slow at small sizes or long beyond it."""
    count = draw(st.integers(2, 9))
    spacing = draw(st.sampled_from([1.15, 2.0, 4.0]))
    sizes = sorted({round(64 * spacing**i) for i in range(count)})
    critical = sizes[0] * (sizes[-1] / sizes[0]) ** draw(st.floats(-0.3, 1.3))
    sharpness = draw(st.sampled_from([1.0, 2.0, 8.0]))
    noise = draw(st.sampled_from([0.0, 0.03, 0.1, 0.3]))
    left_branch = draw(st.sampled_from([0.0, 0.0, 0.5]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    array = np.array(sizes, float)
    steps = 3000 * (1 + (critical / array) ** sharpness) ** (1 / sharpness)
    steps *= np.exp(noise * rng.normal(size=len(sizes)))
    steps *= 1 + left_branch * np.arange(len(sizes))[::-1] / len(sizes)
    return dict(zip(sizes, np.maximum(steps.round(), 30.0).tolist(), strict=True))


def shades(answer):
    """The shaded stretches of the chart by the colour of their regime."""
    spec = chart_spec(plot_curve(analysis_frame(answer)))
    names = {LIGHT.shade[0]: "perfect", LIGHT.shade[1]: "maximal"}
    return {
        names[layer["mark"]["color"]]: (row["from"], row["to"])
        for layer in spec["layer"]
        if layer["mark"]["type"] == "rect" and layer["mark"]["color"] in names
        for row in spec["datasets"][layer["data"]["name"]]
    }


def sizes_in(pattern, text):
    match = re.search(pattern, text)
    return match and tuple(int(number.replace(",", "")) for number in match.groups())


USE = r"Use (?:up to batch size|batch sizes [\d,]+ to) ([\d,]+)"


def claimed_proportion(text, points, data):
    """The sizes over which the text claims perfect scaling whatever the noise: up to the lower end in brackets."""
    reference = data["cheapest_batch_size"] if data["baseline"] == "robust" else min(points)
    level = 1.3 * reference * points[reference]
    dear = [size for size in points if size < reference and size * points[size] > level * (1 + 1e-12)]
    first = min(size for size in points if size > max(dear, default=0))
    ends = sizes_in(r"ends somewhere between batch size ([\d,]+) and", text)
    ends = ends or sizes_in(USE + r" \(([\d,]+) to", text) or sizes_in(USE, text)
    end = ends[-1] if ends else first
    return (first, end) if end > 1.3 * first else None  # sizes that are closer show nothing


@settings(deadline=None, max_examples=60)
@given(points=curves(), finishers=st.sampled_from(sorted(FINISHERS)), baseline=st.sampled_from(list(Baseline)))
def test_picture_json_and_comparison_claim_what_the_sentence_states(points, finishers, baseline):
    records = make_records(curve_studies(points, factors=FINISHERS[finishers]))
    answer = analyze(records, NAME, GOAL, AnalysisOptions(baseline))
    text = " ".join(answer_sentences(answer))
    data = analysis_json(answer)["scaling"]
    frame = analysis_frame(answer)
    row = compare({"one": answer, "other": answer}).table.row(0, named=True)
    picture = shades(answer)

    for key in ("perfect_scaling_end", "max_useful_batch_size", "max_useful_reached"):
        assert data[key] == row[key] == frame[key][0], key
    assert data["perfect_scaling_end"] == data["proportional_end"]

    sure = claimed_proportion(text, points, data)
    assert picture.get("perfect") == sure
    if "at little extra cost" in text or "at no extra cost" in text:
        assert data["perfect_scaling_end"] == sizes_in(USE, text)[-1]

    plateau = sizes_in(r"Above ([\d,]+)(?: \([^)]*\))? (?:a larger batch saves|no larger batch saved)", text)
    reached = data["max_useful_reached"]
    assert reached is (data["ending"] == "reached")
    if not reached:
        assert "maximal" not in picture
        assert "a larger batch saves at most" not in text
        assert data["max_useful_batch_size"] == max(points)
    else:
        assert plateau is None or data["max_useful_batch_size"] == plateau[0]
        start = max(data["max_useful_batch_size"], data["perfect_scaling_end"])
        end = max(points)
        if "Do not go there" in text:  # the ground ends before the sizes that the sentence warns of
            end = max([start, *(picture["maximal"][1:] if "maximal" in picture else ())])
            assert end < max(points)
        assert picture.get("maximal") == ((start, end) if start < end else None)
    for low, value, high in [
        (data[f"{key}_low"], data[key], data[f"{key}_high"]) for key in ("perfect_scaling_end", "max_useful_batch_size")
    ]:
        assert (low is None or low <= value) and (high is None or value <= high)


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_an_undecided_plateau_is_not_shaded_as_maximal_data_parallelism(noise):
    """A noisy last doubling that happened to fall by less than 10 % decides nothing."""
    rng = np.random.default_rng(1)
    undecided = 0
    for _ in range(12):
        sizes = 2.0 ** np.arange(4, 11)
        steps = 2000 * (1 + 256 / sizes) * np.exp(noise * rng.normal(size=len(sizes)))
        records = make_records(curve_studies(dict(zip(sizes.astype(int).tolist(), steps.tolist(), strict=True))))
        answer = analyze(records, NAME, GOAL)
        if "to see if steps fall further" in " ".join(answer_sentences(answer)):
            undecided += 1
            assert "maximal" not in shades(answer)
            assert analysis_json(answer)["scaling"]["max_useful_reached"] is False
    assert undecided
