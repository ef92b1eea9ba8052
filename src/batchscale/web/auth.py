"""Authentication: the token, one-time codes, sessions that survive a restart of the server, and the audit log.

Secrets are compared in constant time and stored in files that only their owner can read. Of a session the file has a
hash, from which nobody can make the session.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import SpecError, one_line
from batchscale.records.durable import replace_atomically

SESSION_S = 7 * 24 * 3600
MAX_LOG_BYTES = 10 * 2**20
MAX_SESSIONS = 200
MIN_TOKEN_LENGTH = 24


@dataclass(frozen=True)
class Identity:
    """A visitor that is signed in. ``name`` is for the audit log; ``csrf`` is empty for bearers of the token."""

    name: str
    csrf: str


class Auth:
    """Token and sessions of one server. Thread-safe."""

    def __init__(self, state: Path, token_file: Path | None = None) -> None:
        _make_private_folder(state)
        self._sessions_file = state / "sessions.json"
        self._token = _read_token(token_file) if token_file else _make_token(state / "token")
        self._lock = threading.Lock()
        self._sessions: dict[str, float] = self._load()
        self.code = secrets.token_urlsafe(12)

    def sign_in(self, secret: str) -> str | None:
        """Return the cookie of a new session for the one-time code, which is used up, or for the token; else None."""
        with self._lock:
            is_code = hmac.compare_digest(secret.encode(), self.code.encode())
            is_token = hmac.compare_digest(secret.encode(), self._token.encode())
            if is_code:
                self.code = secrets.token_urlsafe(12)
            if not (is_code or is_token):
                return None
            session = secrets.token_urlsafe(32)
            now = time.time()
            alive = {key: end for key, end in self._sessions.items() if end > now}
            newest = sorted(alive.items(), key=lambda item: item[1])[-(MAX_SESSIONS - 1) :]
            self._sessions = dict(newest) | {_hash(session): now + SESSION_S}
            self._store()
            return session

    def sign_out(self, session: str) -> None:
        """End the session."""
        with self._lock:
            if self._sessions.pop(_hash(session), None) is not None:
                self._store()

    def find_session(self, session: str | None) -> Identity | None:
        """Return the visitor of a session cookie."""
        if not session or len(session) > 200:
            return None
        key = _hash(session)
        with self._lock:
            end = self._sessions.get(key, 0.0)  # the time to compare a hash reveals nothing
        if end <= time.time():
            return None
        return Identity(f"session {key[:8]}", self._csrf(session))

    def find_bearer(self, header: str | None) -> Identity | None:
        """Return the visitor of an Authorization header."""
        kind, _, value = (header or "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(value.strip().encode(), self._token.encode()):
            return None
        return Identity("token", "")

    def _csrf(self, session: str) -> str:
        return hmac.new(self._token.encode(), b"csrf " + session.encode(), hashlib.sha256).hexdigest()

    def _load(self) -> dict[str, float]:
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            stored = json.loads(self._sessions_file.read_bytes())
            return {str(key): float(end) for key, end in stored.items()}
        return {}

    def _store(self) -> None:
        _write_private(self._sessions_file, json.dumps(self._sessions))


def _hash(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()


def _make_private_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError as error:
        raise SpecError(f"The token needs a private folder. {one_line(folder)}: {error.strerror}.") from None


def _make_token(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.stat().st_mode & 0o077:
            path.unlink()  # others could read it, so it is not secret any more
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(32))
    return _read_token(path)


def _read_token(path: Path) -> str:
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise SpecError(
            f"The token file must be text that only you can read. {one_line(path)}: {one_line(error)}."
        ) from None
    if mode & 0o077:
        raise SpecError(f"Only its owner may read the token file. Run 'chmod 600 {one_line(path)}'.")
    if len(text) < MIN_TOKEN_LENGTH:
        raise SpecError(
            f"{one_line(path)}: a token must have at least {MIN_TOKEN_LENGTH} characters. Found {len(text)}."
        )
    return text


def _write_private(path: Path, text: str) -> None:
    replace_atomically(path, text, mode=0o600)


class AuditLog:
    """Appends to ``audit.jsonl``; a full file becomes ``audit.1.jsonl``. Errors of the disk are ignored."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        self._lock = threading.Lock()

    def add(self, who: str, action: str, outcome: str, detail: str = "") -> None:
        """Append one line; names from outside are made printable."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "who": one_line(who, 60),
            "action": one_line(action, 120),
            "outcome": one_line(outcome, 300),
            "detail": one_line(detail, 300),
        }
        with self._lock, contextlib.suppress(OSError):
            if self.path.exists() and self.path.stat().st_size > MAX_LOG_BYTES:
                self.path.replace(self.path.with_name("audit.1.jsonl"))
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "a") as file:
                file.write(json.dumps(entry) + "\n")
