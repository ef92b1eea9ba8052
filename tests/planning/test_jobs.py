"""Job files: valid by each format's own validator, and never with an option that the command line lacks."""

import json
import os
import shlex
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
from pydantic import ValidationError

from batchscale.cli.plan_job import train_options
from batchscale.errors import PlanningError
from batchscale.planning.jobs.formats import FORMATS, job_files, vertex_job, write_job
from batchscale.planning.jobs.job import ALWAYS
from batchscale.planning.jobs.scripts import dockerfile, launcher, tf_config, tf_config_in_shell

from .job_samples import ALL_OPTIONS, make_job

KUBERNETES = "1.33"


def manifests(text):
    return list(yaml.safe_load_all(text))


def text_of(job, format_):
    files = job_files(job, format_, ALL_OPTIONS, "batchscale==0.1.0")
    return next(iter(files.values()))


def test_options_that_every_job_uses_exist():
    assert set(ALWAYS) <= train_options()


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize(("hosts", "per_host"), [(1, 1), (1, 4), (4, 2)])
def test_no_job_is_written_with_an_option_that_does_not_exist(format_, hosts, per_host, tmp_path):
    known = train_options()
    job = make_job(hosts, per_host)
    try:
        files = job_files(job, format_, known, "batchscale==0.1.0")
    except PlanningError as error:
        missing = {option for option in ("--cluster", "--devices") if option in str(error)}
        assert missing and not missing & known
        return
    line = next(line for line in files["train.sh"].splitlines() if line.startswith("set -- batchscale"))
    used = {word for word in shlex.split(line) if word.startswith("--") and word != "--"}
    assert used <= known
    assert {path.name for path in write_job(files, tmp_path / "job")} == set(files)


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize(("hosts", "device"), [(1, "NVIDIA T4"), (4, "NVIDIA T4"), (2, "x86_64"), (2, "TPU v3")])
def test_kubernetes_takes_the_job(hosts, device, spot):
    found = manifests(text_of(make_job(hosts, 2, device, spot=spot), "kubernetes"))
    for manifest in found:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    job = found[-1]
    assert job["spec"]["completions"] == hosts and job["spec"]["completionMode"] == "Indexed"
    if hosts > 1:
        service = found[0]
        assert service["spec"]["clusterIP"] == "None"
        assert service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"]
    limits = job["spec"]["template"]["spec"]["containers"][0].get("resources", {}).get("limits")
    assert limits == {"NVIDIA T4": {"nvidia.com/gpu": "2"}, "TPU v3": {"google.com/tpu": "2"}}.get(device)


def test_kubernetes_validator_refuses_a_broken_job():
    broken = manifests(text_of(make_job(), "kubernetes"))[-1]
    broken["spec"]["completionz"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, KUBERNETES, strict=True)


def read_jobset(manifest):
    """A manifest as the models that are generated from JobSet's published API read it, and write it again."""
    return JobsetV1alpha2JobSet.from_dict(manifest).to_dict()


@pytest.mark.parametrize(
    "damage",
    [
        lambda spec: spec.update(replicatedJobz=spec.pop("replicatedJobs")),
        lambda spec: spec["failurePolicy"].update(maxRestart=1),
        lambda spec: spec["failurePolicy"].update(maxRestarts="often"),
        lambda spec: spec["replicatedJobs"][0].update(replicas="2"),
        lambda spec: spec["replicatedJobs"][0].pop("template"),
        lambda spec: spec["replicatedJobs"][0]["template"]["spec"].update(completionz=1),
    ],
)
def test_jobsets_own_models_refuse_a_broken_jobset(damage):
    (broken,) = manifests(text_of(make_job(4, 2), "jobset"))
    damage(broken["spec"])
    try:
        found = read_jobset(broken)
    except ValidationError:
        return
    assert found != broken


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("hosts", [1, 4])
def test_the_jobset_and_the_job_inside_it_are_valid(hosts, spot):
    (found,) = manifests(text_of(make_job(hosts, 2, spot=spot), "jobset"))
    assert read_jobset(found) == found  # a key that JobSet does not know would be lost
    for inner in found["spec"]["replicatedJobs"]:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": inner["name"]}, **inner["template"]}
        kubernetes_validate.validate(job, KUBERNETES, strict=True)


