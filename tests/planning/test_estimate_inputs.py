"""Files of devices, of models on paper and of work: what is read, and what is refused with its place."""

import math

import pytest

from batchscale.errors import PlanningError, UnknownNameError
from batchscale.planning.accelerators import COLUMNS, find_accelerator, read_accelerators, require_accelerator
from batchscale.planning.language_model import read_language_model
from batchscale.planning.memory import MemoryNeed
from batchscale.planning.work import read_work

GPT2 = {"layers": 12, "width": 768, "heads": 12, "sequence_length": 1024, "vocabulary": 50257}


def test_names_that_several_rows_match_promise_the_least():
    table = read_accelerators()
    assert find_accelerator("A100", table).memory_bytes == 40e9
    assert find_accelerator("H100", table).device == "NVIDIA H100 PCIe"
    assert find_accelerator("H100", table, devices_per_host=8).device == "NVIDIA H100 SXM"
    with pytest.raises(UnknownNameError, match="No device is called 'H1000'"):
        require_accelerator("H1000", table)


def test_the_table_has_source_and_date_of_every_row():
    for row in read_accelerators():
        assert row.source and row.date is not None
    assert len({row.device for row in read_accelerators()}) >= 14


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"bfloat16_tflops": "9.9e14"}, "TFLOP/s.*another unit"),
        ({"memory_gb": "80000000000"}, "GB .1e9 bytes.*another unit"),
        ({"memory_gb": "0"}, "memory_gb must be a positive number"),
        ({"memory_gb": "-80"}, "memory_gb must be a positive number"),
        ({"memory_gb_per_s": "0"}, "memory_gb_per_s must be a positive number"),
        ({"memory_gb_per_s": "nan"}, "memory_gb_per_s must be a positive number"),
        ({"link_gb_per_s": "inf"}, "link_gb_per_s must be a positive number"),
        ({"network_gbit_per_s": "4e11"}, "Gbit/s.*another unit"),
        ({"bfloat16_tflops": ""}, "at least one precision"),
        ({"date": "yesterday"}, "date must be a day"),
    ],
)
def test_devices_in_other_units_are_refused_with_their_line(tmp_path, row, message):
    good = {"device": "Mine", "bfloat16_tflops": "100", "memory_gb": "24", "memory_gb_per_s": "900"}
    cells = [(good | row).get(name, "") for name in COLUMNS]
    path = tmp_path / "devices.csv"
    path.write_text(f"{','.join(COLUMNS)}\n{','.join(cells)}\n")
    with pytest.raises(PlanningError, match=f"line 2.*{message}"):
        read_accelerators(path)


def test_a_device_of_the_user_comes_before_the_table(tmp_path):
    path = tmp_path / "devices.csv"
    path.write_text("device,bfloat16_tflops,memory_gb,memory_gb_per_s\nNVIDIA T4,70,16,320\n")
    assert require_accelerator("T4", read_accelerators(path)).peak("float16") == 70e12
    path.write_text("device,bfloat16_tflop,memory_gb,memory_gb_per_s\nNVIDIA T4,70,16,320\n")
    with pytest.raises(PlanningError, match="unknown column 'bfloat16_tflop'; did you mean"):
        read_accelerators(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 7}, "multiple of heads"),
        ({"parameters": 1.3}, "a count, such as 1_300_000_000"),
        ({"parameters": math.nan}, "parameters"),
        ({"tokens": -1.0}, "tokens"),
        ({"width": 0}, "width"),
        ({"widht": 768}, "unknown key 'widht'; did you mean 'width'"),
        ({"precision": "int4"}, "precision"),
        ({"batch_tokens": [10.0]}, "at least one sequence"),
        ({"critical_batch_tokens_low": 9e5}, "critical_batch_tokens must lie between"),
    ],
)
def test_impossible_models_are_refused_by_key(tmp_path, changes, message):
    def value(item):
        return str(item) if not isinstance(item, str) else f'"{item}"'

    path = tmp_path / "llm.toml"
    path.write_text("".join(f"{key} = {value(item)}\n" for key, item in (GPT2 | changes).items()))
    with pytest.raises(PlanningError, match=message):
        read_language_model(path)


def test_two_rows_tell_the_work_of_an_example_from_that_of_a_step(tmp_path):
    path = tmp_path / "work.csv"
    header = "workload,kind,precision,batch_size,flops,bytes,parameters,memory_bytes\n"
    path.write_text(f"{header}w,convolution,float32,8,1000,90,50,1800\nw,convolution,float32,32,3400,210,50,4200\n")
    work = read_work(path)
    assert (work.flops_per_example, work.flops_per_pass) == (100.0, 200.0)
    assert (work.bytes_per_example, work.bytes_per_pass) == (5.0, 50.0)
    assert work.memory == MemoryNeed.measured(1000.0, 100.0)
    with pytest.raises(PlanningError, match="one workload"):
        read_work(path, "other/workload/sgd")
    path.write_text(f"{header}w,dense,float32,8,1000,90,50,\n")
    with pytest.raises(PlanningError, match="kind must be one of language"):
        read_work(path)
