"""Each of the paper's model families learns on real images or text, at a small size, within so many steps."""

import math

import pytest
from families import FAMILIES, train_family

CHANCE = {"imagenet": math.log(10), "digits": math.log(10), "text": math.log(600)}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_training_loss_falls_well_below_chance(name, tmp_path):
    family = FAMILIES[name]
    learned = train_family(family, tmp_path)
    chance = CHANCE[family.workload.partition("/")[0]]
    # measured: 0.1 to 0.8 of chance; a network that learns nothing stays at 1
    assert learned.end < 0.9 * chance
    assert learned.end < 0.9 * learned.start
