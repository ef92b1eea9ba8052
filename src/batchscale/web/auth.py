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
import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import SpecError, one_line
from batchscale.records.durable import replace_atomically

SESSION_S = 7 * 24 * 3600
MAX_LOG_BYTES = 10 * 2**20
MAX_SESSIONS = 200
MIN_TOKEN_LENGTH, MAX_TOKEN_LENGTH = 24, 300
NEW_TOKEN = "To make one: (umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > my-token)."  # noqa: S105 - a hint


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
    """Create the folder, or make an existing one private if it is empty or was ours before; others are not changed."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
        names = {path.name for path in folder.iterdir()}
        is_ours = status.st_uid == os.getuid() and (not names or bool(names & {"token", "sessions.json"}))
        if status.st_mode & 0o077 and is_ours:
            folder.chmod(0o700)
    except OSError as error:
        raise SpecError(f"The token needs a private folder. {one_line(folder)}: {error.strerror}.") from None
    if status.st_mode & 0o077 and not is_ours:
        raise SpecError(
            f"The folder of --state must be readable only by you. {one_line(folder)} is not, and has other files. "
            "Pass a folder that does not exist yet."
        )


def _make_token(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.stat().st_mode & 0o077:
            path.unlink()  # others could read it, so it is not secret any more
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(32))
    return _read_token(path)


def _read_token(path: Path) -> str:
    rule = f"A token file must be a file with one line of {MIN_TOKEN_LENGTH} to {MAX_TOKEN_LENGTH} characters"
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SpecError(f"{rule}. {one_line(path)} is no regular file.")
        with path.open("rb") as file:
            text = file.read(MAX_TOKEN_LENGTH + 2).decode("ascii").strip()
    except OSError as error:
        raise SpecError(f"{rule}. {one_line(path)}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise SpecError(f"{rule} in ASCII. {one_line(path)} has others.") from None
    if not text.isprintable() or " " in text or not MIN_TOKEN_LENGTH <= len(text) <= MAX_TOKEN_LENGTH:
        raise SpecError(f"{rule}, without spaces. {one_line(path)} is no such file. {NEW_TOKEN}")
    if status.st_mode & 0o077:
        raise SpecError(f"Only you may be able to read a token file. Others can read {one_line(path)}. {NEW_TOKEN}")
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
