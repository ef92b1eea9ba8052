"""The ``batchscale`` command: its sub-commands, and the one place where errors become exit codes.

Command modules import only what a signature needs; everything heavy is imported inside the command, so that
``batchscale --help`` answers at once.
"""

import sys
from typing import Annotated

import typer

from batchscale import __version__
from batchscale.cli.analyze import analyze
from batchscale.cli.audio import make_audio_app
from batchscale.cli.calibrate import calibrate
from batchscale.cli.check import check
from batchscale.cli.compare import compare
from batchscale.cli.data import make_data_app
from batchscale.cli.ending import abandon_output, describe_refusal, leave, refuse
from batchscale.cli.export import export
from batchscale.cli.figure import figure
from batchscale.cli.fit import fit
from batchscale.cli.import_ import import_
from batchscale.cli.init import init
from batchscale.cli.machines import machines
from batchscale.cli.plan import plan
from batchscale.cli.quickstart import quickstart
from batchscale.cli.report import report
from batchscale.cli.run import run
from batchscale.cli.status import status
from batchscale.cli.suggest import suggest
from batchscale.cli.summary import summary
from batchscale.cli.train import train
from batchscale.cli.trainer import make_trainer_app
from batchscale.cli.validate import validate
from batchscale.cli.web import web
from batchscale.cli.workloads import workloads
from batchscale.errors import BatchscaleError

INTERRUPTED = 130


def make_app() -> typer.Typer:
    """The command line application."""
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

    app.command("init")(init)
    app.command("validate")(validate)
    app.command("train")(train)
    app.command("run")(run)
    app.command("quickstart")(quickstart)
    app.command("status")(status)
    app.command("check")(check)
    app.command("summary")(summary)
    app.command("analyze")(analyze)
    app.command("fit")(fit)
    app.command("compare")(compare)
    app.command("suggest")(suggest)
    app.command("calibrate")(calibrate)
    app.command("plan")(plan)
    app.command("machines")(machines)
    app.command("figure")(figure)
    app.command("report")(report)
    app.command("web")(web)
    app.add_typer(make_data_app(), name="data")
    app.add_typer(make_audio_app(), name="audio")
    app.add_typer(make_trainer_app(), name="trainer")
    app.command("workloads")(workloads)
    app.command("import")(import_)
    app.command("export")(export)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batchscale {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; a user's mistake is one paragraph on standard error and exit code 2."""
    try:
        make_app()(standalone_mode=True)
    except SystemExit as end:
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