@pytest.mark.parametrize("index", [0, 1, 3])
def test_a_pod_makes_the_tf_config_that_its_index_says(index):
    addresses = [f"job-{i}.job" for i in range(4)]
    script = tf_config_in_shell(addresses, "$JOB_COMPLETION_INDEX") + '\nprintf %s "$TF_CONFIG"'
    answer = subprocess.run(
        ["sh", "-euc", script], env={**os.environ, "JOB_COMPLETION_INDEX": str(index)}, capture_output=True, check=True
    )
    assert json.loads(answer.stdout) == tf_config(addresses, index)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_skypilot_node_makes_its_tf_config(rank):
    task = manifests(text_of(make_job(3, 2), "skypilot"))[0]
    assert task["num_nodes"] == 3 and task["resources"]["accelerators"] == "T4:2"
    script = task["run"].replace("exec sh train.sh", 'printf %s "$TF_CONFIG"')
    ips = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    environment = {**os.environ, "SKYPILOT_NODE_IPS": "\n".join(ips), "SKYPILOT_NODE_RANK": str(rank)}
    answer = subprocess.run(["bash", "-euc", script], env=environment, capture_output=True, check=True)
    assert json.loads(answer.stdout) == tf_config(ips, rank)


def test_vertex_has_a_chief_and_workers():
    pools = vertex_job(make_job(4, 2))["jobSpec"]["workerPoolSpecs"]
    assert [pool["replicaCount"] for pool in pools] == ["1", "3"]
    assert pools[0]["machineSpec"] == {
        "machineType": "n1-standard-8",
        "acceleratorType": "NVIDIA_TESLA_T4",
        "acceleratorCount": 2,
    }
    with pytest.raises(PlanningError, match="machine type in the machine's name"):
        vertex_job(make_job(machine="g4dn.xlarge"))


def test_every_host_has_its_own_tf_config():
    job = make_job(3, 1, addresses=("a", "b", "c"))
    files = job_files(job, "tf-config", ALL_OPTIONS, "batchscale==0.1.0")
    configs = [json.loads(files[f"host-{i}.json"]) for i in range(3)]
    assert configs[0]["cluster"] == {"chief": ["a:8476"], "worker": ["b:8476", "c:8476"]}
    assert [config["task"] for config in configs] == [
        {"type": "chief", "index": 0},
        {"type": "worker", "index": 0},
        {"type": "worker", "index": 1},
    ]
    commands = job_files(job, "commands", ALL_OPTIONS, "batchscale==0.1.0")["commands.txt"]
    assert commands.count("TF_CONFIG=") == 3


@pytest.mark.parametrize("format_", FORMATS)
def test_shell_scripts_are_valid(format_):
    for name, text in job_files(make_job(2, 2), format_, ALL_OPTIONS, "batchscale==0.1.0").items():
        if name.endswith((".sh", ".sbatch")):
            subprocess.run(["bash" if name.endswith("sbatch") else "sh", "-n"], input=text.encode(), check=True)


def test_with_arguments_the_launcher_is_any_other_command(tmp_path):
    program = tmp_path / "batchscale"
    program.write_text('#!/bin/sh\nprintf "[%s]" "$@"\n')
    program.chmod(0o700)
    (tmp_path / "train.sh").write_text(launcher(make_job()))
    command = ["sh", str(tmp_path / "train.sh"), "data", "audio", "a line's folder", "--out", "/records/prepared"]
    done = subprocess.run(
        command, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[data][audio][a line's folder][--out][/records/prepared]"


def test_the_launcher_runs_the_same_words_whatever_the_folder_holds(tmp_path):
    """Run with a command that only prints its words: hosts with and without records must be started alike."""
    fake = tmp_path / "bin" / "batchscale"
    fake.parent.mkdir()
    fake.write_text(f'#!{sys.executable}\nimport sys\nprint("\\n".join(sys.argv[1:]))\n')
    fake.chmod(0o755)
    (tmp_path / "train.sh").write_text(launcher(make_job()))
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}", "RECORDS": str(tmp_path / "out")}

    def run():
        command = ["sh", str(tmp_path / "train.sh")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.splitlines()

    first = run()
    assert first[:2] == ["train", "experiment.toml"]
    assert "val/classification_error < 0.03" in first and "learning_rate=0.001" in first
    journal = tmp_path / "out" / ".batchscale" / "studies" / "journal-1"
    journal.parent.mkdir(parents=True)
    journal.touch()
    assert run() == first


def test_the_dockerfile_has_its_base_as_a_parameter():
    lines = [line for line in dockerfile(make_job(), "batchscale==0.1.0").splitlines() if line and line[0] != "#"]
    words = [line.split()[0] for line in lines]
    assert words == ["ARG", "FROM", "ARG", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "VOLUME", "ENTRYPOINT"]
    assert lines[0].startswith("ARG BASE=") and lines[1] == "FROM ${BASE}"
    assert json.loads(lines[-1].removeprefix("ENTRYPOINT ")) == ["sh", "/batchscale/train.sh"]


@pytest.mark.parametrize(
    "settings", [{"image": "a b"}, {"image": "x; rm -rf /"}, {"records": "$(reboot)"}, {"addresses": ("a b",)}]
)
def test_hostile_names_are_refused(settings):
    with pytest.raises(PlanningError):
        make_job(**settings)
