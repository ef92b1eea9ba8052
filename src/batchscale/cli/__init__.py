"""The command line: one file per command.

Others may use ``batchscale.cli.app.main`` and ``make_app`` only; ``batchscale.api`` also the displays of ``progress``.
"""

__all__: list[str] = []
