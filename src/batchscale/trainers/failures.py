"""Why a trial could not be trained, in words: the rule, what the script did, its last lines, what to do."""

import signal
from collections.abc import Sequence

from batchscale.errors import one_line

_MEMORY_WORDS = ("out of memory", "OutOfMemoryError", "MemoryError", "std::bad_alloc", "Cannot allocate memory")
SHOWN = 6


def ran_out_of_memory(code: int | None, last_lines: Sequence[str], system_kills: int) -> bool:
    """Whether a script died for want of memory: the system said so, or its last words do."""
    if code in (0, None):
        return False
    said = any(words in line for words in _MEMORY_WORDS for line in last_lines)
    return (code == -signal.SIGKILL and system_kills > 0) or said


def describe_exit(code: int) -> str:
    """How a process ended.

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
    """What to do about last lines that say it all; else nothing."""
    if not any("No module named 'batchscale'" in line for line in last_lines):
        return ""
    return (
        "\nThe Python that runs the script does not have batchscale: `batchscale trainer copy FOLDER` puts its one "
        "file, trial.py, beside the script, which then says `import trial`."
    )


def describe_silence(seconds: float, step: int) -> str:
    """A script that hangs."""
    since = "it was started" if step < 0 else f"the one at step {step}"
    return (
        f"The script must report a measurement every {seconds:g} s. Found none for that long since {since}; it was "
        "killed. Give more time with trainer.timeout_s, or measure more often."
    )


def describe_early_end(
    code: int, reported: Sequence[int], missing: int, until: int, unread: int, last_step: int | None
) -> str:
    """A script that left before it measured all that was asked for."""
    if code:
        return f"The script {describe_exit(code)} before its measurement at step {missing}."
    if last_step is not None:
        return (
            f"A trial must be able to train to step {until}. The script said that step {last_step} is its last: give a "
            "smaller budget or more data."
        )
    found = "It reported nothing"
    if unread:
        found = f"{unread} line(s) of its reports could not be understood"
    if reported:
        shown = ", ".join(map(str, reported[:SHOWN])) + (", …" if len(reported) > SHOWN else "")
        found = f"It reported step(s) {shown}"
    return (
        f"The script exited with code 0 before its measurement at step {missing}. {found}. It must measure at the "
        "steps of the experiment's [evaluation]; docs/trainers.md says how it learns them."
    )


def describe_gap(missing: int, following: int) -> str:
    """A measurement that was passed over."""
    return (
        f"A measurement was wanted at step {missing}. Found none there, and the next at step {following}: the script "
        "must measure at all steps of the experiment's [evaluation], which run.due(step) tells it."
    )


def describe_fault(fault: str) -> str:
    """A report that breaks a rule."""
    return f"What the script reported cannot be used. {one_line(fault, 500)}"
