from pathlib import Path

import polars as pl
import pytest
from made_records import GOAL

from batchscale.errors import SpecError, UnknownNameError
from batchscale.figures.export import write_chart, write_frame
from batchscale.figures.kinds.curve import curve_frame, plot_curve
from batchscale.figures.theme import DARK, LIGHT, find_theme, series_colours

STARTS = {".png": b"\x89PNG", ".svg": b"<svg", ".pdf": b"%PDF", ".html": b"<!DOCTYPE html>", ".json": b"{"}


def test_a_chart_becomes_every_format_and_leaves_nothing_beside(curve_records, tmp_path: Path):
    chart = plot_curve(curve_frame(curve_records, GOAL))
    for suffix, start in STARTS.items():
        write_chart(chart, tmp_path / "deep" / f"figure{suffix}")
        assert (tmp_path / "deep" / f"figure{suffix}").read_bytes().startswith(start)
    assert len(list((tmp_path / "deep").iterdir())) == len(STARTS)


def test_a_page_has_its_scripts_inside(curve_records, tmp_path: Path):
    write_chart(plot_curve(curve_frame(curve_records, GOAL)), tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "src=" not in page.split("<body>")[1]
    assert "default-src 'none'" in page and "unsafe-eval" not in page
    assert "vegaEmbed" in page


def test_an_unknown_suffix_is_refused_before_anything_is_written(tmp_path: Path):
    with pytest.raises(SpecError, match=r"figure\.gif"):
        write_chart(None, tmp_path / "figure.gif")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_is_a_clear_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="can be written"):
        write_frame(pl.DataFrame({"a": [1]}), tmp_path / "file" / "figure.csv")


def test_the_data_behind_a_chart_reads_back(curve_records, tmp_path: Path):
    frame = curve_frame(curve_records, GOAL)
    write_frame(frame, tmp_path / "data.csv")
    assert pl.read_csv(tmp_path / "data.csv")["steps"].to_list() == frame["steps"].to_list()


def _contrast(first: str, second: str) -> float:
    """The contrast ratio of WCAG 2."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_and_marks_stand_out_from_their_ground(theme):
    for ground in (theme.ground, *theme.shade):
        assert _contrast(theme.text, ground) > 7
        assert _contrast(theme.muted, ground) > 4.5
    for colour in (*theme.series, theme.good, theme.bad):
        assert _contrast(colour, theme.ground) >= 3  # WCAG's least for graphics


def test_no_colour_stands_for_two_roles():
    for theme in (LIGHT, DARK):
        colours = [theme.ground, theme.text, theme.muted, theme.grid, theme.frame, theme.good, theme.poor, theme.bad]
        colours += [theme.star, *theme.shade, *theme.series]
        assert len(set(colours)) == len(colours)


def test_ordered_series_get_as_many_colours_as_there_are():
    assert len(set(series_colours(LIGHT, 12, ordered=True))) == 12
    assert len(set(series_colours(LIGHT, 12))) == 12


def test_an_unknown_theme_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'dark'"):
        find_theme("darkk")
