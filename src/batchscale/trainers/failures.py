"""Messages about trials that failed: the rule, what the script did, its last lines, what to do."""

import signal
from collections.abc import Sequence

from batchscale.errors import one_line

_MEMORY_TEXTS = ("out of memory", "OutOfMemoryError", "MemoryError", "std::bad_alloc", "Cannot allocate memory")
MAX_SHOWN_STEPS = 6
SILENT = "The script must report a measurement"
"""The beginning of the message about a script that does not respond."""


def ran_out_of_memory(code: int | None, last_lines: Sequence[str], system_kills: int) -> bool:
    """Return True if a script ran out of memory: the system killed it for that, or its last lines show it."""
    if code in (0, None):
        return False
    is_in_log = any(text in line for text in _MEMORY_TEXTS for line in last_lines)
    return (code == -signal.SIGKILL and system_kills > 0) or is_in_log


def describe_exit(code: int) -> str:
    """Describe the exit code of a process.

    >>> describe_exit(-9), describe_exit(3)
    ('was killed by signal SIGKILL', 'exited with code 3')
    """
    if code < 0:
        try:
            return f"was killed by signal {signal.Signals(-code).name}"
        except ValueError:
            return f"was killed by signal {-code}"
    return f"exited with code {code}"


def advise(last_lines: Sequence[str]) -> str:
    """Return advice for last lines with a common cause; empty for others."""
    if not any("No module named 'batchscale'" in line for line in last_lines):
        return ""
    return (
        "\nThe Python that runs the script does not have batchscale: `batchscale trainer copy FOLDER` puts its one "
        "file, trial.py, beside the script, which then uses `import trial`."
    )


def describe_silence(seconds: float, step: int) -> str:
    """Describe a script that does not respond."""
    since = "it was started" if step < 0 else f"the one at step {step}"
    return (
        f"{SILENT} every {seconds:g} s. Found none for that long since {since}; it was "
        "killed. Give more time with trainer.timeout_s, or measure more often."
    )


def describe_tried(pattern: str, lines: Sequence[str]) -> str:
    """Describe a pattern that matched none of the printed lines; empty if there are none."""
    if not lines:
        return ""
    shown = "".join(f"\n  {one_line(line, 200)}" for line in lines)
    return f" The pattern {one_line(repr(pattern))} matched no printed line. The first were:{shown}"


def describe_early_end(
    code: int, reported: Sequence[int], missing: int, until: int, unread: int, last_step: int | None
) -> str:
    """Describe a script that ended before its last requested measurement."""
    if code:
        return f"The script {describe_exit(code)} before its measurement at step {missing}."
    if last_step is not None:
        return (
            f"A trial must be able to train to step {until}. The script reported that step {last_step} is its last: "
            "give a smaller budget or more data."
        )
    result = "It reported nothing"
    if unread:
        result = f"{unread} line(s) of its reports could not be parsed"
    if reported:
        steps = ", ".join(map(str, reported[:MAX_SHOWN_STEPS])) + (", …" if len(reported) > MAX_SHOWN_STEPS else "")
        result = f"It reported step(s) {steps}"
    return (
        f"The script exited with code 0 before its measurement at step {missing}. {result}. It must measure at the "
        "steps of the experiment's [evaluation]; see docs/trainers.md."
    )


def describe_gap(missing: int, following: int) -> str:
    """Describe a measurement that was skipped."""
    return (
        f"The script must measure at step {missing}. Found no measurement there, and the next at step {following}: it "
        "must measure at all steps of the experiment's [evaluation], for which run.due(step) returns True."
    )


def describe_fault(fault: str) -> str:
    """Describe a report that breaks a rule."""
    return f"A report of the script is invalid. {one_line(fault, 500)}"
