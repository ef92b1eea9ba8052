"""The description of a cluster: the addresses of its processes and which of them this one is.

Three ways of writing it, as JSON or TOML, in a file or on the command line:

* ``{"processes": ["host-a:8476", "host-b:8476"], "process": 1}``;
* ``{"coordinator": "host-a:8476", "num_processes": 2, "process": 1}``;
* what TF_CONFIG has: ``{"cluster": {"chief": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}}``.
Each may also say how long processes wait for each other at the start (``join_s``) and how long one may be silent before
it counts as lost (``lost_after_s``), and name a file with a secret that all of them have (``token_file``).
"""

import json
import socket
import tomllib
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from batchscale.cluster.secret import FILE_VARIABLE, read_token
from batchscale.errors import RunError, one_line, suggest_names

DEFAULT_PORT = 8476
MAX_PROCESSES = 100_000
MAX_FILE_BYTES = 10_000_000
CHIEF_NAMES = ("chief", "master", "workerpool0")
_KEYS = (
    *("processes", "coordinator", "num_processes", "process", "cluster", "task"),
    *("environment", "job", "join_s", "lost_after_s", "token_file"),
)
_REFUSED = {
    "ps": "parameter servers are another way of training, in which hosts do not take the same steps",
    "evaluator": "the hosts that train also evaluate",
}


@dataclass(frozen=True)
class Timeouts:
    """``join_s``: how long processes wait for each other at the start; ``lost_after_s``: how long one may be silent."""

    join_s: float = 300.0
    lost_after_s: float = 20.0


@dataclass(frozen=True)
class Cluster:
    """``num_processes`` processes, one per host, that meet at the chief's ``address``; this one is ``process``.

    ``names`` are the addresses of all of them where they are known. ``source`` says where this was found. ``token`` is
    the secret that they share, empty where there is none. ``first`` is the number of the first one in the cluster that
    this is a group of.
    """

    address: str
    num_processes: int
    process: int
    source: str
    names: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()
    token: bytes = field(default=b"", repr=False)
    first: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.num_processes <= MAX_PROCESSES:
            raise RunError(f"{self.source}: a cluster has 1 to {MAX_PROCESSES} processes. Found {self.num_processes}.")
        if not 0 <= self.process < self.num_processes:
            raise RunError(
                f"{self.source}: processes are numbered from 0 to {self.num_processes - 1}. Found {self.process}."
            )
        split_address(self.address, self.source)

    @property
    def is_chief(self) -> bool:
        """Whether this process decides and writes."""
        return self.process == 0

    def name(self, process: int) -> str:
        """A process in words for people."""
        at = self.names[process] if process < len(self.names) else self.address if process == 0 else ""
        number = self.first + process
        role = "the chief, " if number == 0 else ""
        return f"process {number} ({role}{at})" if at else f"process {number}"


