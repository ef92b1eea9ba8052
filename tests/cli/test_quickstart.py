"""``batchscale quickstart`` as a user runs it, on the workload without data."""

import json
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import UnknownNameError


def quickstart(tmp_path, *more: str) -> str:
    words = [sys.executable, "-m", "batchscale", "quickstart", "--workload", "noisy_quadratic", "--workers", "2", *more]
    return subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_quickstart_ends_with_curve_regimes_and_report_and_does_nothing_twice(tmp_path):
    first = quickstart(tmp_path)
    folder = tmp_path / "batchscale-quickstart" / "noisy_quadratic"
    for word in ("closed form", "more examples", "critical batch size", "Your own"):
        assert word in " ".join(first.split())  # lines are broken at the terminal's width
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    before = {path: path.read_bytes() for path in folder.glob("records/noisy_quadratic/**/*") if path.is_file()}
    table = re.findall(r"^ *[\d,]+ +[\d,]+ .*$", first, re.MULTILINE)
    assert len(table) >= 6
    again = quickstart(tmp_path)
    assert re.findall(r"^ *[\d,]+ +[\d,]+ .*$", again, re.MULTILINE) == table
    assert {path: path.read_bytes() for path in before} == before
    told = json.loads(quickstart(tmp_path, "--json"))
    assert (told["version"], len(told["curve"]) >= 6, told["report"].endswith("report.html")) == (1, True, True)


def test_an_unknown_workload_is_refused():
    result = CliRunner().invoke(make_app(), ["quickstart", "--workload", "digit"])
    assert isinstance(result.exception, UnknownNameError)
    assert "digits" in str(result.exception)
