"""The ``batchscale`` command: its sub-commands, and the one place where errors become exit codes.

A command's module is imported when it is asked for, and everything heavy inside the command: one command loads neither
the others nor their libraries, and ``batchscale --help`` answers at once.
"""

import gc
import importlib
import keyword
import os
import sys
from typing import Annotated

import typer

from batchscale import __version__
from batchscale.cli.ending import abandon_output, describe_refusal, leave, refuse
from batchscale.errors import BatchscaleError

INTERRUPTED = 130

# In the order of --help. The function of a command has its name, and so has its module; a word of Python's gets a "_".
COMMANDS = (
    "init",
    "validate",
    "train",
    "run",
    "quickstart",
    "status",
    "check",
    "summary",
    "analyze",
    "fit",
    "compare",
    "suggest",
    "calibrate",
    "plan",
    "machines",
    "figure",
    "report",
    "web",
    "data",
    "audio",
    "trainer",
    "workloads",
    "import",
    "export",
)
GROUPS = ("audio", "data", "trainer")  # with commands of their own: the module makes them
READING = ("check", "summary", "analyze", "fit", "compare", "suggest", "import", "export")  # start no training
OBJECTS_BEFORE_COLLECTION = 50_000  # loading libraries makes as many that stay; Python's 700 looks at them 300 times


def make_app(only: str | None = None) -> typer.Typer:
    """The command line application, with one of the commands if that is all that will be asked for."""
    app = typer.Typer(
        name="batchscale",
        help="Measure how neural-network training scales with batch size, and decide with the answer.",
        no_args_is_help=True,
        add_completion=False,
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

    for name in (only,) if only in COMMANDS else COMMANDS:
        _add(app, name)
    return app


def _add(app: typer.Typer, name: str) -> None:
    module = importlib.import_module(f"batchscale.cli.{_python_name(name)}")
    if name in GROUPS:
        app.add_typer(getattr(module, f"make_{name}_app")(), name=name)
    else:
        app.command(name)(getattr(module, _python_name(name)))


def _python_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batchscale {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's mistake is one paragraph on standard error and exit code 2."""
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION, 10, 10)
    command = sys.argv[1] if len(sys.argv) > 1 else None
    if command in READING:
        # NumPy's linear algebra would start a thread for every core, which such small matrices never use.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        make_app(command)(standalone_mode=True)
    except SystemExit as end:
        gc.freeze()  # what is left ends with the process: nothing is gained by looking through it once more
        leave(_after_output(end))
    except BatchscaleError as error:
        refuse(str(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except OSError as error:
        refuse(describe_refusal(error))


def _after_output(end: SystemExit) -> str | int | None:
    """The exit code, once everything that was printed has left; a reader that went away (head, less) has had enough."""
    pipe_closed = isinstance(end.__context__, BrokenPipeError)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        pipe_closed = True
    except OSError as error:
        abandon_output()
        refuse(describe_refusal(error, "standard output"))
    if pipe_closed:
        abandon_output()
        return 0
    return end.code
