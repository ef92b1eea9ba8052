"""Descriptions of clusters: every way of writing one, and what is refused."""

import json

import pytest

from batchscale.errors import RunError
from batchscale.workers.multihost.cluster import Cluster, read_cluster
from batchscale.workers.multihost.environment import find_cluster, refuse_key_file

TWO = ["host-a:8476", "host-b:8476"]


def tf_config(task, **groups):
    return json.dumps({"cluster": groups, "task": task, "environment": "cloud", "job": {"region": "x"}})


def test_a_list_of_processes_as_json_as_toml_and_in_a_file(tmp_path):
    expected = Cluster("host-a:8476", 2, 1, "--cluster", tuple(TWO))
    assert read_cluster(json.dumps({"processes": TWO, "process": 1})) == expected
    assert read_cluster(f"processes = {TWO}\nprocess = 1") == expected
    file = tmp_path / "cluster.toml"
    file.write_text(f"processes = {TWO}\nprocess = 1")
    found = read_cluster(str(file))
    assert (found.address, found.num_processes, found.process, found.names) == ("host-a:8476", 2, 1, tuple(TWO))


def test_a_coordinator_with_numbers():
    found = read_cluster('{"coordinator": "host-a:9000", "num_processes": 3, "process": 2}')
    assert (found.address, found.num_processes, found.process, found.is_chief) == ("host-a:9000", 3, 2, False)


def test_one_process_is_no_cluster():
    assert read_cluster('{"processes": ["host-a:1"], "process": 0}') is None
    assert find_cluster({"TF_CONFIG": tf_config({"type": "chief", "index": 0}, chief=["a:1"])}) is None
    assert find_cluster({"TF_CONFIG": '{"environment": "cloud"}', "WORLD_SIZE": "1", "RANK": "0"}) is None


def test_the_own_process_is_found_by_the_hosts_name(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "host-b")
    monkeypatch.setattr("socket.getfqdn", lambda: "host-b.example")
    assert read_cluster(json.dumps({"processes": TWO})).process == 1
    monkeypatch.setattr("socket.gethostname", lambda: "host-c")
    with pytest.raises(RunError, match=r"'process' is the number of this one of the 2 processes"):
        read_cluster(json.dumps({"processes": TWO}))


@pytest.mark.parametrize("chief", ["chief", "master"])
def test_tf_config_has_the_chief_first_and_then_the_workers(chief):
    groups = {chief: ["a:2222"], "worker": ["b:2222", "c:2222"]}
    for task, process in (({"type": chief, "index": 0}, 0), ({"type": "worker", "index": 1}, 2)):
        found = find_cluster({"TF_CONFIG": tf_config(task, **groups)})
        assert (found.address, found.num_processes, found.process) == ("a:2222", 3, process)
        assert found.names == ("a:2222", "b:2222", "c:2222")


def test_tf_config_of_workers_alone_takes_the_first_as_chief():
    found = find_cluster({"TF_CONFIG": tf_config({"type": "worker", "index": 1}, worker=["a:1", "b:1"])})
    assert (found.address, found.process) == ("a:1", 1)


def test_the_worker_pools_of_a_cluster_spec():
    groups = {"workerpool1": ["b:1", "c:1"], "workerpool0": ["a:1"]}
    found = find_cluster({"CLUSTER_SPEC": tf_config({"type": "workerpool1", "index": "1", "trial": "2"}, **groups)})
    assert (found.address, found.num_processes, found.process) == ("a:1", 3, 2)


@pytest.mark.parametrize(
    ("task", "groups", "words"),
    [
        ({"type": "ps", "index": 0}, {"chief": ["a:1"], "ps": ["p:1"]}, "Found 'ps': parameter servers"),
        ({"type": "evaluator", "index": 0}, {"chief": ["a:1"], "worker": ["b:1"]}, "Found 'evaluator': the hosts that"),
        (
            {"type": "worker", "index": 2},
            {"chief": ["a:1"], "worker": ["b:1"]},
            "Found worker 2 of 1 'chief', 1",
        ),
        ({"type": "chief", "index": 0}, {"chief": ["a:1", "b:1"]}, "Found 2 as 'chief'"),
        ({"type": "worker", "index": 0}, {"chief": ["a:1"], "worker": ["a:1"]}, "Found a:1 and a:1, which is one"),
        ({"type": "chief", "index": 0}, {"chief": ["a:1"], "master": ["b:1"]}, "Found chief and master"),
        ({"type": "chief", "index": 0}, {"chief": ["a:1"], "worker": ["a:1x"]}, "a port is a whole number"),
        ({"type": "chief", "index": 0}, {"chief": ["a:1"], "judge": ["b:1"]}, "Found 'judge'"),
        (None, {"chief": ["a:1"], "worker": ["b:1"]}, "'cluster' and 'task' are tables"),
        (
            {"type": "chief", "index": -1},
            {"chief": ["a:1"], "worker": ["b:1"]},
            "'task.index' is a whole number",
        ),
    ],
)
def test_what_no_cluster_has_is_refused_with_what_was_found(task, groups, words):
    with pytest.raises(RunError, match=r"^TF_CONFIG: ") as caught:
        find_cluster({"TF_CONFIG": tf_config(task, **groups)})
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("{}", "Found none of them"),
        ('{"processes": ["a:1", "b:1"], "coordinator": "a:1"}', "Found processes and coordinator"),
        ('{"processes": "a:1"}', "is a list of addresses"),
        ('{"processes": ["a:1", "a:1"], "process": 0}', "Found a:1 and a:1, which is one address"),
        ('{"processes": ["a", "a:8476"], "process": 0}', "Found a and a:8476, which is one address"),
        ('{"processes": ["a:1", "b:1"], "process": 2}', "numbered from 0 to 1. Found 2"),
        ('{"processes": ["a:1", "b:1"], "proces": 0}', "did you mean 'process'"),
        ('{"coordinator": "a:1", "process": 0}', "'num_processes' is a whole number from 0. Found None"),
        ('{"coordinator": "a:99999", "num_processes": 2, "process": 0}', "a port is a whole number"),
        ('{"processes": ["a:1", "b:1"], "process": 0, "lost_after_s": 0}', "'lost_after_s' is a number of seconds"),
        ("no/such/file.json", "the file cannot be read"),
        ("processes = [", "not TOML"),
    ],
)
def test_an_invalid_description_is_refused(text, words):
    with pytest.raises(RunError, match=r"^--cluster") as caught:
        read_cluster(text)
    assert words in str(caught.value)


SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NODELIST": "gpu[003-005,9]",
}


@pytest.mark.parametrize(
    ("environment", "address", "count", "process"),
    [
        (SLURM, "gpu003:61441", 4, 2),
        (
            {
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
            },
            "10.96.0.1:61440",
            2,
            1,
        ),
        ({"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "a", "MASTER_PORT": "29500"}, "a:29500", 2, 0),
        (
            {"JAX_COORDINATOR_ADDRESS": "job-0.job:8476", "JAX_NUM_PROCESSES": "3", "JOB_COMPLETION_INDEX": "2"},
            "job-0.job:8476",
            3,
            2,
        ),
        (
            {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1"},
            "10.0.0.1:8476",
            2,
            1,
        ),
    ],
)
def test_platforms_are_found_by_their_variables(environment, address, count, process):
    found = find_cluster(environment)
    assert (found.address, found.num_processes, found.process) == (address, count, process)


def test_a_job_script_that_is_no_step_of_several_tasks_is_a_single_process():
    assert find_cluster({"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"}) is None
    assert find_cluster({"JOB_COMPLETION_INDEX": "3"}) is None
    assert find_cluster({}) is None


def test_an_incomplete_environment_is_refused_with_missing_sentences():
    with pytest.raises(RunError, match="Found JAX_NUM_PROCESSES=''"):
        find_cluster({"JAX_COORDINATOR_ADDRESS": "a:1", "JOB_COMPLETION_INDEX": "0"})
    with pytest.raises(RunError, match="MASTER_ADDR"):
        find_cluster({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"})


def test_two_descriptions_must_agree():
    workers = ["b:1", "c:1", "d:1"]
    same = {"TF_CONFIG": tf_config({"type": "worker", "index": 1}, chief=["gpu003.example:1"], worker=workers)}
    assert find_cluster(SLURM | same).source == "TF_CONFIG"
    with pytest.raises(RunError, match="TF_CONFIG has process 2 of 4, SLURM process 3 of 4"):
        find_cluster(SLURM | same | {"SLURM_PROCID": "3"})


def test_two_descriptions_must_name_the_same_chief(monkeypatch):
    other = {"TF_CONFIG": tf_config({"type": "worker", "index": 1}, chief=["a:1"], worker=["b:1", "c:1", "d:1"])}
    addresses = {"a": "10.0.0.1", "gpu003": "10.0.0.2"}
    monkeypatch.setattr("socket.getaddrinfo", lambda host, _port: [(0, 0, 0, "", (addresses[host], 0))])
    with pytest.raises(RunError, match=r"TF_CONFIG names the chief a:1, SLURM the chief gpu003:61441\. Choose one"):
        find_cluster(SLURM | other)
    addresses["a"] = "10.0.0.2"  # another name of the same host
    assert find_cluster(SLURM | other).address == "a:1"


@pytest.mark.parametrize(("pool", "reason"), [("workerpool2", "parameter servers"), ("workerpool3", "evaluators")])
def test_pools_of_vertex_ai_that_do_not_train_are_refused_on_all_their_hosts(pool, reason):
    groups = {"workerpool0": ["a:1"], "workerpool1": ["b:1"], pool: ["c:1"]}
    for kind in groups:
        with pytest.raises(RunError, match=rf"^CLUSTER_SPEC: .*Found '{pool}': .*{reason}.* \(pools 0 and 1\)"):
            find_cluster({"CLUSTER_SPEC": tf_config({"type": kind, "index": 0}, **groups)})
    assert find_cluster({"CLUSTER_SPEC": tf_config({"type": "workerpool1", "index": 0}, **groups | {pool: []})})


TORCHRUN = {"WORLD_SIZE": "2", "MASTER_ADDR": "a", "TORCHELASTIC_USE_AGENT_STORE": "True"}


@pytest.mark.parametrize("port", ["29500", "41234", "61440", "65535", "1"])
def test_beside_torchruns_own_port_all_processes_take_the_same_other_one(port):
    pair = [find_cluster(TORCHRUN | {"MASTER_PORT": port, "RANK": rank}) for rank in "01"]
    (taken,) = {cluster.address.rpartition(":")[2] for cluster in pair}
    assert taken != port
    assert 1024 <= int(taken) < 65536
    free = TORCHRUN | {"MASTER_PORT": port, "RANK": "0", "TORCHELASTIC_USE_AGENT_STORE": "False"}
    assert find_cluster(free).address == f"a:{port}"


def test_a_shared_secret_is_refused_with_what_to_do_instead():
    described = json.dumps({"processes": TWO, "process": 1, "token_file": "token"})
    with pytest.raises(RunError, match=r"'token_file': the shared secret .* was removed.*firewall.*remove the key"):
        read_cluster(described)
    with pytest.raises(RunError, match=r"BATCHSCALE_TOKEN_FILE: the shared secret .* unset the variable"):
        refuse_key_file({"BATCHSCALE_TOKEN_FILE": "token"})
    refuse_key_file({})
