"""Why something could not be trained: in words, with the last lines that its process printed."""

from dataclasses import dataclass, replace

HEADING = "\nIts last lines:\n"
"""What people read between the words and the lines."""


@dataclass(frozen=True)
class Failure:
    r"""Why a trial, or the worker that trained it, failed.

    ``words`` are sentences, ``log_lines`` the last ones that the process printed, ``note`` what others say of its end,
    read behind them.

    >>> str(Failure("It exited with code 3.", ("a", "b"), " So it goes."))
    'It exited with code 3.\nIts last lines:\na\nb So it goes.'
    """

    words: str
    log_lines: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        printed = HEADING + "\n".join(self.log_lines) if self.log_lines else ""
        return self.words + printed + self.note

    @property
    def record(self) -> tuple[str, tuple[str, ...]]:
        """What the record of a trial keeps of it: why, and the lines. A note stands where people read it."""
        if not self.log_lines:
            return self.words + self.note, ()
        return self.words, tuple(("\n".join(self.log_lines) + self.note).splitlines())

    def preceded_by(self, words: str) -> "Failure":
        """The same after these words: where it was, or how often."""
        return replace(self, words=words + self.words)

    def followed_by(self, note: str) -> "Failure":
        """The same with something that others say of it."""
        return replace(self, note=self.note + note)

    def cut(self, limit: int) -> "Failure":
        r"""As much of it as people would read in ``limit`` characters.

        >>> str(Failure("No.", ("ab", "cd"), " Alas.").cut(24))
        'No.\nIts last lines:\nab\nc'
        """
        words = self.words[:limit]
        rest = limit - len(words)
        if not self.log_lines:
            return Failure(words, note=self.note[:rest])
        rest -= len(HEADING)
        if rest <= 0:
            return Failure(words)
        printed = "\n".join(self.log_lines)[:rest]
        return Failure(words, tuple(printed.split("\n")), self.note[: rest - len(printed)])


def find_failure(error: BaseException) -> Failure:
    """What an error was raised with, if that was a failure; else its message."""
    given = error.args[0] if error.args else None
    return given if isinstance(given, Failure) else Failure(str(error))
