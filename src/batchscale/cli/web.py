"""``batchscale web``: every experiment under a folder in a browser."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from batchscale.web.settings import WebSettings

DEFAULT_PORT = 8765


def web(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]…", help="Where records are; new runs go into the first. Default: here."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = DEFAULT_PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show results; start and stop nothing.")] = False,
    own_files: Annotated[
        Path | None,
        typer.Option(help="A folder of experiment files with own Python files or trainers that may be started."),
    ] = None,
    max_runs: Annotated[int, typer.Option(min=0, help="How many runs may go on at once.")] = 2,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes of each run started here.")] = None,
    host: Annotated[str, typer.Option(help="The address to bind; others than this machine's need TLS.")] = "127.0.0.1",
    name: Annotated[list[str] | None, typer.Option(help="A further host name to answer to.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate (PEM).")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS key (PEM).")] = None,
    token_file: Annotated[Path | None, typer.Option(help="A token of your own, in a file only you can read.")] = None,
    state: Annotated[Path | None, typer.Option(help="Where token, sessions and the audit log are kept.")] = None,
) -> None:
    """Serve a web interface: watch, compare, start, stop and plan experiments in a browser."""
    settings = _settings(folders, port, host, state, read_only)
    from dataclasses import replace

    from batchscale.cli.plan_job import train_options

    pair = _pair(certificate, key)
    settings = replace(
        settings, certificate=pair, names=tuple(name or ()), own_files=own_files and own_files.resolve(),
        workers=workers, limits=replace(settings.limits, runs=max_runs), train_options=frozenset(train_options()),
    )  # fmt: skip
    _serve(settings, token_file)


def _settings(folders: list[Path] | None, port: int, host: str, state: Path | None, read_only: bool) -> "WebSettings":
    from batchscale.errors import RunError

    if any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn")):
        raise RunError("The web interface needs its extra. Run: pip install 'batchscale[web]'.")
    from batchscale.web.settings import WebSettings, default_state

    places = tuple(folder.resolve() for folder in folders or [Path()])
    return WebSettings(places, state or default_state(), host, port, read_only=read_only)


def _pair(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    from batchscale.errors import SpecError

    if (certificate is None) != (key is None):
        raise SpecError("TLS needs --certificate and --key together. Found one of them.")
    return None if certificate is None or key is None else (certificate, key)


def _serve(settings: "WebSettings", token_file: Path | None) -> None:
    from dataclasses import replace

    from batchscale.web.auth import Auth
    from batchscale.web.server import bind, serve
    from batchscale.web.settings import check_settings

    check_settings(settings, token_given=token_file is not None)
    auth = Auth(settings.state, token_file)
    listener = bind(settings)
    settings = replace(settings, port=listener.getsockname()[1])
    typer.echo(f"Open {settings.address}/sign-in#{auth.code}")
    typer.echo(f"(one-time code {auth.code}; later the token in {token_file or settings.state / 'token'})")
    typer.echo("Ctrl-C ends the server; runs go on without it.", err=True)
    serve(settings, auth, listener)
