"""The population size: which one is chosen, when nothing is measured, and that workers agree."""

from batchscale.training import sizes
from batchscale.training.sizes import (
    PopulationChoice,
    choose_microbatch,
    choose_population,
    example_bytes,
    load_or_choose,
    measure_advance,
    memory_bytes,
    microbatch_bytes,
)
from batchscale.training.training_data import make_probe


def choose(times, trial_steps=10**9, most=64, accelerator=False):
    asked = []

    def measure(slots):
        asked.append(slots)
        return times[slots]

    return choose_population(measure, trial_steps, most, accelerator).population, asked


def test_the_fastest_population_wins_and_a_small_gain_is_none():
    assert choose({1: 1e-3, 4: 4e-4, 16: 3.9e-4}) == (4, [1, 4, 16])
    assert choose({1: 1e-3, 4: 9.5e-4}) == (1, [1, 4])
    assert choose({1: 1e-3, 4: 5e-4, 16: 2e-4, 64: 1e-4}) == (64, [1, 4, 16, 64])


def test_no_more_slots_than_trials_or_memory():
    assert choose({1: 1e-3, 4: 4e-4}, most=15) == (4, [1, 4])


def test_long_steps_on_a_cpu_and_short_studies_are_not_measured_further():
    assert choose({1: 0.5}) == (1, [1])
    assert choose({1: 0.5, 4: 0.2, 16: 0.2}, accelerator=True) == (4, [1, 4, 16])
    assert choose({1: 1e-3}, trial_steps=100) == (1, [1])


def test_the_first_choice_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path))
    assert load_or_choose("key", lambda: PopulationChoice(4, {})).population == 4
    assert load_or_choose("key", lambda: PopulationChoice(16, {})).population == 4
    assert load_or_choose("other", lambda: PopulationChoice(16, {})).population == 16


def test_a_damaged_choice_is_measured_again(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path))
    load_or_choose("key", lambda: PopulationChoice(4, {}))
    (path,) = tmp_path.rglob("key.json")
    path.write_text("{")
    assert load_or_choose("key", lambda: PopulationChoice(16, {})).population == 16


def test_the_memory_of_an_example_grows_with_the_model(toy, toy_of):
    small, large = (example_bytes(workload, make_probe(workload.dataset)) for workload in (toy, toy_of(hidden=800)))
    # at least the hidden layer forward and backward, at most some copies of it
    assert 2 * 800 * 4 <= large <= 40 * 800 * 4
    assert small < large / 10


def test_a_batch_beyond_memory_is_split_into_whole_ghost_batches():
    assert choose_microbatch(4096, 32, bytes_per_example=2**20, available=2**30) == 1024
    assert choose_microbatch(4096, 32, bytes_per_example=2**30, available=2**30) == 32
    assert choose_microbatch(100, 1, bytes_per_example=1, available=2**30) == 100


def test_a_cpu_takes_batches_in_pieces_that_stay_in_the_cache_but_are_large_beside_the_parameters(monkeypatch):
    monkeypatch.setattr(sizes, "count_memory_bytes", lambda: 2**50)
    few, many = (microbatch_bytes(1, parameter_bytes=count) for count in (10_000, 10**9))
    assert choose_microbatch(8192, 1, bytes_per_example=2**20, available=few) == 64
    assert choose_microbatch(8192, 1, bytes_per_example=2**20, available=many) == 8192


def test_an_engine_may_use_its_share_of_what_the_container_has(monkeypatch):
    monkeypatch.setattr(sizes, "count_memory_bytes", lambda: 10**9)
    monkeypatch.setattr(sizes, "count_cores", lambda: 4)
    assert memory_bytes() == int(0.4 * 10**9 / 4)


def test_a_clearly_short_study_is_timed_no_longer_than_it_takes_to_see():
    calls = []
    assert measure_advance(calls.append, trial_steps=100) < 1e-2
    assert calls == [1, 1]  # the one that compiles, and the one that is timed
