"""Plain tables and W&B exports: what they mean, what is refused, and the curve that comes out."""

import json
import struct
import zlib

import polars as pl
import pytest
from importer_runs import GOAL, RUNS, STEPS, error, expected_curve, flat, imported_curve, run_import

from batchscale import read
from batchscale.records import check_records


def table(**extra):
    rows = [
        {"run": f"r{i}", "batch_size": size, "lr": rate, "step": step, "val_error": error(size, rate, step), **extra}
        for i, (size, rate) in enumerate(RUNS)
        for step in STEPS
    ]
    return pl.DataFrame(rows)


def write_lines(frame, path):
    path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dicts()))  # NaN as Python writes it


@pytest.mark.parametrize("suffix", ["csv", "parquet", "jsonl"])
def test_the_curve_of_a_table_is_that_of_its_rows(tmp_path, suffix):
    path, out = tmp_path / f"mine.{suffix}", tmp_path / "out"
    {"csv": pl.DataFrame.write_csv, "parquet": pl.DataFrame.write_parquet, "jsonl": write_lines}[suffix](table(), path)
    result = run_import(path, "--out", out, "--goal", "val_error < 0.5", "--json")
    assert result.exit_code == 0, flat(result)
    assert imported_curve(out) == expected_curve()
    summary = json.loads(result.stdout)
    assert summary["trials"] == {"COMPLETE": 6, "INFEASIBLE": 1}
    assert (summary["batch_size"], summary["unit"], summary["metaparameters"]) == ("batch_size", "steps", ["lr"])
    assert not check_records(out)
    trials = read(out).trials.filter(batch_size=16).sort("trial_id")
    assert trials["lr"].to_list() == [0.5, 2.0]


def test_guesses_and_missing_facts_are_shown_before_anything_is_written(tmp_path):
    table().write_csv(tmp_path / "mine.csv")
    result = run_import(tmp_path / "mine.csv", "--out", tmp_path / "out", "--dry-run")
    assert result.exit_code == 0
    assert not (tmp_path / "out").exists()
    for text in (
        "batch size batch_size (guessed)",
        "unit steps (guessed)",
        "metric val/error (guessed)",
        "Seeds are not",
    ):
        assert text in flat(result)
    assert "Statuses are not in the source" in flat(result)


def test_epochs_become_steps_by_the_batches_of_an_epoch(tmp_path):
    rows = [
        {"run": b, "bs": b, "epoch": epoch, "val_error": 1 - (epoch + 1) / 10} for b in (8, 64) for epoch in range(10)
    ]
    pl.DataFrame(rows).write_csv(tmp_path / "t.csv")
    refused = run_import(tmp_path / "t.csv", "--out", tmp_path / "out", "--goal", GOAL)
    assert refused.exit_code != 0 and "--num-train-examples is required" in str(refused.exception)
    options = ("--num-train-examples", 1000, "--goal", GOAL)
    assert run_import(tmp_path / "t.csv", "--out", tmp_path / "up", *options).exit_code == 0
    # the error is below 0.5 after the sixth epoch, which is numbered 5: 6 epochs of 125, or of 15.6 batches
    assert imported_curve(tmp_path / "up") == {8: 750, 64: 96}
    assert run_import(tmp_path / "t.csv", "--out", tmp_path / "down", *options, "--drop-last").exit_code == 0
    assert imported_curve(tmp_path / "down") == {8: 750, 64: 90}
    assert run_import(tmp_path / "t.csv", "--out", tmp_path / "one", *options, "--first-epoch", 1).exit_code == 0
    assert imported_curve(tmp_path / "one") == {8: 625, 64: 80}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda t: t.drop("batch_size"), (), "--batch-size is required"),
        (lambda t: t.rename({"batch_size": "per_device_train_batch_size"}), (), "the batch of one device"),
        (lambda t: t.with_columns(train_batch_size=pl.col("batch_size") * 2), (), "several values may be"),
        (lambda t: t.with_columns(val_loss=pl.col("val_error")), (), "--metric or --goal is required"),
        (lambda t: t.drop("run"), (), "Name the column with --trial"),
        (lambda t: t.with_columns(step=0), (), "logged without steps"),
        (lambda t: t.drop("step"), (), "--step is required"),
        (lambda t: t, ("--goal", "val_eror < 1"), "did you mean 'val_error'"),
        (lambda t: t, ("--batch-size", "size"), "did you mean 'batch_size'"),
        (lambda t: t, ("--workload", "a/b"), "must be written dataset/model/optimizer"),
        (lambda t: t, ("--unit", "days"), "--unit must be"),
        (lambda t: t, ("--rename", "val_error=error"), "must give a metric a name such as val/error"),
        (lambda t: t, ("--name-pattern", "("), "must be a regular expression"),
        (lambda t: t, ("--from", "nothing"), "--from must be one of"),
        (lambda t: t, ("--overwrite",), "must be used with an archive"),
        (lambda t: t.with_columns(**{f"p{i}": pl.col("lr") + i for i in range(101)}), (), "--parameter, once for each"),
    ],
)
def test_what_is_ambiguous_or_wrong_is_refused_and_nothing_is_written(tmp_path, change, options, message):
    change(table()).write_csv(tmp_path / "mine.csv")
    result = run_import(tmp_path / "mine.csv", "--out", tmp_path / "out", *options)
    assert message in str(result.exception), result.exception
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_names_of_workloads_come_from_values(tmp_path):
    table(opt="Adam W").write_csv(tmp_path / "mine.csv")
    result = run_import(tmp_path / "mine.csv", "--out", tmp_path / "out", "--workload", "d/m/{opt}", "--goal", GOAL)
    assert result.exit_code == 0, result.exception
    assert [str(name) for name in read(tmp_path / "out").workloads] == ["d/m/Adam_W"]


