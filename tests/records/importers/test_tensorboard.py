"""TensorBoard's event files, made by an encoder of our own, whole, cut off and damaged."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_runs import RUNS, STEPS, error, expected_curve, flat, imported_curve, run_import

from batchscale import read
from batchscale.records.importers.event_files import masked_checksum, read_event_file


def varint(value):
    value &= 2**64 - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def record(data):
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_checksum(head)) + data + struct.pack("<I", masked_checksum(data))


def event(step, value):
    return record(b"\x09" + struct.pack("<d", 1.0) + b"\x10" + varint(step) + message(5, message(1, value)))


def scalar(tag, value):
    return message(1, tag.encode()) + b"\x15" + struct.pack("<f", value)


def tensor(tag, value, kind=1):
    content = {1: struct.pack("<f", value), 2: struct.pack("<d", value), 19: struct.pack("<e", value)}[kind]
    return message(1, tag.encode()) + message(8, b"\x08" + varint(kind) + message(4, content))


def hparams(**values):
    entries = b""
    for name, value in values.items():
        inner = b"\x11" + struct.pack("<d", value) if isinstance(value, float) else message(3, value.encode())
        entries += message(1, message(1, name.encode()) + message(2, inner))
    plugin = message(1, message(1, b"hparams") + message(2, message(3, entries)))
    return event(0, message(1, b"_hparams_/session_start_info") + message(9, plugin))


FIRST = record(b"\x09" + struct.pack("<d", 1.0) + message(3, b"brain.Event:2"))


def write_runs(folder, make=scalar, in_folder=True):
    for i, (size, rate) in enumerate(RUNS):
        run = folder / f"r{i}"
        (run / "1700000.5").mkdir(parents=True)
        values = hparams(batch_size=float(size), lr=rate, optimizer="sgd", seed=float(i))
        (run / ("1700000.5" if in_folder else ".") / "events.out.tfevents.0.h").write_bytes(FIRST + values)
        events = [event(step, make("val/error", error(size, rate, step))) for step in STEPS]
        (run / "events.out.tfevents.1.h").write_bytes(FIRST + b"".join(events))


@pytest.mark.parametrize("make", [scalar, tensor, lambda tag, value: tensor(tag, value, 2)])
@pytest.mark.parametrize("in_folder", [True, False])
def test_the_curve_is_that_of_the_scalars(tmp_path, make, in_folder):
    write_runs(tmp_path / "logs", make, in_folder)
    result = run_import(tmp_path / "logs", "--out", tmp_path / "out", "--goal", "val/error < 0.5")
    assert result.exit_code == 0, result.exception
    assert imported_curve(tmp_path / "out") == expected_curve()
    assert read(tmp_path / "out").trials.sort("batch_size", "trial_id")["lr"].to_list() == [rate for _, rate in RUNS]


def test_folders_named_by_a_split_belong_to_one_run(tmp_path):
    for split, value in (("train", 0.2), ("validation", 0.4)):
        folder = tmp_path / "logs" / "bs=64,lr=0.1" / split
        folder.mkdir(parents=True)
        events = event(10, tensor("loss", value)) + event(20, tensor("loss", value / 2))
        (folder / "events.out.tfevents.1.h").write_bytes(FIRST + events)
    assert run_import(tmp_path / "logs", "--out", tmp_path / "out", "--goal", "val/loss < 0.3").exit_code == 0
    assert imported_curve(tmp_path / "out", "val/loss < 0.3") == {64: 20}
    records = read(tmp_path / "out")
    assert set(records.measurements_of(records.workloads[0]).collect_schema()) >= {"train/loss", "val/loss"}


def test_a_cut_off_file_gives_what_came_before(tmp_path):
    write_runs(tmp_path / "logs")
    file = tmp_path / "logs" / "r3" / "events.out.tfevents.1.h"
    file.write_bytes(file.read_bytes()[:-5])
    result = run_import(tmp_path / "logs", "--out", tmp_path / "out", "--goal", "val/error < 0.5")
    assert result.exit_code == 0 and "1 event file cut off" in flat(result)
    assert read(tmp_path / "out").trials.filter(batch_size=16)["steps"].to_list() == [1000, 900]


@settings(deadline=None)  # a busy machine
@given(st.integers(0, 400), st.integers(1, 255))
def test_no_damage_of_a_byte_passes_as_a_value(tmp_path_factory, place, change):
    """Every scalar of a damaged file is one that was written: the checksums see each changed byte."""
    data = FIRST + b"".join(event(step, scalar("loss", step / 7)) for step in range(10))
    place %= len(data)
    path = tmp_path_factory.mktemp("tb") / "events.out.tfevents.1.h"
    path.write_bytes(data[:place] + bytes([data[place] ^ change]) + data[place + 1 :])
    file = read_event_file(path)
    written = {("loss", step, struct.unpack("<f", struct.pack("<f", step / 7))[0]) for step in range(10)}
    assert set(file.scalars) <= written
    assert file.damaged or file.cut_off


@settings(deadline=None)  # a busy machine
@given(st.binary(max_size=300))
def test_any_content_behind_a_right_checksum_is_survived(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("tb") / "events.out.tfevents.1.h"
    path.write_bytes(record(content) + event(3, scalar("loss", 0.5)))
    assert ("loss", 3, 0.5) in read_event_file(path).scalars


def test_negative_steps_and_other_tensors(tmp_path):
    path = tmp_path / "events.out.tfevents.1.h"
    many = message(1, b"many") + message(8, b"\x08\x01" + message(4, struct.pack("<2f", 1, 2)))
    half = tensor("half", 0.5, 19)
    whole = message(1, b"whole") + message(8, b"\x08\x09" + message(10, varint(-7)))
    path.write_bytes(FIRST + event(-1, scalar("loss", 1.0)) + event(0, many) + event(1, half) + event(2, whole))
    assert read_event_file(path).scalars == [("loss", -1, 1.0), ("half", 1, 0.5), ("whole", 2, -7.0)]


def test_an_image_between_scalars_is_passed_over(tmp_path):
    path = tmp_path / "events.out.tfevents.1.h"
    path.write_bytes(FIRST + event(1, message(4, bytes(100_000))) + event(2, scalar("loss", 0.25)))
    assert read_event_file(path).scalars == [("loss", 2, 0.25)]
