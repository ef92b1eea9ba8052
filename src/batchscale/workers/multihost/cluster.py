"""The description of a cluster: the addresses of its processes, and the number of this one.

Three forms, as JSON or TOML, in a file or on the command line:

* ``{"processes": ["host-a:8476", "host-b:8476"], "process": 1}``;
* ``{"coordinator": "host-a:8476", "num_processes": 2, "process": 1}``;
* the form of TF_CONFIG: ``{"cluster": {"chief": [...], "worker": [...]}, "task": {"type": "worker", "index": 0}}``.
Each may also set how long processes wait for each other at the start (``join_s``) and after how long without a
heartbeat one counts as lost (``lost_after_s``).
"""

import json
import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields, replace
from pathlib import Path
from typing import Any

from batchscale.errors import RunError, one_line, suggest_names
from batchscale.spec.untrusted_text import parse_json, parse_toml

DEFAULT_PORT = 8476
MAX_PROCESSES = 100_000
MAX_FILE_BYTES = 10_000_000
CHIEF_NAMES = ("chief", "master", "workerpool0")
_KEYS = (
    *("processes", "coordinator", "num_processes", "process", "cluster", "task"),
    *("environment", "job", "join_s", "lost_after_s"),
)
_SERVERS = "parameter servers are another way of training, in which hosts do not take the same steps"
_EVALUATORS = "the hosts that train also evaluate"
_REFUSED = {
    "ps": _SERVERS,
    "evaluator": _EVALUATORS,
    "workerpool2": f"Vertex AI's third pool has parameter servers; {_SERVERS}",
    "workerpool3": f"Vertex AI's fourth pool has evaluators; {_EVALUATORS}",
}
KEY_FILE_REMOVED = (
    "the shared secret of a cluster was removed: it guarded the first connection alone, while JAX's own connections "
    "between the hosts were open all along. Let only the hosts of the run reach each other's ports (a private network, "
    "a firewall)"
)


@dataclass(frozen=True)
class Timeouts:
    """``join_s``: the longest wait at the start; ``lost_after_s``: the longest time without a heartbeat."""

    join_s: float = 300.0
    lost_after_s: float = 20.0


@dataclass(frozen=True)
class Cluster:
    """``num_processes`` processes, one per host, that meet at the chief's ``address``; this one is ``process``.

    ``names`` are the addresses of all of them, if the description has them. ``source`` names the description in
    messages.
    """

    address: str
    num_processes: int
    process: int
    source: str
    names: tuple[str, ...] = ()
    timeouts: Timeouts = Timeouts()

    def __post_init__(self) -> None:
        if not 1 <= self.num_processes <= MAX_PROCESSES:
            raise RunError(f"{self.source}: a cluster has 1 to {MAX_PROCESSES} processes. Found {self.num_processes}.")
        if not 0 <= self.process < self.num_processes:
            raise RunError(
                f"{self.source}: processes are numbered from 0 to {self.num_processes - 1}. Found {self.process}."
            )
        split_address(self.address, self.source)
        counts = Counter(split_address(name, self.source) for name in self.names)
        repeated = [name for name in self.names if counts[split_address(name, self.source)] > 1]
        if repeated:
            raise RunError(
                f"{self.source}: every process of a cluster, the chief too, has an address of its own. Found "
                f"{one_line(' and '.join(repeated[:2]))}, which is one address; give each host its own."
            )

    @property
    def is_chief(self) -> bool:
        """True if this process decides and writes."""
        return self.process == 0

    def name(self, process: int) -> str:
        """Return the name of a process for messages."""
        address = self.names[process] if process < len(self.names) else self.address if process == 0 else ""
        role = "the chief, " if process == 0 else ""
        return f"process {process} ({role}{address})" if address else f"process {process}"


def split_address(address: str, source: str) -> tuple[str, int]:
    """Return host and port; the port is 8476 if the address has none.

    >>> split_address("host-a:9000", "x"), split_address("[::1]:9000", "x"), split_address("host-b", "x")
    (('host-a', 9000), ('::1', 9000), ('host-b', 8476))
    """
    host, colon, port = address.rpartition(":")
    if not colon or ("]" in port):
        host, port = address, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not host.isprintable() or any(c.isspace() or c == "/" for c in host):
        raise RunError(f"{source}: an address is host:port. Found {one_line(repr(address))}.")
    if not (port.isascii() and port.isdigit() and len(port) < 6 and 0 < int(port) < 65536):
        raise RunError(f"{source}: a port is a whole number from 1 to 65535. Found {one_line(repr(address))}.")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return the address that `split_address` takes apart.

    >>> join_address("host-a", 9000), join_address("::1", 9000)
    ('host-a:9000', '[::1]:9000')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - compared, never bound


def same_addresses(first: Sequence[str], second: Sequence[str]) -> bool:
    """True if two lists name the same addresses in the same order; a chief may listen at all addresses of its host.

    >>> same_addresses(["a", "b:1"], ["a:8476", "b:1"]), same_addresses(["a:1", "b:1"], ["b:1", "a:1"])
    (True, False)
    """
    pairs = [
        (split_address(one, "an address"), split_address(other, "an address"))
        for one, other in zip(first, second, strict=False)
    ]
    return len(first) == len(second) and all(
        one == other or (one[1] == other[1] and (one[0] in WILDCARDS or other[0] in WILDCARDS)) for one, other in pairs
    )


