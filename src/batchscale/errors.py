"""The errors of batchscale: one root, one class per kind of mistake, and helpers for their messages.

A message states the rule that must hold, the value found, where it was found, and what to do. The user can fix every
error here: the command line turns it into one paragraph and exit code 2.
"""

import difflib
from collections.abc import Iterable

REQUEUE = 75
"""The exit code of a command that was stopped before its end without an error: the same command continues."""

ENGINE_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "PIL", "filelock")
"""The libraries of the extra ``jax``."""
NO_ENGINE = (
    "Built-in workloads are trained by JAX, which is not installed. Run: pip install 'batchscale[jax]'. Your own "
    "training script, analyses, reports and plans need no JAX."
)


class BatchscaleError(Exception):
    """The root of every error that batchscale raises on purpose."""


class SpecError(BatchscaleError, ValueError):
    """An experiment file, a goal or a search space is not valid."""


class UnknownNameError(BatchscaleError, LookupError):
    """An unknown name of a workload, a metric or a key."""


class RecordsError(BatchscaleError, ValueError):
    """A records tree, table or archive does not have its format."""


class StudyLockedError(BatchscaleError, RuntimeError):
    """Another live process is writing the same study."""


class StorageError(BatchscaleError, OSError):
    """The disk cannot store records: full, read-only or failing. ``errno`` has the cause; nothing is half-written."""

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(errno, message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class DataError(BatchscaleError, RuntimeError):
    """A data set is missing, damaged or does not have its format."""


class AnalysisError(BatchscaleError, ValueError):
    """The records do not allow this analysis."""


class PlanningError(BatchscaleError, ValueError):
    """A curve, step times, machines or prices do not make a plan."""


class RunError(BatchscaleError, RuntimeError):
    """An experiment cannot start or continue."""


class TrialFailedError(BatchscaleError, RuntimeError):
    """One trial could not be trained; others may well be. Raised with a message, or a `study.Failure`."""


class TrialSilentError(TrialFailedError):
    """One trial reported nothing for its whole time-out."""


def one_line(text: object, limit: int = 120) -> str:
    r"""Return any value as printable text on one line, cut to ``limit`` characters.

    >>> one_line("a\nb")
    'a\\nb'
    """
    line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in str(text))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def suggest_names(name: str, valid: Iterable[str], count: int = 3) -> str:
    """Return the nearest valid names as the end of a sentence.

    >>> suggest_names("momentun", ["sgd", "momentum"])
    "did you mean 'momentum'?"
    """
    options = sorted(set(valid))
    near = difflib.get_close_matches(name, options, n=count, cutoff=0.5)
    if near:
        return "did you mean " + " or ".join(repr(option) for option in near) + "?"
    listed = ", ".join(options[:12]) + (", …" if len(options) > 12 else "")
    return f"valid names: {listed}" if options else "there are none"
