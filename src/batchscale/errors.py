"""The errors of batchscale: one root, one class per kind of mistake, and the words to say them well.

A message states the rule that must hold, the value found, where it was found, and what to do. Every error
here is the user's to mend: the command line turns it into one paragraph and exit code 2.
"""

import difflib
from collections.abc import Iterable

REQUEUE = 75
"""The exit code of a command that ended before its work did, for no error: the same command goes on."""


class BatchscaleError(Exception):
    """The root of every error that batchscale raises on purpose."""


class SpecError(BatchscaleError, ValueError):
    """An experiment file, a goal or a search space says something that cannot be run."""


class UnknownNameError(BatchscaleError, LookupError):
    """A name (of a workload, a metric, a key) that nothing answers to."""


class RecordsError(BatchscaleError, ValueError):
    """A records tree, table or archive is not what its format says."""


class StudyLockedError(BatchscaleError, RuntimeError):
    """Another live process is writing the same study."""


class StorageError(BatchscaleError, OSError):
    """The disk refused to keep records: full, read-only or failing. ``errno`` says which; nothing is half-written."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(errno, message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class DataError(BatchscaleError, RuntimeError):
    """A data set is missing, damaged or not what its format says."""


class AnalysisError(BatchscaleError, ValueError):
    """The records cannot answer the question, with the reason why."""


class PlanningError(BatchscaleError, ValueError):
    """A curve, step times, machines or prices do not make a plan, with the reason why."""


class RunError(BatchscaleError, RuntimeError):
    """An experiment cannot start or go on, with what to do about it."""


class TrialFailedError(BatchscaleError, RuntimeError):
    """One trial could not be trained; others may well be. Raised with a message, or a `study.Failure`."""


def one_line(text: object, limit: int = 120) -> str:
    r"""Any value as printable text on one line, cut to ``limit`` characters.

    >>> one_line("a\nb")
    'a\\nb'
    """
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def suggest_names(name: str, valid: Iterable[str], count: int = 3) -> str:
    """The nearest valid names as the end of a sentence.

    >>> suggest_names("momentun", ["sgd", "momentum"])
    "did you mean 'momentum'?"
    """
    options = sorted(set(valid))
    near = difflib.get_close_matches(name, options, n=count, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(repr(option) for option in near) + "?"
    shown = ", ".join(options[:12]) + (", …" if len(options) > 12 else "")
    return f"valid names: {shown}" if options else "there are none"
