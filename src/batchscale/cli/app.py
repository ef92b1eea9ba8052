"""The ``batchscale`` command and its sub-commands.

The module of a command is imported only when the command is used, and heavy libraries only inside its function: one
command loads neither the others nor their libraries, and ``batchscale --help`` answers at once.
"""

import contextlib
import gc
import importlib
import itertools
import keyword
import os
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from batchscale import __version__
from batchscale.cli.completion import COMPLETING, completed_command
from batchscale.cli.exit import run_and_exit
from batchscale.plugins import find_plugins

PANELS = {
    "Measure": ("quickstart", "init", "validate", "predict", "run", "status", "train", "trainer"),
    "Understand": ("analyze", "report", "figure", "compare", "fit", "suggest", "atlas", "law"),
    "Decide": ("calibrate", "machines", "devices", "plan"),
    "Data": ("workloads", "data", "import", "export", "check", "summary"),
    "Serve": ("web",),
    "Help": ("doctor",),
}
"""The commands by their heading in ``--help``. Module and function have the command's name; a keyword gets a "_"."""

PLUGIN_PANEL = "Plug-ins"
COMMANDS = tuple(itertools.chain(*PANELS.values()))
GROUPS = ("data", "trainer", "atlas")  # commands with sub-commands: the module has a function that makes them
READING = (
    "check",
    "summary",
    "analyze",
    "fit",
    "compare",
    "suggest",
    "atlas",
    "law",
    "import",
    "export",
)  # start no training
TRAINING = ("run", "quickstart")  # load the training engine
OBJECTS_BEFORE_COLLECTION = 50_000  # loading libraries creates that many; Python's default of 700 collects 300 times


class PanelGroup(TyperGroup):
    """A command group whose help lists the commands under the headings of their panels, without cutting any text."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Write one section per panel."""
        width = max(map(len, self.commands), default=0)
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None)
            row = (name.ljust(width), command.get_short_help_str(limit=1000))
            panels.setdefault(panel if isinstance(panel, str) else "Commands", []).append(row)
        for panel, rows in panels.items():
            with formatter.section(panel):
                formatter.write_dl(rows)


def make_app(only: str | None = None) -> typer.Typer:
    """Return the command line application, with all commands or with one of them."""
    app = typer.Typer(
        name="batchscale",
        cls=PanelGroup,
        help="Measure how neural-network training scales with batch size, and decide with the result.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def options(
        _version: Annotated[
            bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
        ] = False,
    ) -> None:
        pass

    groups: dict[str, typer.Typer] = {}
    for panel, names in PANELS.items():
        for name in names:
            if only in COMMANDS and name != only:
                continue
            python_name = f"{name}_" if keyword.iskeyword(name) else name
            module: Any = importlib.import_module(f"batchscale.cli.{python_name}")
            if name in GROUPS:
                groups[name] = getattr(module, f"make_{name}_app")()
                app.add_typer(groups[name], name=name, rich_help_panel=panel)
            else:
                app.command(name, rich_help_panel=panel)(getattr(module, python_name))
    if only not in COMMANDS or only in GROUPS:
        _add_plugins(app, groups)
    return app


def _add_plugins(app: typer.Typer, groups: dict[str, typer.Typer]) -> None:
    """Add the commands of plug-ins; a command such as ``data audio`` goes to the group ``data`` if that is loaded."""
    for plugin in find_plugins():
        for name, reference in plugin.read("COMMAND_GROUPS", {}).items():
            groups[name] = plugin.load(reference)()
            app.add_typer(groups[name], name=name, rich_help_panel=PLUGIN_PANEL)
        for name, reference in plugin.read("COMMANDS", {}).items():
            group, _, command = name.rpartition(" ")
            if not group:
                app.command(command, rich_help_panel=PLUGIN_PANEL)(plugin.load(reference))
            elif group in groups:
                groups[group].command(command)(plugin.load(reference))


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"batchscale {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line and end the process."""
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION, 10, 10)
    command = completed_command() if COMPLETING in os.environ else sys.argv[1] if len(sys.argv) > 1 else None
    if command in READING:
        # NumPy's linear algebra would start a thread per core, which such small matrices never use.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with contextlib.ExitStack() as at_end:
        if command in TRAINING and not {"-h", "--help"} & set(sys.argv):
            from batchscale.run.early_start import load_engine_early

            at_end.enter_context(load_engine_early())
        run_and_exit(lambda: make_app(command)(standalone_mode=True))
