"""``batchscale web``: the web interface for every experiment under a folder."""

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
        typer.Argument(
            metavar="FOLDERS", help="The folders of records; new runs go into the first. Default: this folder."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 selects a free one.")] = DEFAULT_PORT,
    read_only: Annotated[bool, typer.Option("--read-only", help="Show results, but start and stop no runs.")] = False,
    own_files: Annotated[
        Path | None,
        typer.Option(
            help="A folder of experiment files that may use your own Python files or trainers. Default: none."
        ),
    ] = None,
    max_runs: Annotated[int, typer.Option(min=0, help="The most runs at once.")] = 2,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="The worker processes of each run. Default: one per accelerator, else per core."),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to bind. Others than this machine's need TLS.")] = "127.0.0.1",
    name: Annotated[list[str] | None, typer.Option(help="Another host name to accept. May be repeated.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="The TLS certificate (PEM). Needs --key.")] = None,
    key: Annotated[Path | None, typer.Option(help="The TLS key (PEM). Needs --certificate.")] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="A file with your own token, readable only by you. Default: a new token.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="The folder of token, sessions and audit log. Default: in your home folder.")
    ] = None,
) -> None:
    """Serve the web interface: watch, compare, start and plan runs."""
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
        raise RunError("The web interface needs more packages. Run: pip install 'batchscale[web]'.")
    from batchscale.web.settings import WebSettings, default_state

    paths = tuple(folder.resolve() for folder in folders or [Path()])
    return WebSettings(paths, state or default_state(), host, port, read_only=read_only)


def _pair(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    from batchscale.errors import SpecError

    if (certificate is None) != (key is None):
        raise SpecError("--certificate and --key must be given together. Found one of them.")
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
    typer.echo("Ctrl-C ends the server; runs continue without it.", err=True)
    serve(settings, auth, listener)