def read_cluster(text: str) -> Cluster | None:
    """Read the cluster of ``--cluster``: a file of JSON or TOML, or the text itself; None for a single process.

    Raises:
        RunError: it cannot be read, is incomplete or contradicts itself.
    """
    source = "--cluster"
    content = text.strip()
    if not content.startswith("{") and "=" not in content:
        source = f"--cluster {one_line(text)}"
        content = _read_file(Path(text), source)
    return parse_cluster(_parse(content, source), source)


def parse_cluster(description: Mapping[str, Any], source: str) -> Cluster | None:
    """Parse a description; None if it has one process only."""
    for key in description:
        if key == "token_file":
            raise RunError(f"{source}: 'token_file': {KEY_FILE_REMOVED}, and remove the key.")
        if key not in _KEYS:
            raise RunError(f"{source}: unknown key '{one_line(key)}'; {suggest_names(str(key), _KEYS)}")
    forms = [key for key in ("processes", "coordinator", "cluster") if key in description]
    if len(forms) != 1:
        raise RunError(
            f"{source}: a cluster is described by one of 'processes', 'coordinator' and 'cluster'. Found "
            f"{' and '.join(forms) or 'none of them'}."
        )
    if forms == ["cluster"]:
        cluster = _from_tf_config(description, source)
    elif forms == ["processes"]:
        names = _texts(description["processes"], "processes", source)
        process = _number(description, "process", source) if "process" in description else _find_self(names, source)
        cluster = Cluster(names[0], len(names), process, source, names)
    else:
        address = _text(description["coordinator"], "coordinator", source)
        count, process = _number(description, "num_processes", source), _number(description, "process", source)
        cluster = Cluster(address, count, process, source)
    if cluster.num_processes == 1:
        return None
    return replace(cluster, timeouts=Timeouts(*(_seconds(description, item, source) for item in fields(Timeouts))))


def _seconds(description: Mapping[str, Any], item: "Field[float]", source: str) -> float:
    value = description.get(item.name, item.default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 2 <= value <= 1e6:
        raise RunError(f"{source}: '{item.name}' is a number of seconds from 2 on. Found {one_line(repr(value))}.")
    return float(value)


def _from_tf_config(description: Mapping[str, Any], source: str) -> Cluster:
    groups, task = description["cluster"], description.get("task")
    if not isinstance(groups, Mapping) or not isinstance(task, Mapping):
        raise RunError(f"{source}: 'cluster' and 'task' are tables. Found {one_line(json.dumps(dict(description)))}.")
    for name, reason in _REFUSED.items():
        if groups.get(name) or task.get("type") == name:
            raise RunError(
                f"{source}: every process of a cluster trains, so it has a chief and workers. Found '{name}': "
                f"{reason}. Start the job without it, with all its hosts as chief and workers (pools 0 and 1)."
            )
    chiefs = [name for name in CHIEF_NAMES if name in groups]
    if len(chiefs) > 1:
        raise RunError(f"{source}: a cluster has one chief. Found {' and '.join(chiefs)}.")
    worker_kinds = sorted(name for name in groups if name not in chiefs and groups[name])
    unknown = [name for name in worker_kinds if name not in ("worker", "workerpool1")]
    if unknown:
        raise RunError(f"{source}: a cluster has a chief and workers. Found '{one_line(unknown[0])}'.")
    members = {
        str(name): _texts(groups[name], f"cluster.{name}", source) for name in (*chiefs, *worker_kinds) if groups[name]
    }
    if chiefs and len(members.get(chiefs[0], ())) != 1:
        raise RunError(f"{source}: a cluster has one chief. Found {len(members.get(chiefs[0], ()))} as '{chiefs[0]}'.")
    kind, index = _text(task.get("type"), "task.type", source), _number(task, "index", source, "task.")
    if kind not in members or index >= len(members[kind]):
        sizes = ", ".join(f"{len(names)} '{name}'" for name, names in members.items())
        raise RunError(f"{source}: 'task' names a member of 'cluster'. Found {kind} {index} of {sizes or 'nobody'}.")
    names = tuple(name for group in members.values() for name in group)
    offset = sum(len(members[name]) for name in list(members)[: list(members).index(kind)])
    return Cluster(names[0], len(names), offset + index, source, names)


def _find_self(names: tuple[str, ...], source: str) -> int:
    """Return the number of the one address that belongs to this host."""
    host_names = {socket.gethostname(), socket.getfqdn()}
    matches = [number for number, name in enumerate(names) if split_address(name, source)[0] in host_names]
    if len(matches) == 1:
        return matches[0]
    raise RunError(
        f"{source}: 'process' is the number of this one of the {len(names)} processes. It is missing, and the name of "
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
        description = parse_json(text) if is_json else parse_toml(text)
    except ValueError as error:
        raise RunError(f"{source}: this is not {'JSON' if is_json else 'TOML'}: {one_line(error, 200)}.") from None
    if not isinstance(description, Mapping):
        raise RunError(f"{source}: a description is a table of keys. Found {one_line(description)}.")
    return description


def _texts(value: object, key: str, source: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise RunError(f"{source}: '{key}' is a list of addresses host:port. Found {one_line(repr(value))}.")
    for item in value:
        split_address(item, source)
    return tuple(value)


def _text(value: object, key: str, source: str) -> str:
    if not isinstance(value, str) or not value:
        raise RunError(f"{source}: '{key}' is a text. Found {one_line(repr(value))}.")
    return value


def _number(table: Mapping[str, Any], key: str, source: str, prefix: str = "") -> int:
    value = table.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
        value = int(value)  # some platforms write the index as a text
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise RunError(f"{source}: '{prefix}{key}' is a whole number from 0. Found {one_line(repr(value))}.")
    return value
