"""The reference of the commands as one page of plain Markdown, from the command line application itself."""

import re
from typing import Any

import typer.main

from batchscale.cli.app import make_app

TOP = """# Commands
Every command with its arguments and options, as `batchscale COMMAND --help` prints them. Exit codes are 0 for success,
2 for a mistake in the input and 75 for "stopped, run the command again". [JSON output](json.md) describes `--json`.

"""
ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def make_page() -> str:
    """Return the page: commands by their headings in ``--help``, sub-commands below their command."""
    root = typer.main.get_command(make_app())
    context = root.make_context("batchscale", [], resilient_parsing=True)
    panels: dict[str, list[str]] = {}
    for name, command in root.commands.items():
        parts = panels.setdefault(str(command.rich_help_panel), [])
        parts.append(_section(f"batchscale {name}", command, context))
    return TOP + "\n".join(f"## {panel}\n\n" + "\n".join(parts) for panel, parts in panels.items())


def _section(name: str, command: Any, parent: Any, level: int = 3) -> str:
    context = command.context_class(command, info_name=name.rpartition(" ")[2], parent=parent)
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    text = f"{'#' * level} {name}\n{_escape(_paragraphs(command.help or ''))}\n\n```\n{usage}\n```\n"
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    rows = [f"| `{_cell(row[0])}` | {_escape(_cell(row[1]))} |\n" for row in records if row and "--help" not in row[0]]
    if rows:
        text += "\n| option | meaning |\n|---|---|\n" + "".join(rows)
    for inner, subcommand in getattr(command, "commands", {}).items():
        text += "\n" + _section(f"{name} {inner}", subcommand, context, level + 1)
    return text


def _paragraphs(text: str) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text.replace("\b\n", "")).strip()


def _cell(text: str) -> str:
    """Return a text that fits into a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def _escape(text: str) -> str:
    r"""Return a text whose signs mean nothing in Markdown, except in code; options become code.

    >>> _escape("Use *all* with --out=FILE and `a_b`.")
    'Use \\*all\\* with `--out=FILE` and `a_b`.'
    """
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        plain = re.sub(r"([*_<>&])", lambda sign: ESCAPES.get(sign[1], f"\\{sign[1]}"), parts[place])
        parts[place] = re.sub(r"(?<![\w-])(--[a-z][\w-]*(?:=[A-Z]+)?)", r"`\1`", plain)
    return "`".join(parts)
