"""Clusters that platforms describe in the environment of their processes, and what to do if two contradict."""

import ipaddress
import re
import socket
from collections.abc import Callable, Mapping

from batchscale.errors import RunError, one_line
from batchscale.spec.untrusted_text import parse_json
from batchscale.workers.multihost.cluster import DEFAULT_PORT, KEY_FILE_REMOVED, Cluster, parse_cluster, split_address

Environment = Mapping[str, str]
_PORTS = 4096
"""Each job of a scheduler has its own port out of so many, so that two on one host do not meet each other."""

_KEY_FILE_VARIABLE = "BATCHSCALE_TOKEN_FILE"


def find_cluster(environment: Environment) -> Cluster | None:
    """Return the cluster that the environment describes; None for a single process.

    Raises:
        RunError: a description is incomplete, or two of them contradict each other.
    """
    clusters = [cluster for read in _READERS if (cluster := read(environment)) is not None]
    for other in clusters[1:]:
        first = clusters[0]
        if (first.num_processes, first.process) != (other.num_processes, other.process):
            raise RunError(
                f"The environment describes two clusters: {first.source} has process {first.process} of "
                f"{first.num_processes}, {other.source} process {other.process} of {other.num_processes}. Choose one "
                "with --cluster, or --cluster none for a single process."
            )
        if not _same_host(first.address, other.address):
            raise RunError(
                f"The environment describes two clusters: {first.source} names the chief {first.address}, "
                f"{other.source} the chief {other.address}. Choose one with --cluster, or --cluster none for a single "
                "process."
            )
    return clusters[0] if clusters else None


def _same_host(first: str, second: str) -> bool:
    """True if two addresses may be of one host: by its name, its short name, or what the names resolve to."""
    hosts = [split_address(address, "an address")[0].casefold() for address in (first, second)]
    if hosts[0] == hosts[1]:
        return True
    is_name = [not _is_number(host) for host in hosts]
    if all(is_name) and hosts[0].partition(".")[0] == hosts[1].partition(".")[0]:
        return True
    return bool(_resolve(hosts[0]) & _resolve(hosts[1]))


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _resolve(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return set()


def refuse_key_file(environment: Environment) -> None:
    """Raise RunError if the environment names a shared secret, which clusters no longer have."""
    if environment.get(_KEY_FILE_VARIABLE):
        raise RunError(f"{_KEY_FILE_VARIABLE}: {KEY_FILE_REMOVED}, and unset the variable.")


def _tf_config(environment: Environment) -> Cluster | None:
    return _json_variable(environment, "TF_CONFIG")


def _cluster_spec(environment: Environment) -> Cluster | None:
    return _json_variable(environment, "CLUSTER_SPEC")


def _json_variable(environment: Environment, name: str) -> Cluster | None:
    text = environment.get(name, "").strip()
    if not text:
        return None
    try:
        description = parse_json(text)
    except ValueError as error:
        raise RunError(f"{name}: this is not JSON: {one_line(error, 200)}.") from None
    if not isinstance(description, Mapping):
        raise RunError(f"{name}: a description is a table of keys. Found {one_line(description)}.")
    if not description.get("cluster"):
        return None  # a platform sets it for single machines too
    return parse_cluster({key: description[key] for key in ("cluster", "task") if key in description}, name)


def _coordinator(environment: Environment) -> Cluster | None:
    """The address that JAX uses, with the process number from JAX or from an indexed job of Kubernetes."""
    address = environment.get("JAX_COORDINATOR_ADDRESS", "")
    if not address:
        return None
    source = "JAX_COORDINATOR_ADDRESS"
    index = "JAX_PROCESS_ID" if "JAX_PROCESS_ID" in environment else "JOB_COMPLETION_INDEX"
    return _counted(environment, source, address, "JAX_NUM_PROCESSES", index)


def _slurm(environment: Environment) -> Cluster | None:
    """A step of several tasks, as ``srun`` starts them."""
    if environment.get("SLURM_STEP_NUM_TASKS", "1") == "1":
        return None
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    if not nodes:
        raise RunError("SLURM: SLURM_STEP_NODELIST names the hosts of a step. Found none; give --cluster.")
    address = f"{first_host(nodes)}:{_port(environment.get('SLURM_JOB_ID', ''))}"
    return _counted(environment, "SLURM", address, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID")


def _open_mpi(environment: Environment) -> Cluster | None:
    if environment.get("OMPI_COMM_WORLD_SIZE", "1") == "1":
        return None
    launcher = re.search(r"tcp://([\d.]+)", environment.get("OMPI_MCA_orte_hnp_uri", ""))
    address = environment.get("MASTER_ADDR", "") or (launcher[1] if launcher else "")
    if not address:
        raise RunError(
            "Open MPI: its variables do not say where process 0 is. Set MASTER_ADDR to its host "
            "(mpirun -x MASTER_ADDR=…), or give --cluster."
        )
    port = environment.get("MASTER_PORT") or _port(environment.get("PMIX_NAMESPACE", ""))
    return _counted(environment, "Open MPI", f"{address}:{port}", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")


def _torchrun(environment: Environment) -> Cluster | None:
    if environment.get("WORLD_SIZE", "1") == "1" or "RANK" not in environment:
        return None
    host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", str(DEFAULT_PORT))
    if not host:
        raise RunError("RANK and WORLD_SIZE: MASTER_ADDR names the host of process 0. Found none; set it.")
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and port.isascii() and port.isdigit():
        port = str(_port(str(int(port[:9]) + 1)))  # torchrun itself listens at MASTER_PORT: all take the same other one
    return _counted(environment, "MASTER_ADDR", f"{host}:{port}", "WORLD_SIZE", "RANK")


def _skypilot(environment: Environment) -> Cluster | None:
    hosts = environment.get("SKYPILOT_NODE_IPS", "").split()
    if len(hosts) < 2:
        return None
    return _counted(environment, "SkyPilot", f"{hosts[0]}:{DEFAULT_PORT}", "SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK")


_READERS: tuple[Callable[[Environment], Cluster | None], ...] = (
    _tf_config,
    _cluster_spec,
    _coordinator,
    _slurm,
    _open_mpi,
    _torchrun,
    _skypilot,
)


def _counted(environment: Environment, source: str, address: str, count: str, index: str) -> Cluster | None:
    """Read the number of processes and the number of this one from two variables."""
    values = []
    for name in (count, index):
        text = environment.get(name, "").strip()
        if not (text.isascii() and text.isdigit() and len(text) < 9):
            raise RunError(
                f"{source}: a cluster needs {count} and {index}, whole numbers. Found {name}={one_line(repr(text))}; "
                "set it, or give --cluster."
            )
        values.append(int(text))
    cluster = Cluster(address, values[0], values[1], source)
    return cluster if cluster.num_processes > 1 else None


def first_host(nodes: str) -> str:
    """Return the first host of a list in SLURM's notation.

    >>> first_host("gpu[003-005,9],login"), first_host("a,b"), first_host("rack[1-2]n[07-08]")
    ('gpu003', 'a', 'rack1n07')
    """
    first = ""
    depth = 0
    for character in nodes:
        if character == "," and depth == 0:
            break
        depth += (character == "[") - (character == "]")
        first += character
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first)


def _port(job: str) -> int:
    digits = re.sub(r"\D", "", job)[-9:]
    return 65536 - _PORTS + (int(digits) if digits else 0) % _PORTS