def test_an_existing_folder_stays_as_it_is(tmp_path):
    table().write_csv(tmp_path / "mine.csv")
    (tmp_path / "out").mkdir()
    result = run_import(tmp_path / "mine.csv", "--out", tmp_path / "out", "--goal", GOAL)
    assert "--out must name a new folder" in str(result.exception)
    assert not any((tmp_path / "out").iterdir())


def test_a_table_of_final_results_is_refused(tmp_path):
    table().filter(pl.col("step") == 1000).write_csv(tmp_path / "mine.csv")
    result = run_import(tmp_path / "mine.csv", "--out", tmp_path / "out", "--goal", GOAL)
    assert "one in every run, as in a table of final results" in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.csv"]


def test_semicolons_and_a_byte_order_mark_are_fine_and_other_folders_are_explained(tmp_path):
    text = table().write_csv(separator=";")
    (tmp_path / "mine.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert run_import(tmp_path / "mine.csv", "--out", tmp_path / "out", "--goal", GOAL).exit_code == 0
    assert imported_curve(tmp_path / "out") == expected_curve()
    (tmp_path / "empty").mkdir()
    assert "Known: Optuna" in str(run_import(tmp_path / "empty", "--out", tmp_path / "o").exception)


@pytest.mark.parametrize("name", ["x.csv", "x.parquet", "x.jsonl"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"PAR1", b"{}\n[1]\n"])
def test_damaged_tables_are_refused_in_a_sentence(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    result = run_import(tmp_path / name, "--out", tmp_path / "out")
    assert type(result.exception).__name__ == "RecordsError", result.exception


# --- W&B -----------------------------------------------------------------------------------------------------------


def history(rows, gap=1):
    return [
        {
            "_step": i * gap,
            "_runtime": i,
            "_timestamp": 1e9 + i,
            "trainer/global_step": 10 * i,
            "eval/error": 1 / (i + 1),
        }
        for i in range(rows)
    ]


def write_histories(folder, rows, gap=1):
    folder.mkdir()
    for size in (8, 16):
        lines = (json.dumps(row) for row in history(rows, gap))
        (folder / f"run{size}.jsonl").write_text("\n".join(lines) + "\n")
        config = {"batch_size": {"value": size}, "optimizer": {"value": {"lr": 0.1 * size}}, "_wandb": {"value": {}}}
        (folder / f"run{size}.config.json").write_text(json.dumps(config))


def test_a_folder_of_wandb_histories_has_its_values_beside_them(tmp_path):
    write_histories(tmp_path / "export", 40)
    result = run_import(tmp_path / "export", "--out", tmp_path / "out", "--goal", "eval/error < 0.1")
    assert result.exit_code == 0, result.exception
    assert "source wandb, 2 runs" in flat(result)
    assert imported_curve(tmp_path / "out", "val/error < 0.1") == {8: 100, 16: 100}
    assert read(tmp_path / "out").trials["optimizer.lr"].to_list() == pytest.approx([0.8, 1.6])


def test_sampled_histories_are_refused_and_uneven_ones_noticed(tmp_path):
    write_histories(tmp_path / "sampled", 500, gap=3)
    arguments = (tmp_path / "sampled", "--out", tmp_path / "out", "--goal", "eval/error < 0.1")
    result = run_import(*arguments)
    assert "run.history() samples 500 rows" in str(result.exception)
    assert not (tmp_path / "out").exists()
    assert run_import(*arguments, "--allow-sampled").exit_code == 0
    write_histories(tmp_path / "uneven", 20)
    lines = (tmp_path / "uneven" / "run8.jsonl").read_text().splitlines()
    (tmp_path / "uneven" / "run8.jsonl").write_text("\n".join(lines[:5] + lines[8:]) + "\n")
    result = run_import(tmp_path / "uneven", "--out", tmp_path / "out2", "--goal", "eval/error < 0.1")
    assert result.exit_code == 0 and "uneven gaps in _step, such as 'run8'" in flat(result)


def test_the_export_of_a_chart_is_refused(tmp_path):
    pl.DataFrame({"Step": [1, 2], "run": [1, 1], "a - loss": [1, 2], "a - loss__MIN": [1, 2]}).write_csv(
        tmp_path / "chart.csv"
    )
    result = run_import(tmp_path / "chart.csv", "--out", tmp_path / "out")
    assert "the export of a W&B chart" in str(result.exception)


def test_values_in_names_of_runs(tmp_path):
    (tmp_path / "runs").mkdir()
    for size in (8, 16):
        pl.DataFrame({"step": [10, 20], "val_error": [0.6, 0.4]}).write_csv(tmp_path / "runs" / f"cnn-b{size}.csv")
    pattern = r"b(?P<batch_size>\d+)"
    arguments = (tmp_path / "runs", "--out", tmp_path / "out", "--goal", GOAL, "--name-pattern", pattern)
    assert run_import(*arguments).exit_code == 0
    assert imported_curve(tmp_path / "out") == {8: 20, 16: 20}


def log_piece(kind, data):
    return struct.pack("<IHB", zlib.crc32(bytes([kind]) + data), len(data), kind) + data


def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def message(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def write_log(path, size, rows):
    """A W&B log with all its records cut into pieces of at most 100 bytes, as at the ends of blocks."""
    config = message(1, message(1, b"batch_size") + message(16, str(size).encode()))
    records = [message(17, message(1, b"abc") + message(3, b"mnist") + message(4, config) + message(8, b"first"))]
    for step, value in rows:
        items = message(1, message(2, b"val/error") + message(16, value))
        items += message(1, message(1, b"trainer/global_step") + b"\x28" + varint(step))
        records.append(message(2, items + message(2, b"\x08" + varint(step // 10))))
    records.append(message(18, b""))
    data = b":W&B\xe1\xbe\x00"
    for record in records:
        pieces = [record[i : i + 100] for i in range(0, len(record), 100)]
        kinds = [1] if len(pieces) == 1 else [2, *[3] * (len(pieces) - 2), 4]
        data += b"".join(map(log_piece, kinds, pieces))
    path.write_bytes(data)


def test_the_log_of_an_offline_run_is_its_whole_history(tmp_path):
    folder = tmp_path / "wandb" / "offline-run-1"
    folder.mkdir(parents=True)
    write_log(folder / "run-abc.wandb", 64, [(10, b"0.9"), (20, b"0.4"), (300, b"0.3")])
    (tmp_path / "wandb" / "latest-run").symlink_to(folder)
    result = run_import(tmp_path / "wandb", "--out", tmp_path / "out", "--goal", GOAL)
    assert result.exit_code == 0, result.exception
    assert imported_curve(tmp_path / "out") == {64: 20}
    assert read(tmp_path / "out").trials.select("status", "steps").rows() == [("COMPLETE", 300)]
    write_log(folder / "run-abc.wandb", 64, [(10, b"0.9"), (20, b"NaN")])
    data = (folder / "run-abc.wandb").read_bytes()
    (folder / "run-abc.wandb").write_bytes(data[:-3])
    result = run_import(tmp_path / "wandb", "--out", tmp_path / "cut", "--goal", GOAL)
    assert result.exit_code == 0 and "1 log cut off" in flat(result)
    assert read(tmp_path / "cut").trials.select("status", "steps").rows() == [("INFEASIBLE", 20)]
