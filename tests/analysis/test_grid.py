"""Grids of runs: the file, the best losses, and curves of equal loss between budgets."""

import numpy as np
import pytest

from batchscale.analysis.grid import best_losses, is_grid_file, iso_loss_curves, read_grid, tokens_to_loss
from batchscale.errors import AnalysisError

BUDGETS = (1e9, 2e9, 4e9, 8e9)
SIZES = (2**16, 2**18, 2**20)


def loss(parameters: float, tokens: float, size: float, rate: float = 1e-3) -> float:
    """A loss that falls with log tokens, so that the interpolation in log tokens is exact."""
    return (
        5
        - 0.1 * np.log(tokens)
        + (np.log(size / 2**18)) ** 2 * 0.01
        + np.log(rate / 1e-3) ** 2 * 0.02
        + 1e6 / parameters
    )


def write(path, rows, header="parameters,tokens,batch_size,learning_rate,loss"):
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def grid_rows(scale: float = 1.0):
    rates = (5e-4, 1e-3, 2e-3)
    return [(1e8, t, b / scale, r, loss(1e8, t, b, r)) for t in BUDGETS for b in SIZES for r in rates]


def test_tokens_to_a_loss_are_interpolated_between_budgets():
    tokens, losses = np.array([1e9, 4e9, 16e9]), np.array([3.0, 2.5, 2.0])
    assert tokens_to_loss(2.75, tokens, losses) == pytest.approx(2e9)
    assert tokens_to_loss(1.9, tokens, losses) is None


def test_curves_of_equal_loss_are_the_closed_form(tmp_path):
    grid = read_grid(write(tmp_path / "grid.csv", grid_rows()))
    goal = 5 - 0.1 * np.log(3e9) + 0.01
    (curve,) = iso_loss_curves(grid, [goal])
    for size, steps in curve.points.rows():
        exact = np.exp((loss(1e8, 1.0, size) - goal) / 0.1)
        assert steps * size == pytest.approx(exact, rel=1e-9)
    assert len(iso_loss_curves(grid)) == 3 and curve.fewest_tokens == pytest.approx(3e9 * np.exp(-0.0), rel=0.2)


def test_sequences_become_tokens_and_other_names_are_understood(tmp_path):
    plain = read_grid(write(tmp_path / "a.csv", grid_rows()))
    path = write(tmp_path / "b.csv", grid_rows(2048), "N,D,batch_sequences,lr,loss")
    assert is_grid_file(path) and read_grid(path, 2048).equals(plain)
    with pytest.raises(AnalysisError, match="--sequence 2048"):
        read_grid(path)


def test_the_best_learning_rate_is_taken_and_diverged_runs_are_left_out(tmp_path):
    rows = [(1e8, 1e9, 2**16, 1e-3, "nan"), (1e8, 1e9, 2**16, 5e-4, 3.1), (1e8, 1e9, 2**16, 2e-3, "")]
    best = best_losses(read_grid(write(tmp_path / "a.csv", rows)))
    assert best.select("learning_rate", "loss").rows() == [(5e-4, 3.1)]


def test_steps_stand_for_tokens_and_uneven_budgets_are_one(tmp_path):
    """Whole steps of 1,536 sequences make 119,808 of them, of 24 sequences 120,000."""
    rows = [
        (1e7, round(budget / size), size, 3 + size / budget)
        for budget in (120_000, 480_000)
        for size in (24, 384, 1536)
    ]
    path = write(tmp_path / "steps.csv", rows, "N,K,B,loss")
    grid = read_grid(path)
    assert is_grid_file(path) and grid["tokens"].n_unique() == 2
    assert grid["tokens"].min() == pytest.approx(120_000, rel=0.002)
    assert len(iso_loss_curves(grid, [3.004])[0].points) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Missing: parameters"),
        ("a,b\n1,2\n", "Missing: parameters, tokens, batch_size, loss"),
        ("N,D,B,loss\n1,2,3\n", "line 2: a row has 4 cells"),
        ("N,D,B,loss\n1,2,-3,2\n", "line 2: batch_size is a positive number"),
        ("N,D,B,loss\n1,2,3,x\n", "line 2: loss is a number"),
        ("N,D,B,loss\n1,2,3,nan\n", "at least one run with a loss"),
    ],
)
def test_a_bad_file_is_explained_with_its_line(tmp_path, text, message):
    path = tmp_path / "grid.csv"
    path.write_text(text)
    with pytest.raises(AnalysisError, match=message):
        read_grid(path)
