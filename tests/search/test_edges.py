import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.search.edge_guard import RankedTrial, Side, edge_distances, far_ends, find_edges, propose_space
from batchscale.search.points import to_unit, to_value
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace, natural_bounds

RATE = ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-3, 10, Scale.LOG)
MOMENTUM = ParameterConfig("momentum", ParameterType.DOUBLE, 0.9, 0.9999, Scale.REVERSE_LOG)
SMOOTHING = ParameterConfig("label_smoothing", ParameterType.DISCRETE, feasible_points=(0.0, 0.1))
SPACE = SearchSpace((RATE, MOMENTUM, SMOOTHING))


def at(rate_unit, momentum_unit):
    return {
        "learning_rate": to_value(RATE, rate_unit),
        "momentum": to_value(MOMENTUM, momentum_unit),
        "label_smoothing": 0.0,
    }


def ends_of(space, values, margin=0.05):
    """The ends that a single trial lies at: with nothing to compare it with, the margin alone decides."""
    return list(find_edges([space], [RankedTrial(values, (1.0,))], margin))


def test_distances_are_shares_of_the_unit_range_and_discrete_has_no_edge():
    found = {(edge.parameter, edge.side): edge.distance for edge in edge_distances(SPACE, at(0.25, 0.9))}
    assert found == pytest.approx(
        {
            ("learning_rate", Side.LOW): 0.25,
            ("learning_rate", Side.HIGH): 0.75,
            ("momentum", Side.LOW): 0.9,
            ("momentum", Side.HIGH): 0.1,
        }
    )


def test_a_trial_within_the_margin_is_at_the_edge_and_one_outside_it_is_not():
    assert [(e.parameter, e.side) for e in ends_of(SPACE, at(0.049, 0.5))] == [("learning_rate", Side.LOW)]
    assert ends_of(SPACE, at(0.051, 0.5)) == []
    assert [(e.parameter, e.side) for e in ends_of(SPACE, at(0.5, 0.99), margin=0.02)] == [("momentum", Side.HIGH)]


def test_an_end_is_as_far_as_the_space_that_reaches_furthest_has_it():
    moved = propose_space(SPACE, ends_of(SPACE, at(0.99, 0.5)))  # the learning rate's range moves up by a half
    found = {(edge.parameter, edge.side): edge.distance for edge, _ in far_ends([SPACE, moved], at(0.99, 0.5))}
    assert found == pytest.approx(
        {
            ("learning_rate", Side.LOW): 0.99,
            ("learning_rate", Side.HIGH): 0.51,
            ("momentum", Side.LOW): 0.5,
            ("momentum", Side.HIGH): 0.5,
        }
    )
    assert [edge for edge, _ in far_ends([SPACE], at(0.2, 0.5))] == edge_distances(SPACE, at(0.2, 0.5))


def test_a_range_that_ends_where_the_metaparameter_ends_has_no_edge_there():
    space = SearchSpace((ParameterConfig("momentum", ParameterType.DOUBLE, 0, 0.99, Scale.REVERSE_LOG),))
    assert ends_of(space, {"momentum": 0.0}) == []
    assert edge_distances(space, {"momentum": 0.0})[0].natural


def test_a_log_range_moves_outwards_by_half_its_width():
    moved = propose_space(SPACE, ends_of(SPACE, at(0.99, 0.5)))["learning_rate"]
    assert (moved.min_value, moved.max_value) == pytest.approx((0.1, 1000))


def test_a_reverse_log_range_moves_towards_one_and_never_reaches_it():
    space = SPACE
    for _ in range(20):
        space = propose_space(space, ends_of(space, at(0.5, 0.5) | {"momentum": space["momentum"].max_value}))
    assert 0.9999 < space["momentum"].max_value < 1


def test_a_moved_range_is_cut_at_the_natural_bound():
    space = SearchSpace((ParameterConfig("momentum", ParameterType.DOUBLE, 0.2, 0.9),))
    moved = propose_space(space, ends_of(space, {"momentum": 0.2}))["momentum"]
    assert (moved.min_value, moved.max_value) == pytest.approx((0.0, 0.55))


def test_an_integer_range_stays_whole():
    steps = ParameterConfig("learning_rate_decay_steps", ParameterType.INTEGER, 100, 201)
    space = SearchSpace((steps,))
    edges = ends_of(space, {"learning_rate_decay_steps": 201})
    moved = propose_space(space, edges)["learning_rate_decay_steps"]
    assert moved.min_value.is_integer() and moved.max_value.is_integer()
    assert moved.max_value > 201
    assert propose_space(space, edges, train_steps=230)["learning_rate_decay_steps"].max_value == 230


def test_a_range_counted_in_steps_that_reaches_the_budget_has_no_edge_there():
    steps = ParameterConfig("learning_rate_decay_steps", ParameterType.INTEGER, 250, 500)
    trials = [RankedTrial({"learning_rate_decay_steps": 500}, (1.0,))]
    assert find_edges([SearchSpace((steps,))], trials, train_steps=500) == ()
    assert len(find_edges([SearchSpace((steps,))], trials, train_steps=1000)) == 1


@given(
    st.sampled_from([RATE, MOMENTUM, ParameterConfig("l2_penalty", ParameterType.DOUBLE, 1e-6, 1e-2, Scale.LOG)]),
    st.sampled_from([0.0, 0.01, 0.99, 1.0]),
    st.integers(1, 12),
)
def test_however_often_it_moves_a_range_stays_within_its_natural_bounds_and_not_empty(config, unit, times):
    space = SearchSpace((config,))
    for _ in range(times):
        values = {config.name: to_value(space[config.name], unit)}
        space = propose_space(space, ends_of(space, values))
    moved = space[config.name]
    bounds = natural_bounds(config.name)
    assert bounds.contains(moved.min_value) and bounds.contains(moved.max_value)
    assert moved.min_value < moved.max_value


def test_the_winner_of_the_old_space_lies_inside_the_new_one():
    values = at(0.98, 0.03)
    moved = propose_space(SPACE, ends_of(SPACE, values))
    for name in ("learning_rate", "momentum"):
        assert 0.3 < to_unit(moved[name], values[name]) < 0.7