def split_address(address: str, source: str) -> tuple[str, int]:
    """Host and port; 8476 where none is given.

    >>> split_address("host-a:9000", "x"), split_address("[::1]:9000", "x"), split_address("host-b", "x")
    (('host-a', 9000), ('::1', 9000), ('host-b', 8476))
    """
    host, colon, port = address.rpartition(":")
    if not colon or ("]" in port):
        host, port = address, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not host.isprintable() or any(c.isspace() or c == "/" for c in host):
        raise RunError(f"{source}: an address is host:port. Found {one_line(repr(address))}.")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise RunError(f"{source}: a port is a whole number from 1 to 65535. Found {one_line(repr(address))}.")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """The address that `split_address` takes apart.

    >>> join_address("host-a", 9000), join_address("::1", 9000)
    ('host-a:9000', '[::1]:9000')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def read_cluster(text: str) -> Cluster | None:
    """The cluster that ``--cluster`` describes: a file of JSON or TOML, or the text itself; None for a single process.

    Raises:
        RunError: it cannot be read, is incomplete or contradicts itself; says what was found.
    """
    source = "--cluster"
    literal = text.strip()
    if not literal.startswith("{") and "=" not in literal:
        source = f"--cluster {one_line(text)}"
        literal = _read_file(Path(text), source)
    return parse_cluster(_parse(literal, source), source)


def with_token(cluster: Cluster, environment: Mapping[str, str]) -> Cluster:
    """The cluster with the secret of BATCHSCALE_TOKEN_FILE, where its description names none.

    Raises:
        RunError: that file cannot be read, or holds no secret.
    """
    path = environment.get(FILE_VARIABLE, "")
    if cluster.token or not path:
        return cluster
    return replace(cluster, token=read_token(Path(path), FILE_VARIABLE))


def parse_cluster(found: Mapping[str, Any], source: str) -> Cluster | None:
    """The cluster of a description; None where it has one process only."""
    for key in found:
        if key not in _KEYS:
            raise RunError(f"{source}: unknown key '{one_line(key)}'; {suggest_names(str(key), _KEYS)}")
    ways = [key for key in ("processes", "coordinator", "cluster") if key in found]
    if len(ways) != 1:
        raise RunError(
            f"{source}: a cluster is described by one of 'processes', 'coordinator' and 'cluster'. Found "
            f"{' and '.join(ways) or 'none of them'}."
        )
    if ways == ["cluster"]:
        cluster = _from_tf_config(found, source)
    elif ways == ["processes"]:
        names = _texts(found["processes"], "processes", source)
        process = _number(found, "process", source) if "process" in found else _find_own(names, source)
        cluster = Cluster(names[0], len(names), process, source, names)
    else:
        address = _text(found["coordinator"], "coordinator", source)
        cluster = Cluster(address, _number(found, "num_processes", source), _number(found, "process", source), source)
    if cluster.num_processes == 1:
        return None
    timeouts = Timeouts(*(_seconds(found, one, source) for one in fields(Timeouts)))
    token = b""
    if "token_file" in found:
        token = read_token(Path(_text(found["token_file"], "token_file", source)), f"{source}: 'token_file'")
    return replace(cluster, timeouts=timeouts, token=token)


def _seconds(found: Mapping[str, Any], wanted: "Field[float]", source: str) -> float:
    value = found.get(wanted.name, wanted.default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 2 <= value <= 1e6:
        raise RunError(f"{source}: '{wanted.name}' is a number of seconds from 2 on. Found {one_line(repr(value))}.")
    return float(value)


def _from_tf_config(found: Mapping[str, Any], source: str) -> Cluster:
    groups, task = found["cluster"], found.get("task")
    if not isinstance(groups, Mapping) or not isinstance(task, Mapping):
        raise RunError(f"{source}: 'cluster' and 'task' are tables. Found {one_line(json.dumps(dict(found)))}.")
    for name, why in _REFUSED.items():
        if groups.get(name) or task.get("type") == name:
            raise RunError(
                f"{source}: every process of a cluster trains, so it has a chief and workers. Found '{name}': {why}. "
                "Start the job without it."
            )
    order = [name for name in CHIEF_NAMES if name in groups]
    if len(order) > 1:
        raise RunError(f"{source}: a cluster has one chief. Found {' and '.join(order)}.")
    others = sorted(name for name in groups if name not in order)
    strange = [name for name in others if name != "worker" and not str(name).startswith("workerpool")]
    if strange:
        raise RunError(f"{source}: a cluster has a chief and workers. Found '{one_line(strange[0])}'.")
    members = {str(name): _texts(groups[name], f"cluster.{name}", source) for name in (*order, *others) if groups[name]}
    if order and len(members.get(order[0], ())) != 1:
        raise RunError(f"{source}: a cluster has one chief. Found {len(members.get(order[0], ()))} as '{order[0]}'.")
    kind, index = _text(task.get("type"), "task.type", source), _number(task, "index", source, "task.")
    if kind not in members or index >= len(members[kind]):
        sizes = ", ".join(f"{len(names)} '{name}'" for name, names in members.items())
        raise RunError(f"{source}: 'task' names a member of 'cluster'. Found {kind} {index} of {sizes or 'nobody'}.")
    names = tuple(name for group in members.values() for name in group)
    before = sum(len(members[name]) for name in list(members)[: list(members).index(kind)])
    return Cluster(names[0], len(names), before + index, source, names)


def _find_own(names: tuple[str, ...], source: str) -> int:
    """Which of the addresses is this host's, where only one is."""
    own = {socket.gethostname(), socket.getfqdn()}
    matches = [place for place, name in enumerate(names) if split_address(name, source)[0] in own]
    if len(matches) == 1:
        return matches[0]
    raise RunError(
        f"{source}: 'process' says which of the {len(names)} processes this one is. It is missing, and the name of "
        f"this host ({socket.gethostname()}) is {'none' if not matches else 'several'} of them; add it, from 0."
    )


def _read_file(path: Path, source: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise RunError(f"{source}: a description has at most {MAX_FILE_BYTES} bytes; this file is larger.")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise RunError(f"{source}: the file cannot be read ({error.strerror or error}).") from None
    except UnicodeDecodeError:
        raise RunError(f"{source}: the file must be UTF-8 text.") from None


def _parse(text: str, source: str) -> Mapping[str, Any]:
    is_json = text.lstrip().startswith("{")
    try:
        found = json.loads(text) if is_json else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{source}: this is not {'JSON' if is_json else 'TOML'}: {one_line(error, 200)}.") from None
    if not isinstance(found, Mapping):
        raise RunError(f"{source}: a description is a table of keys. Found {one_line(found)}.")
    return found


def _texts(value: object, key: str, source: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise RunError(f"{source}: '{key}' is a list of addresses host:port. Found {one_line(repr(value))}.")
    for item in value:
        split_address(item, source)
    if len(set(value)) != len(value):
        raise RunError(f"{source}: the addresses in '{key}' are different. Found one twice in {one_line(value)}.")
    return tuple(value)


def _text(value: object, key: str, source: str) -> str:
    if not isinstance(value, str) or not value:
        raise RunError(f"{source}: '{key}' is a text. Found {one_line(repr(value))}.")
    return value


def _number(found: Mapping[str, Any], key: str, source: str, prefix: str = "") -> int:
    value = found.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
        value = int(value)  # some platforms write the index as a text
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RunError(f"{source}: '{prefix}{key}' is a whole number from 0. Found {one_line(repr(value))}.")
    return value
