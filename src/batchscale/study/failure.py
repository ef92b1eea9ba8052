"""The reason why something could not be trained, with the last lines that its process printed."""

from dataclasses import dataclass, replace

HEADING = "\nIts last lines:\n"
"""Separates the message from the log lines where people read both."""


@dataclass(frozen=True)
class Failure:
    r"""Why a trial, or the worker that trained it, failed.

    ``message`` is in sentences, ``log_lines`` the last ones that the process printed, ``note`` an addition
    by others, shown after them.

    >>> str(Failure("It exited with code 3.", ("a", "b"), " So it goes."))
    'It exited with code 3.\nIts last lines:\na\nb So it goes.'
    """

    message: str
    log_lines: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        printed = HEADING + "\n".join(self.log_lines) if self.log_lines else ""
        return self.message + printed + self.note

    @property
    def record(self) -> tuple[str, tuple[str, ...]]:
        """The message and the log lines, as the record of a trial stores them."""
        if not self.log_lines:
            return self.message + self.note, ()
        return self.message, tuple(("\n".join(self.log_lines) + self.note).splitlines())

    def preceded_by(self, prefix: str) -> "Failure":
        """Return the same failure with a prefix: the place, or the number of attempts."""
        return replace(self, message=prefix + self.message)

    def followed_by(self, note: str) -> "Failure":
        """Return the same failure with one more note."""
        return replace(self, note=self.note + note)

    def cut(self, limit: int) -> "Failure":
        r"""Return the failure shortened so that its text has at most ``limit`` characters.

        >>> str(Failure("No.", ("ab", "cd"), " Alas.").cut(24))
        'No.\nIts last lines:\nab\nc'
        """
        message = self.message[:limit]
        rest = limit - len(message)
        if not self.log_lines:
            return Failure(message, note=self.note[:rest])
        rest -= len(HEADING)
        if rest <= 0:
            return Failure(message)
        printed = "\n".join(self.log_lines)[:rest]
        return Failure(message, tuple(printed.split("\n")), self.note[: rest - len(printed)])


def find_failure(error: BaseException) -> Failure:
    """Return the failure that an error was raised with; else one made of its message."""
    cause = error.args[0] if error.args else None
    return cause if isinstance(cause, Failure) else Failure(str(error))
