"""Refused requests: a status code and one paragraph, never a traceback."""


class RefusedError(Exception):
    """A request that is refused. ``status`` is the HTTP status, the message one paragraph."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
