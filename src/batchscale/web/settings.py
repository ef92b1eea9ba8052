"""What a server is started with: folders, address, who may act, and how much one may ask of it."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from batchscale.errors import SpecError, one_line

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Limits:
    """Quotas. Rates are per minute; ``body_s`` is how long a request may take to arrive, and a part of an upload."""

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
        folders: Where records are looked for; new runs go into the first.
        state: The folder of the token, the sessions and the audit log: outside anything served.
        host: The address to bind.
        port: The port to bind.
        certificate: TLS certificate and key, both or none.
        names: Further host names that the server answers to.
        read_only: Nothing can be started or stopped.
        own_files: Where experiment files with own Python files or trainer commands may come from; None: nowhere.
        workers: Worker processes of the runs started here; None: their own default.
        limits: Quotas.
        train_options: What ``batchscale train`` can be asked for, which the command line knows: jobs use no other.
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
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def scheme(self) -> str:
        """How browsers ask for it."""
        return "http" if self.certificate is None else "https"

    @property
    def hosts(self) -> frozenset[str]:
        """The Host headers that mean this server, each with the port."""
        own = LOOPBACK if self.is_loopback else (self.host,)
        named = [f"[{name}]" if ":" in name else name for name in (*own, *self.names)]
        hosts = {f"{name}:{self.port}".lower() for name in named}
        if self.port == {"http": 80, "https": 443}[self.scheme]:
            hosts |= {name.lower() for name in named}  # browsers leave the usual port out
        return frozenset(hosts)

    @property
    def cookie(self) -> str:
        """The name of the session's cookie: cookies do not keep ports apart, so the name does."""
        return f"{'__Host-' if self.certificate else ''}batchscale-{self.port}"

    @property
    def address(self) -> str:
        """Where the pages are."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def check_settings(settings: WebSettings, *, token_given: bool) -> None:
    """Refuse a server that others could reach without TLS and a token, or whose state would be served.

    Raises:
        SpecError: with what to change.
    """
    if not settings.is_loopback and (settings.certificate is None or not token_given):
        raise SpecError(
            f"A server that other machines can reach has TLS and a token. Found --host {one_line(settings.host)} "
            "without them; give --certificate, --key and --token-file, or leave --host out and use an SSH tunnel."
        )
    for folder in settings.folders:
        if not folder.is_dir():
            raise SpecError(f"The web interface shows a folder of records. Found none at {one_line(folder, 300)}.")
        if settings.state.resolve().is_relative_to(folder.resolve()):
            raise SpecError(
                f"The token lies outside the folders that are served. Found {one_line(settings.state, 300)} inside "
                f"{one_line(folder, 300)}; give --state another folder."
            )
    if settings.own_files is not None and not settings.own_files.is_dir():
        raise SpecError(f"--own-files is a folder of experiment files. Found none at {one_line(settings.own_files)}.")


def default_state() -> Path:
    """The user's own folder for what programs remember."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "batchscale" / "web"
