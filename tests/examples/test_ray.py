"""The examples for Ray: valid by schemas that refuse what they do not know, and with options that the command has."""

import copy
import json
import shlex
import subprocess
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from .kuberay_fields import RAYJOB

RAY = Path(__file__).parents[2] / "examples" / "ray"
KUBERNETES = "1.33"
PINNED = (Path(__file__).parents[2] / "constraints.txt").read_text().splitlines()


def read(name: str) -> dict:
    return yaml.safe_load((RAY / name).read_text())


def pods(job: dict) -> list[dict]:
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": group["template"]["spec"]}
        for group in groups
    ]


def check_job(job: dict) -> None:
    jsonschema.validate(job, RAYJOB)
    for pod in pods(job):
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


def test_the_rayjob_has_only_fields_that_kuberay_and_kubernetes_know():
    check_job(read("rayjob.yaml"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda job: job["spec"].update(entryPoint="x"),
        lambda job: job["spec"].update(backoffLimit="5"),
        lambda job: job["spec"]["rayClusterSpec"].update(autoscaling=True),
        lambda job: job["spec"]["rayClusterSpec"]["authOptions"].update(mode="tokens"),
        lambda job: job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"].update({"num-cpus": 0}),
        lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0].pop("maxReplicas"),
        lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"].update(container=[]),
        lambda job: job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0].pop(
            "name"
        ),
    ],
)
def test_a_spoiled_rayjob_is_refused(spoil):
    job = copy.deepcopy(read("rayjob.yaml"))
    spoil(job)
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        check_job(job)


def test_all_pods_share_one_image_and_one_volume_and_the_head_trains_nothing():
    job = read("rayjob.yaml")
    containers = [pod["spec"]["containers"][0] for pod in pods(job)]
    assert len({container["image"] for container in containers}) == 1
    assert all({"name": "shared", "mountPath": "/shared"} in container["volumeMounts"] for container in containers)
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["authOptions"]["mode"] == "token"
    for version in (cluster["rayVersion"], (RAY / "Dockerfile").read_text().split("ray:")[1].split("-")[0]):
        assert f"ray=={version}" in PINNED


def test_the_command_of_the_rayjob_has_options_that_exist():
    from typer.main import get_command

    from batchscale.cli.app import make_app

    name, command, *words = shlex.split(read("rayjob.yaml")["spec"]["entrypoint"])
    assert (name, command) == ("batchscale", "run")
    known = {option for parameter in get_command(make_app()).commands["run"].params for option in parameter.opts}
    options = [word for word in words if word.startswith("--")]
    assert {"--runner", "--ray-address", "--workers", "--out"} == set(options)
    assert set(options) <= known


LAUNCHER = """
import json, sys
from ray.autoscaler._private.util import prepare_config, validate_config

for config in json.load(sys.stdin):
    try:
        validate_config(prepare_config(config))
    except Exception as error:
        print(type(error).__name__)
    else:
        print("taken")
"""


@pytest.mark.ray
def test_the_cluster_file_is_what_rays_own_launcher_takes():
    """In a process of its own: Ray must not be loaded here before a cluster's variables are set."""
    config = read("cluster.yaml")
    configs = [config, {**config, "max_worker": 3}, {key: value for key, value in config.items() if key != "provider"}]
    words = [sys.executable, "-c", LAUNCHER]
    said = subprocess.run(words, input=json.dumps(configs), capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == "taken"
    assert set(said[1:]) <= {"ValidationError", "KeyError"}
    assert len(said) == 3
