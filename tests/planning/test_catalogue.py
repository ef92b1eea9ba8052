"""Machines from a catalogue in SkyPilot's columns; the rows here are made up."""

from dataclasses import replace

import pytest

from batchscale.errors import BatchscaleError, PlanningError
from batchscale.planning.catalogue import CatalogueFilter, import_catalogue, import_prices, parse_range
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.machines import Machine, machines_toml, read_machines
from batchscale.planning.plan import make_plan
from batchscale.planning.step_times import StepTime

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


ANY = """\
Instance,GPU,Count,Hourly,Currency,Where,Spot,Comment
big,H100 SXM,8,40.0,EUR,berlin,false,x
cheap,T4,1,0.2,EUR,paris,true,y
"""
NAMES = {
    "name": "Instance", "device": "GPU", "devices_per_host": "Count", "price_per_host_hour": "Hourly",
    "unit": "Currency", "region": "Where", "spot": "Spot",
}  # fmt: skip


def test_any_file_of_prices_is_imported_by_its_columns(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text(ANY)
    machines, _ = import_prices(path, CatalogueFilter(max_hosts=3), NAMES)
    assert [(m.name, m.device, m.devices_per_host, m.price_per_host_hour, m.unit, m.max_hosts) for m in machines] == [
        ("big", "H100 SXM", 8, 40.0, "EUR", 3),
        ("cheap", "T4", 1, 0.2, "EUR", 3),
    ]
    (spot,), _ = import_prices(path, CatalogueFilter(spot=True), NAMES)
    assert spot.name == "cheap" and spot.spot and spot.region == "paris"
    out = tmp_path / "m.toml"
    out.write_text(machines_toml(machines))
    assert read_machines(out) == machines


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        (ANY, {}, "name, device, devices_per_host, unit"),
        (ANY, NAMES | {"prize": "Hourly"}, "no key is called 'prize'"),
        (ANY.replace("40.0", "-1"), NAMES, "line 2: price_per_host_hour must be a number of at least 0"),
        (ANY.replace("40.0", "0"), NAMES, "line 2.*price_per_host_hour"),
        (ANY.replace("40.0", "nan"), NAMES, "line 2"),
        (ANY, {k: v for k, v in NAMES.items() if k != "price_per_host_hour"}, "--column price_per_host_hour=COLUMN"),
    ],
)
def test_a_file_of_prices_that_cannot_be_used_is_refused(tmp_path, text, columns, message):
    path = tmp_path / "list.csv"
    path.write_text(text)
    with pytest.raises(BatchscaleError, match=message):
        import_prices(path, CatalogueFilter(), columns)


def test_spot_prices_have_the_range_of_their_regions_and_interruptions_theirs(tmp_path):
    (tmp_path / "vms.csv").write_text(
        ONE.replace("box_1,T4,1.0,4,16,0.9,south,,\n", "box_1,T4,1,4,16,0.9,south,,0.4\n")
    )
    selection = CatalogueFilter(("T4",), spot=True, interruptions=(0.01, 0.25))
    (machine,), _ = import_prices(tmp_path / "vms.csv", selection)
    assert (machine.price_per_host_hour, machine.price_low, machine.price_high) == (0.25, 0.25, 0.4)
    assert machine.interruptions_per_hour == pytest.approx(0.05)
    assert (machine.interruptions_low, machine.interruptions_high) == (0.01, 0.25)


@pytest.mark.parametrize("text", ["0.2", "0.3:0.1", "a:b", "-1:2", "nan:1", "0:inf", ""])
def test_a_range_has_two_ends_in_order(text):
    with pytest.raises(PlanningError, match="LOW:HIGH"):
        parse_range(text, "--interruptions")


def test_ranges_widen_time_and_cost_by_hand():
    """Prices multiply the ends of the cost, interruptions those of time and cost."""
    curve = PlanCurve((CurvePoint(8, 3600.0, 1800.0, 7200.0),))
    times = (StepTime("T4", 1, 1, 8, 1.0),)
    fixed = Machine("m", "T4", 1, 1, 2.0, "USD", startup_s=330.0)
    ranged = replace(
        fixed, price_low=1.0, price_high=6.0, spot=True, interruptions_per_hour=1.0, interruptions_low=0.0,
        interruptions_high=5.0,
    )  # fmt: skip
    plain = make_plan(curve, times, (fixed,)).table.row(0, named=True)
    row = make_plan(curve, times, (ranged,)).table.row(0, named=True)
    assert row["time_low_s"] == pytest.approx(plain["time_low_s"])
    assert row["time_s"] == pytest.approx(plain["time_s"] / (1 - 360 / 3600))
    assert row["time_high_s"] == pytest.approx(plain["time_high_s"] / (1 - 5 * 360 / 3600))
    assert row["cost_low"] == pytest.approx(row["time_low_s"] / 3600 * 1.0)
    assert row["cost_high"] == pytest.approx(row["time_high_s"] / 3600 * 6.0)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("price_low = 3.0\n", "price_low and price_high around"),
        ("price_high = 1.0\n", "price_low and price_high around"),
        ("interruptions_high = 0.5\n", "spot = true"),
        ("spot = true\ninterruptions_per_hour = 0.9\ninterruptions_high = 0.5\n", "around the interruptions"),
        ("price_low = -1.0\n", "price_low"),
        ("network_gbit_per_s = 0\n", "network_gbit_per_s"),
    ],
)
def test_ranges_that_do_not_hold_their_middle_are_refused(tmp_path, lines, message):
    path = tmp_path / "m.toml"
    base = '[[machine]]\nname = "m"\ndevice = "T4"\ndevices_per_host = 1\nprice_per_host_hour = 2.0\nunit = "USD"\n'
    path.write_text(base + lines)
    with pytest.raises(PlanningError, match=message):
        read_machines(path)
