from pathlib import Path

import pytest

from batchscale.records.read import read_records
from batchscale.report.machines import PlanningFiles
from batchscale.report.page import make_report

RECORDS = Path(__file__).parents[2] / "examples" / "mnist_fc_records"
MACHINE = '[[machine]]\nname = "a<b>"\ndevice = "{}"\ndevices_per_host = 1\nprice_per_host_hour = 0.2\nunit = "EUR"\n'


@pytest.fixture(scope="module")
def records():
    chosen = read_records(RECORDS).filter(model="fc_128_128_128", optimizer="nesterov_momentum")
    return chosen.filter(batch_size=chosen.studies["batch_size"].to_list()[:2])


def test_the_page_says_which_machines(records, tmp_path):
    path = tmp_path / "machines.toml"
    path.write_text(MACHINE.format("x86_64"))
    page = make_report(records, planning=PlanningFiles(path))
    assert ">Machines</h2>" in page and "The fastest is one x86_64 (a&lt;b&gt;)" in page
    assert "a<b>" not in page and "time against cost" in page


def test_machines_without_step_times_are_a_sentence(records, tmp_path):
    path = tmp_path / "machines.toml"
    path.write_text(MACHINE.format("T4"))
    page = make_report(records, planning=PlanningFiles(path))
    assert "No plan" in page and "No configuration can be used" in page and "no step time of T4 was measured" in page
