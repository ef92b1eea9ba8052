"""Jobs of a user's own training script: they ship and run it, write no secret, and are read back in every format."""

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace

import kubernetes_validate
import pytest
import yaml

from batchscale.cli.plan_job import train_options
from batchscale.errors import PlanningError
from batchscale.planning.jobs.fill_in import HEADING, fill_in
from batchscale.planning.jobs.formats import FORMATS, job_files, write_job
from batchscale.planning.jobs.job import JobLaunch
from batchscale.planning.jobs.own_script import ScriptCommand, metaparameter_names, script_files
from batchscale.spec.file import parse_experiment, read_experiment
from batchscale.spec.horizon_free import Averaging, Branches, Decay
from batchscale.spec.redaction import is_secret

SECRET = "s3cr3t-value"
EXPERIMENT = """
goal = "val/error < 0.06"
batch_sizes = [4, 32, 256]
trials = 12
finishers = 3

[workload]
dataset = "mine"
model = "net"
optimizer = "adamw"

[budget]
epochs = 10
at_least_steps = 400

[evaluation]
count = 50

[search]
fixed = { "weight decay" = 0.1 }

[search.space.learning_rate]
scale = "LOG_SCALE"
min_value = 1e-4
max_value = 1.0

[search.space.layers]
type = "INTEGER"
min_value = 1
max_value = 8

[trainer]
command = [PROGRAM, "train.py", "--config", "config.yaml", "--data", "/data/set", "--lr", "{learning_rate}"]
resume = true
num_train_examples = 1347
env = { WANDB_API_KEY = "s3cr3t-value", MODE = "fast" }
"""
SCRIPT = """
import helper
from parts import model
from batchscale import trial

run = trial.start(learning_rate=0.1)
assert run.max_steps == 421 and isinstance(run["layers"], int), run.document
error = 1.0
for step, batch in run.steps(lambda step: step):
    error *= 1 - helper.rate(run)
    if run.due(step):
        run.report(step, {"val/error": error})
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "mine"
    (path / "parts").mkdir(parents=True)
    (path / "train.py").write_text(SCRIPT)
    (path / "helper.py").write_text("def rate(run):\n    return 0.5 * run['learning_rate']\n")
    (path / "parts" / "__init__.py").write_text("")
    (path / "parts" / "model.py").write_text("")
    (path / "unused.py").write_text("PASSWORD = 1\n")
    (path / "config.yaml").write_text("a: 1\n")
    (path / "experiment.toml").write_text(EXPERIMENT.replace("PROGRAM", json.dumps(sys.executable)))
    return path


def make_job(folder, hosts=1, devices=1, **settings):
    experiment = read_experiment(folder / "experiment.toml")
    values = {"learning_rate": "0.1", "layers": "3", "weight decay": "0.1"}
    files, not_shipped = script_files(experiment.trainer)
    command = ScriptCommand(experiment, 32, values, str(experiment.goal), files, not_shipped)
    return JobLaunch("job", command, hosts, devices, "NVIDIA T4", "gcp n1-standard-8 + 2 T4", **settings)


def with_torch(folder, command='["python", "train.py"]'):
    (folder / "train.py").write_text("import torch\n" + SCRIPT)
    text = EXPERIMENT.split("command = ")[0] + f"command = {command}\n"
    (folder / "experiment.toml").write_text(text + 'num_train_examples = 1347\ndevices = ["0", "1"]\n')


def files_of(job, format_):
    return job_files(job, format_, train_options(), "batchscale==0.1.0")


def command_of(files):
    return tomllib.loads(files["script/experiment.toml"])["trainer"]["command"]


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_ships_the_script_and_can_be_read_back(folder, format_):
    job = make_job(folder)
    files = files_of(job, format_)
    names = {name.removeprefix("script/") for name in files if name.startswith("script/")}
    assert names == {"experiment.toml", "train.py", "helper.py", "config.yaml", "parts/__init__.py", "parts/model.py"}
    assert "batchscale run script/experiment.toml" in files["train.sh"] and "batchscale train" not in files["train.sh"]
    assert not [name for name, text in files.items() if SECRET in text]
    for name, text in files.items():
        if name.endswith((".yaml", ".yml")) and "script/" not in name:
            for manifest in yaml.safe_load_all(text):
                if format_ == "kubernetes":
                    kubernetes_validate.validate(manifest, "1.33", strict=True)
        elif name.endswith(".json"):
            json.loads(text)
        elif name.endswith(".toml"):
            parse_experiment(text)
        elif name.endswith((".sh", ".sbatch", ".txt")):
            subprocess.run(["bash", "-n"], input=text.encode(), check=True)


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_left_to_fill_in_stands_at_the_top_of_one_file(folder, format_):
    job = make_job(folder, spot=True)
    items = fill_in(job, format_)
    files = files_of(job, format_)
    holders = [name for name, text in files.items() if HEADING in text]
    assert len(holders) == 1
    lines = [line for line in files[holders[0]].splitlines() if not line.startswith("#!")]
    assert lines[: len(items) + 1] == [f"# {HEADING}", *(f"# {n}. {item}" for n, item in enumerate(items, 1))]
    text = " ".join(items)
    assert "data:" in text and "records:" in text and "WANDB_API_KEY" in text and "/data/set" in text
    if format_ in ("kubernetes", "jobset", "skypilot", "vertex"):
        assert "--image REGISTRY" in text
    if format_ not in ("kubernetes", "jobset"):
        assert "shared storage" in text  # spot hosts may be taken away
        assert "shared storage" not in " ".join(fill_in(make_job(folder), "commands"))


def test_the_experiment_of_the_job_is_one_trial_with_the_scripts_own_budget(folder):
    experiment = parse_experiment(files_of(make_job(folder), "commands")["script/experiment.toml"])
    assert experiment.batch_sizes.sizes == (32,) and experiment.trials == 1 and experiment.stop == "goal"
    assert experiment.budget.steps(32, None) == 421  # ten epochs of 1347 examples: schedules stay as they were measured
    assert dict(experiment.search.fixed) == {"learning_rate": 0.1, "weight decay": 0.1}
    assert experiment.search.space["layers"].min_value == experiment.search.space["layers"].max_value == 3
    assert experiment.trainer.env == {"MODE": "fast"} and experiment.trainer.resume


def test_the_experiment_of_the_job_keeps_its_average_and_its_branches(folder):
    path = folder / "experiment.toml"
    path.write_text(
        path.read_text() + "[averaging]\nhalf_life = [20, 80]\n[branches]\ndecay_steps = 3\nshape = 'sqrt'\n"
    )
    job = make_job(folder)
    command = replace(job.command, values={**job.command.values, "averaging_half_life": "80.0"})
    made = files_of(replace(job, command=command), "commands")["script/experiment.toml"]
    experiment = parse_experiment(made)
    assert experiment.averaging == Averaging((80.0,))
    assert experiment.branches == Branches(decay_steps=3, shape=Decay.SQRT)
    assert "averaging_half_life" not in experiment.search.fixed
    assert "averaging_half_life" in metaparameter_names(read_experiment(path))


def test_a_written_job_runs_the_script_to_the_goal(folder, tmp_path):
    job = tmp_path / "job"
    write_job(files_of(make_job(folder), "commands"), job)
    (tmp_path / "batchscale").write_text(f'#!/bin/sh\nexec {sys.executable} -m batchscale "$@"\n')
    (tmp_path / "batchscale").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("WANDB_API_KEY", None)
    refused = subprocess.run(["sh", job / "train.sh"], env=environment, capture_output=True, text=True, timeout=100)
    assert refused.returncode != 0 and "WANDB_API_KEY" in refused.stderr
    environment["WANDB_API_KEY"] = SECRET
    for _ in range(2):  # the second time there is nothing left to do
        answer = subprocess.run(["sh", job / "train.sh"], env=environment, capture_output=True, text=True, timeout=200)
        assert answer.returncode == 0, answer.stderr
    (trial,) = job.glob("records/**/metadata.json")
    assert json.loads(trial.read_text())["status"] == "COMPLETE"


def test_an_image_has_the_program_by_name_and_other_hosts_by_its_path(folder):
    assert command_of(files_of(make_job(folder), "vertex"))[0] == os.path.basename(sys.executable)  # noqa: PTH119
    assert command_of(files_of(make_job(folder), "slurm"))[0] == sys.executable


def test_several_devices_have_a_process_each_if_the_script_uses_torch(folder):
    plain = command_of(files_of(make_job(folder, devices=2), "slurm"))
    assert plain[1:2] == ["train.py"]
    with_torch(folder)
    files = files_of(make_job(folder, devices=2), "slurm")
    assert command_of(files)[:5] == ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    assert tomllib.loads(files["script/experiment.toml"])["trainer"]["devices"] == ["0,1"]
    with_torch(folder, '["torchrun", "--nproc-per-node=2", "train.py"]')
    assert command_of(files_of(make_job(folder, devices=2), "slurm"))[0] == "torchrun"


def test_nodes_of_slurm_are_started_from_the_first(folder, tmp_path):
    with_torch(folder, '["python", "train.py", "--lr", "{learning_rate}"]')
    job = make_job(folder, hosts=2, devices=4)
    files = files_of(job, "slurm")
    assert "srun" not in files["job.sbatch"] and "--signal=B:TERM" in files["job.sbatch"]
    for name, answer in (("srun", 'printf "%s\\n" "$@"'), ("scontrol", "printf 'node-1\\nnode-2\\n'")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{answer}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "hosts.sh").write_text(files["hosts.sh"])
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node-[1-2]", "SLURM_JOB_ID": "7"}
    assert command_of(files)[:3] == ["bash", "../hosts.sh", "python"]
    command = ["bash", str(tmp_path / "hosts.sh"), "python", "train.py", "--lr", "0.1"]
    words = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()
    assert words[2:5] == ["python", "-m", "torch.distributed.run"]
    assert {"--nnodes=2", "--nproc-per-node=4", "--rdzv-endpoint=node-1:29500", "--rdzv-id=7"} <= set(words)
    assert words[-3:] == ["train.py", "--lr", "0.1"]
    with pytest.raises(PlanningError, match="needs --job slurm"):
        files_of(job, "kubernetes")


def test_the_batch_script_passes_a_signal_on_and_returns_the_exit_code(folder, tmp_path):
    with_torch(folder)
    (tmp_path / "job.sbatch").write_text(files_of(make_job(folder, hosts=2), "slurm")["job.sbatch"])
    (tmp_path / "train.sh").write_text("trap 'exit 75' TERM\ntouch started\nwhile :; do sleep 0.05; done\n")
    (tmp_path / "scontrol").write_text('#!/bin/sh\necho "$@" > requeued\n')
    (tmp_path / "scontrol").chmod(0o755)
    # the signal comes when the launcher is ready and bash has not yet read the next line
    (tmp_path / "debug.sh").write_text(
        "trap 'case \"$BASH_COMMAND\" in first=*) until [ -e started ]; do sleep 0.01; done; kill $$; esac' DEBUG\n"
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_JOB_ID": "7"}
    environment["BASH_ENV"] = str(tmp_path / "debug.sh")
    job = subprocess.run(["bash", "job.sbatch"], cwd=tmp_path, env=environment, timeout=30, check=False)
    assert job.returncode == 75
    assert (tmp_path / "requeued").read_text() == "requeue 7\n"


def test_a_script_over_hosts_without_torch_is_refused(folder):
    with pytest.raises(PlanningError, match="must be python SCRIPT"):
        files_of(make_job(folder, hosts=2), "slurm")


def test_records_of_a_script_are_in_a_folder(folder):
    with pytest.raises(PlanningError, match="--records must be a folder"):
        make_job(folder, records="s3://bucket/records")


def test_variables_that_are_passed_by_name_and_secrets_are_filled_in_by_the_user(tmp_path):
    more = 'pass_env = ["HF_HOME", "WANDB_API_KEY"]\n'
    text = EXPERIMENT.replace("PROGRAM", repr(sys.executable)) + more
    experiment = parse_experiment(text, folder=tmp_path)
    assert ScriptCommand(experiment, 4, {}, "val/error < 0.06").variables == ("HF_HOME", "WANDB_API_KEY")


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", "x", True),
        ("DB_PASSWORD", "x", True),
        ("DATABASE", "postgres://me:word@host/db", True),
        ("WANDB", "0123456789abcdef0123456789abcdef01234567", True),
        ("MODE", "fast", False),
        ("CUDA_VISIBLE_DEVICES", "{device}", False),
        ("OMP_NUM_THREADS", "4", False),
    ],
)
def test_values_that_look_like_secrets(name, value, secret):
    assert is_secret(name, value) is secret
