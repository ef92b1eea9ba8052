import threading

from batchscale.cli.stages import Stages


def test_what_ends_within_a_moment_says_nothing(capsys):
    with Stages(quiet_s=60) as stages:
        stages.enter("drawing")
    assert capsys.readouterr().err == ""


def test_what_takes_longer_names_its_stage_on_standard_error(capsys):
    with Stages(quiet_s=0.01, every_s=0.01) as stages:
        stages.enter("drawing 24 panels")
        threading.Event().wait(0.5)
    shown = capsys.readouterr()
    assert "drawing 24 panels …" in shown.err and shown.out == ""
