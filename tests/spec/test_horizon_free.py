"""The keys of protocols without a horizon: what they mean in steps, and what is refused."""

import pytest

from batchscale.errors import SpecError
from batchscale.spec.durations import Unit
from batchscale.spec.file import parse_experiment
from batchscale.spec.horizon_free import Averaging, average_interval
from batchscale.study.identity import normalise, spec_hash

MINIMAL = """
workload = "digits/fc_64/sgd"
goal = "val/classification_error < 0.1"
"""
TRAINER = """
[search.fixed]
rate = 1
[trainer]
command = ["true"]
"""


def averaging_of(text: str) -> Averaging:
    averaging = parse_experiment(f"{MINIMAL}[averaging]\n{text}\n").averaging
    assert averaging is not None
    return averaging


def test_half_lives_become_steps_at_each_batch_size():
    assert averaging_of("half_life = [10, 20.5]").steps(64, None) == (10.0, 20.5)
    assert averaging_of('half_life = 320\nunit = "examples"').steps(64, None) == (5.0,)
    assert averaging_of('half_life = [0.5]\nunit = "epochs"').steps(50, 1000) == (10.0,)
    assert averaging_of('half_life = 1_000_000\nunit = "tokens"').steps(32, tokens_per_example=125) == (250.0,)
    with pytest.raises(SpecError, match="need the tokens of an example"):
        averaging_of('half_life = 1_000_000\nunit = "tokens"').steps(32)
    with pytest.raises(SpecError, match=r"at most 2,147,483,647 steps. Found 1e\+30"):
        averaging_of("half_life = [1, 1e30]").steps(32)
    with pytest.raises(SpecError, match="a half-life in epochs needs a training set of fixed size"):
        Averaging((1.0,), Unit.EPOCHS).steps(8, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("half_life = 0", r"half_life must be 1 to 16 numbers above 0. Found \[0.0\]; for the weights without"),
        ("half_life = [-5, 3]", r"numbers above 0. Found \[-5.0, 3.0\]"),
        ("half_life = []", r"numbers above 0. Found \[\]"),
        ("half_life = [5, 5]", r"half_life must grow from one average to the next. Found \[5.0, 5.0\]"),
        ("half_life = [9, 5]", r"half_life must grow"),
        (f"half_life = {list(range(1, 18))}", "1 to 16 numbers"),
        ("half_life = inf", "'averaging.half_life"),
        ('half_life = ["a"]', "'averaging.half_life"),
        ('half_life = 5\nunit = "hours"', "'averaging.unit'"),
        ("", "key 'averaging.half_life' is required but missing"),
        ("half_lives = [5]", "unknown key 'averaging.half_lives'"),
    ],
)
def test_other_half_lives_are_refused_with_their_key(text, message):
    with pytest.raises(SpecError, match=message):
        averaging_of(text)


def test_a_script_that_only_prints_cannot_average():
    text = f"{MINIMAL}[averaging]\nhalf_life = 5\n{TRAINER}"
    assert parse_experiment(text).averaging == Averaging((5.0,))
    with pytest.raises(SpecError, match="key 'averaging' needs a script"):
        parse_experiment(text + '[trainer.reports]\npattern = "{step} {val/error}"\n')


def test_averages_are_part_of_the_experiment_and_their_absence_leaves_old_folders_as_they_are():
    plain, averaged = parse_experiment(MINIMAL), parse_experiment(f"{MINIMAL}[averaging]\nhalf_life = 5\n")
    assert not [key for key in normalise(plain) if key.startswith("averaging")]
    assert spec_hash(plain) != spec_hash(averaged)


def test_averages_are_updated_at_least_32_times_in_the_shortest_half_life():
    assert [average_interval([half_life, 1e6]) for half_life in (0.1, 63.9, 64, 3200)] == [1, 1, 2, 64]
