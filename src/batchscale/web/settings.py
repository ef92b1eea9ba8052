"""Settings of a server: folders, address, permissions, and limits of requests."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from batchscale.errors import SpecError, one_line
from batchscale.records.tree.layout import RunPaths

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Limits:
    """Limits. Rates are per minute; ``body_s`` is the longest time for a request, or a part of an upload, to arrive."""

    runs: int = 2
    streams: int = 120
    body_bytes: int = 512 * 1024
    body_fields: int = 400
    body_s: float = 10.0
    header_s: float = 10.0
    sign_ins: int = 10
    actions: int = 60
    checks: int = 300
    zip_bytes: int = 8 * 10**9
    uploads: int = 120
    upload_bytes: int = 500 * 10**6
    upload_total_bytes: int = 4 * 10**9
    upload_files: int = 200
    upload_s: float = 1800.0


@dataclass(frozen=True)
class WebSettings:
    """One server.

    Attributes:
        folders: The folders of records; new runs go into the first.
        state: The folder of the token, the sessions and the audit log, outside the served folders.
        host: The address to bind.
        port: The port to bind.
        certificate: TLS certificate and key, both or none.
        names: Further host names that the server answers to.
        read_only: True if nothing can be started or stopped.
        own_files: The folder of experiment files that may name Python files or trainer commands; None: there is none.
        workers: Worker processes of the runs started here; None: the default.
        limits: Limits of requests and runs.
        train_options: The options of ``batchscale train`` that job files may use.
    """

    folders: tuple[Path, ...]
    state: Path
    host: str = "127.0.0.1"
    port: int = 8765
    certificate: tuple[Path, Path] | None = None
    names: tuple[str, ...] = ()
    read_only: bool = False
    own_files: Path | None = None
    workers: int | None = None
    limits: Limits = field(default_factory=Limits)
    train_options: frozenset[str] = frozenset()

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def scheme(self) -> str:
        """The scheme of its addresses."""
        return "http" if self.certificate is None else "https"

    @property
    def hosts(self) -> frozenset[str]:
        """The Host headers that mean this server, each with the port."""
        addresses = LOOPBACK if self.is_loopback else (self.host,)
        named = [f"[{name}]" if ":" in name else name for name in (*addresses, *self.names)]
        hosts = {f"{name}:{self.port}".lower() for name in named}
        if self.port == {"http": 80, "https": 443}[self.scheme]:
            hosts |= {name.lower() for name in named}  # browsers leave the default port out
        return frozenset(hosts)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie: cookies are shared between ports, so its name has the port."""
        return f"{'__Host-' if self.certificate else ''}batchscale-{self.port}"

    @property
    def address(self) -> str:
        """The address of the pages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def check_settings(settings: WebSettings, *, token_given: bool) -> None:
    """Check that others cannot reach the server without TLS and a token, and that its state is not served.

    Raises:
        SpecError: with the setting to change.
    """
    if not settings.is_loopback and (settings.certificate is None or not token_given):
        raise SpecError(
            f"A server that other machines can reach needs TLS and a token. Found --host {one_line(settings.host)} "
            "without them; give --certificate, --key and --token-file, or leave --host out and use an SSH tunnel."
        )
    for folder in settings.folders:
        if not folder.is_dir():
            raise SpecError(
                f"The web interface needs an existing folder of records. Found none at {one_line(folder, 300)}."
            )
        if _is_shown(settings.state.resolve(), folder.resolve()):
            raise SpecError(
                f"The token must lie outside the served records. Found {one_line(settings.state, 300)} inside "
                f"{one_line(folder, 300)}; give --state another folder."
            )
    if settings.own_files is not None and not settings.own_files.is_dir():
        raise SpecError(
            f"--own-files must be a folder of experiment files. Found none at {one_line(settings.own_files)}."
        )


def _is_shown(state: Path, folder: Path) -> bool:
    """True if a state folder lies in records, or where they are looked for: not below a folder like ``.local``."""
    if not state.is_relative_to(folder):
        return False
    above = [path for path in (state, *state.parents) if path.is_relative_to(folder)]
    is_hidden = any(path.name.startswith(".") for path in above[:-1])
    return not is_hidden or any(RunPaths(path).working.is_dir() for path in above)


def default_state() -> Path:
    """Return the user's folder for the state of programs."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "batchscale" / "web"
