"""Names of devices as drivers report them, matched with the names of price lists; ambiguous ones are reported."""

import pytest

from batchscale.errors import PlanningError
from batchscale.planning.assemble import PlanInputs, assemble_plan, shipped_machines
from batchscale.planning.catalogue import CatalogueFilter, import_catalogue
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.devices import device_key, is_processor, match_devices
from batchscale.planning.jobs.formats import skypilot_name, vertex_name
from batchscale.planning.jobs.kubernetes import kubernetes_resource
from batchscale.planning.machines import Machine, choose_machines
from batchscale.planning.plan import PlanRequest
from batchscale.planning.step_times import StepTime

CURVE = PlanCurve((CurvePoint(8, 100), CurvePoint(64, 50)))


def plan_for(*devices, machines=None, request=None):
    times = tuple(StepTime(device, 1, 1, size, 0.1 + i) for i, device in enumerate(devices) for size in (8, 64))
    return assemble_plan(PlanInputs(CURVE, step_times=times, machines=machines), request)


def machines_of(*devices):
    return tuple(Machine(f"m{i}", device, 1, 1, 1.0 + i, "USD") for i, device in enumerate(devices))


@pytest.mark.parametrize(
    ("reported", "listed"),
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100"),
        ("NVIDIA H100 PCIe", "NVIDIA H100"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 40GB"),
        ("A100-PCIE-40GB", "NVIDIA A100 40GB"),
        ("Tesla V100-SXM2-16GB", "NVIDIA V100"),
        ("Tesla V100-SXM3-32GB", "NVIDIA V100"),
        ("Tesla P100-PCIE-16GB", "NVIDIA P100"),
        ("Tesla T4", "NVIDIA T4"),
        ("NVIDIA L4", "NVIDIA L4"),
        ("NVIDIA A10G", "NVIDIA A10G"),
        ("TPU v5e", "TPU v5 lite"),
        ("TPU v5 lite", "TPU v5 lite"),
        ("TPU v5", "TPU v5p"),
        ("TPU v3", "TPU v3"),
    ],
)
def test_a_reported_name_has_the_shipped_price_of_its_device(reported, listed):
    machines = shipped_machines([StepTime(reported, 1, 1, 8, 0.1)])
    assert set(match_devices((machine.device for machine in machines), [reported]).keys) == {listed}


@pytest.mark.parametrize(
    ("reported", "written"),
    [
        ("AMD Instinct MI300X", "MI300X"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA L40S", "L40S"),
        ("TPU v6 lite", "TPU v6e"),
        ("TPU v5 lite", "tpu-v5litepod-8"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM5 80 GB"),
    ],
)
def test_a_reported_name_matches_a_machine_of_the_user(reported, written):
    assert match_devices(["T4", written], [reported]).keys == {written: device_key(reported)}


@pytest.mark.parametrize(
    ("timed", "priced"),
    [
        ("NVIDIA A100-SXM4-40GB", "A100 80GB"),
        ("NVIDIA H100 PCIe", "H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 PCIe"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090 Laptop GPU"),
        ("NVIDIA A10", "A10G"),
        ("NVIDIA L4", "L40"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "A100 40GB"),
        ("TPU v5 lite", "TPU v5p"),
        ("NVIDIA RTX 6000 Ada Generation", "Quadro RTX 6000"),
    ],
)
def test_other_devices_have_no_price(timed, priced):
    assert match_devices([priced], [timed]).keys == {}


def test_a_plan_takes_reported_names():
    assert set(plan_for("NVIDIA H100 80GB HBM3").table["device"]) == {"NVIDIA H100"}
    with pytest.raises(PlanningError, match="no step time of H100 PCIe"):
        plan_for("NVIDIA H100 80GB HBM3", machines=machines_of("H100 PCIe"))


def test_a_name_without_memory_is_ambiguous_until_a_device_is_chosen():
    with pytest.raises(PlanningError, match=r"'A100'.*'NVIDIA A100 40GB', 'NVIDIA A100 80GB'.*--device"):
        plan_for("A100")
    plan = plan_for("A100", request=PlanRequest(devices=("NVIDIA A100-SXM4-80GB",)))
    assert set(plan.table["device"]) == {"NVIDIA A100 80GB"}


def test_a_machine_that_two_timed_devices_match_is_left_out_with_a_sentence():
    machines = machines_of("V100", "T4")
    timed = ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB", "Tesla T4")
    plan = plan_for(*timed, machines=machines)
    assert set(plan.table["device"]) == {"T4"}
    assert any("V100-SXM2-16GB" in notice and "V100-SXM2-32GB" in notice for notice in plan.notices)
    chosen = plan_for(*timed, machines=machines, request=PlanRequest(devices=("Tesla V100-SXM2-32GB",)))
    assert chosen.table["step_time_s"].unique().to_list() == [1.1]


def test_the_price_with_the_same_memory_wins_over_one_without():
    """SkyPilot's "A100" has 40 GB: it must not be the price of 80 GB."""
    assert match_devices(["A100", "A100-80GB"], ["NVIDIA A100-SXM4-80GB"]).keys == {"A100-80GB": "a100 80gb sxm"}
    assert match_devices(["A100", "A100-80GB"], ["NVIDIA A100-SXM4-40GB"]).keys == {"A100": "a100 40gb sxm"}


def test_step_times_of_different_forms_are_not_mixed():
    assert device_key("NVIDIA H100 PCIe") != device_key("NVIDIA H100 80GB HBM3")
    assert device_key("NVIDIA Tesla T4") == device_key("t4") == device_key("Tesla T4")


def test_device_options_take_the_drivers_name(tmp_path):
    machines = machines_of("H100", "T4")
    assert choose_machines(machines, (), ("NVIDIA H100 80GB HBM3",)) == machines[:1]
    file = tmp_path / "vms.csv"
    file.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,Price,Region\n"
        "a,A100,1,3.0,r\nb,A100-80GB,1,4.0,r\nc,tpu-v3-8,1,8.0,r\n"
    )
    imported, _ = import_catalogue(file, CatalogueFilter(accelerators=("NVIDIA A100-SXM4-80GB",)))
    assert [machine.device for machine in imported] == ["A100-80GB"]
    imported, _ = import_catalogue(file, CatalogueFilter(accelerators=("A100",)))
    assert [machine.device for machine in imported] == ["A100"]


def test_job_formats_take_the_drivers_name():
    assert vertex_name("NVIDIA A100-SXM4-80GB") == "NVIDIA_A100_80GB"
    assert vertex_name("NVIDIA H100 80GB HBM3") == "NVIDIA_H100_80GB"
    assert vertex_name("Tesla V100-SXM2-16GB") == "NVIDIA_TESLA_V100"
    assert skypilot_name("NVIDIA H100 80GB HBM3") == "H100"
    assert kubernetes_resource("AMD Instinct MI300X") == "amd.com/gpu"
    assert kubernetes_resource("TPU v5 lite") == "google.com/tpu"


@pytest.mark.parametrize("name", ["x86_64", "AMD EPYC 7B13", "AMD Ryzen 9 5950X 16-Core Processor", "aarch64", "cpu"])
def test_processors_request_no_accelerator(name):
    assert is_processor(name)
    assert kubernetes_resource(name) is None
