"""The drawing of a curve with characters."""

from batchscale.analysis.regimes import Regime, RegimeSpan
from batchscale.cli.drawing import Drawing, draw_curve

POINTS = [(1, 1000.0), (16, 70.0), (256, 20.0)]


def test_points_stand_at_their_batch_sizes_and_regimes_below():
    spans = [RegimeSpan(Regime.PERFECT, 1, 16), RegimeSpan(Regime.MAXIMAL, 16, 256)]
    lines = draw_curve(Drawing(POINTS, critical=16, spans=spans), width=41, height=7).splitlines()
    margin = lines[-2].index("1")
    assert [lines[0][margin], lines[-2][margin + 20 : margin + 22], lines[6][margin + 40]] == ["●", "16", "●"]
    assert lines[-1][margin:] == "├─ perfect scaling ─┼─ no further gain ─┤"
    assert lines[0][margin + 20] == "┊" and lines[-3][margin + 20] == "┴"


def test_nothing_outside_of_the_frame_is_drawn():
    far = [(1, 1e9), (256, 1e-3)]
    text = draw_curve(Drawing(POINTS, line=far, critical=1e6, spans=[RegimeSpan(Regime.PERFECT, 1, 4096)]), width=20)
    assert "┊" not in text and "├" not in text
    assert draw_curve(Drawing([])) == "(nothing to draw)"
