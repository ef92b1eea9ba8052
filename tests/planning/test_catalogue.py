"""Machines from a catalogue in SkyPilot's columns; the rows here are made up."""

import pytest

from batchscale.errors import PlanningError
from batchscale.planning.catalogue import CatalogueFilter, import_catalogue
from batchscale.planning.machines import machines_toml, read_machines

ONE = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice
box_1,T4,1.0,4,16,1.0,north,,0.25
box_1,T4,1.0,4,16,0.9,south,,
box_8,V100,8.0,64,500,20.0,north,,
plain,,,4,16,0.1,north,,
"""
APART = """\
Region,Price,SpotPrice,InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB
r1,0.5,0.1,,T4,1,,
r1,1.0,0.2,,T4,2,,
r1,0.3,0.05,n1-standard-8,,,8,30
"""


@pytest.fixture
def folder(tmp_path):
    for cloud, text in (("one", ONE), ("apart", APART)):
        (tmp_path / cloud).mkdir()
        (tmp_path / cloud / "vms.csv").write_text(text)
    return tmp_path


def test_columns_in_any_order_and_the_cheapest_region(folder):
    machines, _ = import_catalogue(folder / "one" / "vms.csv", CatalogueFilter())
    assert [(m.name, m.device, m.devices_per_host, m.price_per_host_hour, m.region) for m in machines] == [
        ("one box_1", "T4", 1, 0.9, "south"),
        ("one box_8", "V100", 8, 20.0, "north"),
    ]
    assert all("SkyPilot catalogue" in machine.source and machine.date for machine in machines)


def test_accelerator_and_host_are_added(folder):
    machines, _ = import_catalogue(
        folder / "apart" / "vms.csv", CatalogueFilter(("T4",), host="n1-standard-8", max_hosts=4)
    )
    assert [(m.name, m.price_per_host_hour, m.max_hosts) for m in machines] == [
        ("apart n1-standard-8 + 1 T4", pytest.approx(0.8), 4),
        ("apart n1-standard-8 + 2 T4", pytest.approx(1.3), 4),
    ]


def test_an_accelerator_without_its_host_is_left_out_and_said(folder):
    machines, notes = import_catalogue(folder, CatalogueFilter(("T4",)))
    assert [machine.name for machine in machines] == ["one box_1"]
    assert any("priced without its host" in note for note in notes)


def test_spot_prices(folder):
    (machine,), _ = import_catalogue(folder / "one" / "vms.csv", CatalogueFilter(("T4",), spot=True))
    assert machine.price_per_host_hour == 0.25 and machine.spot and machine.region == "north"


def test_what_is_imported_can_be_read_again(folder, tmp_path):
    machines, _ = import_catalogue(folder / "one" / "vms.csv", CatalogueFilter())
    path = tmp_path / "machines.toml"
    path.write_text(machines_toml(machines))
    assert read_machines(path) == machines


def test_nothing_chosen_is_an_error_with_the_nearest_names(folder):
    with pytest.raises(PlanningError, match="did you mean 'V100'"):
        import_catalogue(folder / "one" / "vms.csv", CatalogueFilter(("V10",)))
    with pytest.raises(PlanningError, match="Missing: InstanceType"):
        bad = folder / "bad.csv"
        bad.write_text("a,b\n1,2\n")
        import_catalogue(bad, CatalogueFilter())
