import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from synthetic_archive import Scale, published_studies, write_tree

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError
from batchscale.figures.theme import DARK


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "tree"
    chosen = [study for study in published_studies() if (study.dataset, study.model) == ("cifar_10", "resnet_8")]
    write_tree(folder, Scale(trials=1 / 20, measurements=1 / 10), studies=chosen)
    return folder


def run(*arguments: object):
    result = CliRunner().invoke(make_app(), [str(a) for a in arguments], catch_exceptions=True)
    if isinstance(result.exception, BatchscaleError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_a_figure_and_its_data_are_written(tree: Path, tmp_path: Path):
    out, csv = tmp_path / "curve.svg", tmp_path / "curve.csv"
    run("figure", "curve", tree, "--goal", "val/classification_error < 0.3", "--out", out, "--csv", csv)
    assert out.read_text().startswith("<svg")
    frame = pl.read_csv(csv)
    assert sorted(frame["optimizer"].unique()) == ["nesterov_momentum", "sgd"]
    assert frame["batch_size"].drop_nulls().n_unique() == 13


def test_options_narrow_the_figure(tree: Path, tmp_path: Path):
    csv = tmp_path / "c.csv"
    run(
        "figure", "curves", "--data", tree, "--workload", "cifar_10/resnet_8/sgd", "--batch-size", 2, "--batch-size",
        64, "--normalise-at", 2, "--theme", "dark", "--out", tmp_path / "c.json", "--csv", csv,
    )  # fmt: skip
    frame = pl.read_csv(csv)
    assert frame["batch_size"].to_list() == [2, 64]
    assert frame["value"][0] == 1
    assert DARK.ground in (tmp_path / "c.json").read_text()


def test_a_published_workload_needs_no_goal_and_a_paper_figure_says_missing_sentences(tree: Path, tmp_path: Path):
    run("figure", "metaparameter", tree, "--metaparameter", "learning_rate", "--out", tmp_path / "m.svg")
    result = run("figure", "paper-4", "--data", tree, "--out", tmp_path / "p.svg")
    assert "no records of mnist/simple_cnn_base/sgd" in result.stderr
    assert "ResNet-8 on CIFAR-10" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["curve", "TREE", "--out", "x.gif"], "x.gif"),
        (["curv", "TREE", "--out", "x.png"], "did you mean 'curve'"),
        (["paper-99", "--data", "TREE", "--out", "x.png"], "figures 1 to 24"),
        (["curve", "TREE"], "needs --out"),
        (["curve", "--out", "x.png"], "needs PATH"),
        (["curve", "TREE", "--out", "x.png", "--workload", "a/b/c"], "no records of"),
        (["curve", "TREE", "--out", "x.png", "--batch-size", "3"], "No study has batch size 3"),
        (["curve", "TREE", "--out", "x.png", "--goal", "error"], "A goal must be"),
        (["curve", "TREE", "--out", "x.png", "--theme", "pink"], "No theme"),
        (["map", "TREE", "--out", "x.png", "--steps", "-1"], "positive number"),
        (["curve", "/nowhere/at/all", "--out", "x.png"], "Found nothing"),
    ],
)
def test_mistakes_are_refused_and_nothing_is_written(tree: Path, tmp_path: Path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BatchscaleError, match=message):
        run("figure", *(str(tree) if a == "TREE" else a for a in arguments))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_all_figures_are_drawn_from_the_synthetic_archive(tmp_path: Path):
    write_tree(tmp_path / "tree", Scale(trials=1 / 50, measurements=1 / 10))
    run("figure", "--all", "--data", tmp_path / "tree", "--out", tmp_path / "figures")
    pictures = sorted((tmp_path / "figures").glob("*.png"))
    assert len(pictures) == 24 and all(picture.stat().st_size > 10_000 for picture in pictures)
    assert len(list((tmp_path / "figures").glob("*.csv"))) == 24
