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


def test_the_work_of_a_step_plans_machines_that_nobody_measured(records, tmp_path):
    path, work = tmp_path / "machines.toml", tmp_path / "work.csv"
    path.write_text(MACHINE.format("T4"))
    work.write_text("batch_size,flops,parameters\n2,4e6,3e5\n512,1e9,3e5\n")
    page = make_report(records, planning=PlanningFiles(path, work=work))
    assert "No plan" not in page and "T4: estimated at" in page and "a&lt;b&gt;" in page
    page = make_report(records, planning=PlanningFiles(None, work=work))
    assert "NVIDIA V100: estimated at" in page and "aws p3.2xlarge" in page  # the shipped prices
    work.write_text("batch_size,flops,parameters\n2,0,3e5\n")
    page = make_report(records, planning=PlanningFiles(path, work=work))
    assert "No plan" in page and "work.csv, line 2: flops must be a positive number" in page
