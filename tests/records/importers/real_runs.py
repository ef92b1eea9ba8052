"""Write runs with a real library, read them back with it, and print the steps to result that the library's values give.

Run by the Python that has the library: ``real_runs.py KIND FOLDER``. The last line printed is a JSON object: the path
to import, and the curve as the library sees it.
"""

import json
import math
import os
import sys
from pathlib import Path

STEPS = range(100, 1100, 100)
RUNS = [(8, 0.5), (8, 1.5), (16, 0.5), (16, 2.0), (32, 0.25), (32, 6.0), (32, 1.0)]


def error(size, rate, step):
    return math.nan if rate > 5 and step > 300 else math.exp(-rate * size * step / 4000)


def curve(runs):
    """The fewest steps below an error of 0.5 at each batch size, from (batch size, [(step, value), …])."""
    best = {}
    for size, points in runs:
        reached = [step for step, value in sorted(points) if value < 0.5]
        diverged = any(math.isnan(value) for _, value in points)
        if reached and not diverged:
            best[int(float(size))] = min(reached[0], best.get(int(float(size)), reached[0]))
    return best


def optuna(folder, storage):
    import optuna

    def objective(trial):
        size = trial.suggest_categorical("batch_size", [8, 16, 32])
        rate = trial.suggest_float("lr", 0.001, 10, log=True)
        trial.set_user_attr("seed", trial.number)
        for step in STEPS:
            trial.report(error(size, rate, step), step)
        return 0.0

    study = optuna.create_study(study_name="mnist", storage=storage)
    for size, rate in RUNS:
        study.enqueue_trial({"batch_size": size, "lr": rate})
    study.optimize(objective, n_trials=len(RUNS))
    loaded = optuna.load_study(study_name="mnist", storage=storage)
    return curve((trial.params["batch_size"], list(trial.intermediate_values.items())) for trial in loaded.trials)


def optuna_sqlite(folder):
    return folder / "optuna.db", optuna(folder, f"sqlite:///{folder}/optuna.db")


def optuna_journal(folder):
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    return folder / "optuna.log", optuna(folder, JournalStorage(JournalFileBackend(str(folder / "optuna.log"))))


def mlflow(folder, uri):
    import mlflow

    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment("mnist")
    for i, (size, rate) in enumerate(RUNS):
        with mlflow.start_run(run_name=f"r{i}"):
            mlflow.log_params({"batch_size": size, "lr": rate, "optimizer": "sgd", "seed": i})
            for step in STEPS:
                mlflow.log_metric("val_error", error(size, rate, step), step=step)
    client = mlflow.tracking.MlflowClient()
    experiment = client.get_experiment_by_name("mnist").experiment_id
    runs = []
    for run in client.search_runs([experiment]):
        points = [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, "val_error")]
        runs.append((run.data.params["batch_size"], points))
    return curve(runs)


def mlflow_sqlite(folder):
    return folder / "mlflow.db", mlflow(folder, f"sqlite:///{folder}/mlflow.db")


def mlflow_folder(folder):
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    return folder / "mlruns", mlflow(folder, f"file:{folder}/mlruns")


