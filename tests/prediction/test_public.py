"""Predictions from the atlas and from published laws: no cost, and a reason where nothing is known."""

import pytest

from batchscale.atlas.similar import OwnCurve
from batchscale.atlas.table import read_atlas
from batchscale.prediction.public import atlas_prediction, law_predictions


def test_the_nearest_workloads_bound_the_prediction(tmp_path):
    atlas = read_atlas(tmp_path)
    prediction = atlas_prediction(OwnCurve("mnist", "fc_1024", "sgd", "fully connected"), atlas)
    estimate = prediction.estimate
    assert prediction.trial_steps == 0 and "range" in prediction.assumption
    assert estimate.low <= estimate.value <= estimate.high
    assert 100 < estimate.value < 1000  # of fully connected networks on MNIST


def test_sequences_are_converted_to_own_tokens(tmp_path):
    atlas = read_atlas(tmp_path)
    atlas = atlas.select(atlas.curves.filter(source="step_law"))  # all in sequences of one length
    own = OwnCurve("text", "gpt_100k", "adamw", "language model")
    long, short = (atlas_prediction(own, atlas, tokens).estimate.value for tokens in (2048, 64))
    assert short == pytest.approx(32 * long)


@pytest.mark.parametrize("own", [OwnCurve(kind="other"), OwnCurve("mine", "my_net", "sgd", "other")])
def test_a_workload_that_shares_nothing_but_its_optimizer_has_a_reason(own, tmp_path):
    prediction = atlas_prediction(own, read_atlas(tmp_path))
    assert prediction.estimate.value is None and prediction.reason


def test_laws_are_of_language_models_with_tokens():
    critical, optimal = law_predictions("language model", 20e9, 2048)
    assert critical.estimate.value == pytest.approx(0.0471 * 20e9**0.462)  # Power Lines, in its own sequences
    assert optimal.estimate.low < optimal.estimate.value < optimal.estimate.high
    for prediction in (*law_predictions("convolutional", 1e9, 1), *law_predictions("language model", None, None)):
        assert prediction.estimate.value is None and prediction.reason