def read_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs = []
    for i, (size, _) in enumerate(RUNS):
        events = EventAccumulator(str(folder / f"r{i}"), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        tags = events.Tags()
        if "val/error" in tags["scalars"]:
            points = [(event.step, event.value) for event in events.Scalars("val/error")]
        else:
            points = [(event.step, event.tensor_proto.float_val[0]) for event in events.Tensors("val/error")]
        runs.append((size, points))
    return curve(runs)


def tensorboardx(folder):
    from tensorboardX import SummaryWriter

    for i, (size, rate) in enumerate(RUNS):
        with SummaryWriter(str(folder / f"r{i}")) as writer:
            writer.add_hparams({"batch_size": size, "lr": rate, "seed": i, "optimizer": "sgd"}, {"final": 0.1})
            for step in STEPS:
                writer.add_scalar("val/error", error(size, rate, step), step)
    return folder, read_tensorboard(folder)


def tensorboard(folder):
    """Tensors, as TensorFlow and Keras write scalars, by TensorBoard's own writer."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import summary_v2
    from tensorboard.plugins.scalar.metadata import create_summary_metadata
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    for i, (size, rate) in enumerate(RUNS):
        writer = EventFileWriter(str(folder / f"r{i}"))
        start = summary_v2.hparams_pb({"batch_size": size, "lr": rate, "seed": i, "optimizer": "sgd"})
        writer.add_event(Event(wall_time=1.0, step=0, summary=start))
        for step in STEPS:
            value = Summary.Value(
                tag="val/error",
                tensor=make_tensor_proto(error(size, rate, step), dtype="float32"),
                metadata=create_summary_metadata(display_name="", description=""),
            )
            writer.add_event(Event(wall_time=1.0 + step, step=step, summary=Summary(value=[value])))
        writer.close()
    return folder, read_tensorboard(folder)


def trackio(folder):
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    for i, (size, rate) in enumerate(RUNS):
        config = {"batch_size": size, "lr": rate, "seed": i, "optimizer": "sgd"}
        trackio.init(project="mnist", name=f"r{i}", config=config, embed=False)
        for step in STEPS:
            trackio.log({"val/error": error(size, rate, step)}, step=step)
        trackio.finish()
    runs = []
    for i, (size, _) in enumerate(RUNS):
        logs = SQLiteStorage.get_logs("mnist", f"r{i}")
        runs.append((size, [(log["step"], float(log["val/error"])) for log in logs]))
    return folder / "mnist.db", curve(runs)


def wandb(folder):
    """Offline runs: the log of each holds its whole history."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": str(folder), "WANDB_SILENT": "true"}
    import wandb

    for i, (size, rate) in enumerate(RUNS):
        config = {"batch_size": size, "lr": rate, "seed": i, "optimizer": "sgd"}
        with wandb.init(project="mnist", name=f"r{i}", config=config) as run:
            for step in STEPS:
                run.log({"val/error": error(size, rate, step), "trainer/global_step": step})
    wandb.teardown()  # its own process has written everything when it has ended
    from_logs = [(read_wandb(file)) for file in sorted((folder / "wandb").glob("offline-run-*/*.wandb"))]
    return folder / "wandb", curve((config["batch_size"], points(rows)) for config, rows in from_logs)


def wandb_export(folder):
    """The same histories as JSON lines with the config beside them, as docs/import.md exports them."""
    wandb(folder)
    export = folder / "export"
    export.mkdir()
    runs = []
    for i, file in enumerate(sorted((folder / "wandb").glob("offline-run-*/*.wandb"))):
        config, rows = read_wandb(file)
        (export / f"r{i}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (export / f"r{i}.config.json").write_text(json.dumps(config))
        runs.append((config["batch_size"], points(rows)))
    return export, curve(runs)


def points(rows):
    return [(row["trainer/global_step"], float(row["val/error"])) for row in rows]


def read_wandb(path):
    """The config and the history of a log, its records parsed by wandb's own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, pieces, config, rows = path.read_bytes(), 7, b"", {}, []
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        pieces = (pieces if kind in (3, 4) else b"") + data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            record = Record.FromString(pieces)
            for item in (*record.run.config.update, *record.config.update):
                config[item.key] = json.loads(item.value_json)
            if record.HasField("history"):
                rows.append({item.key or "/".join(item.nested_key): plain(item) for item in record.history.item})
    return config, rows


def plain(item):
    kinds = [name for name in ("boolean", "integer", "number", "text") if item.HasField(name)]
    return getattr(item, kinds[0]) if kinds else json.loads(item.json or item.value_json)


if __name__ == "__main__":
    target = Path(sys.argv[2])
    path, steps = globals()[sys.argv[1]](target)
    print(json.dumps({"path": str(path), "curve": steps}))
