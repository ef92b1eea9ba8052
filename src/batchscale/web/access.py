"""Who may come in: the token, one-time codes, and sessions that survive a restart of the server.

Everything secret is compared in constant time and kept in files that only their owner can read. Of a session the file
holds a hash: who reads the file cannot become the session.
"""

import contextlib
import hashlib
import hmac
import json
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import SpecError, one_line
from batchscale.records.durable import replace_atomically

SESSION_S = 7 * 24 * 3600
MOST_SESSIONS = 200
SHORTEST_TOKEN = 24


@dataclass(frozen=True)
class Identity:
    """A visitor that is signed in. ``name`` is what the audit log calls it; ``csrf`` is empty for bearers."""

    name: str
    csrf: str


class Access:
    """The keys of one server. Thread-safe."""

    def __init__(self, state: Path, token_file: Path | None = None) -> None:
        _make_private_folder(state)
        self._sessions_file = state / "sessions.json"
        self._token = _read_token(token_file) if token_file else _own_token(state / "token")
        self._lock = threading.Lock()
        self._sessions: dict[str, float] = self._load()
        self.code = secrets.token_urlsafe(12)

    def sign_in(self, secret: str) -> str | None:
        """A new session's cookie for the one-time code, which is then used up, or for the token; None: refused."""
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
            newest = sorted(alive.items(), key=lambda item: item[1])[-(MOST_SESSIONS - 1) :]
            self._sessions = dict(newest) | {_hash(session): now + SESSION_S}
            self._store()
            return session

    def sign_out(self, session: str) -> None:
        """Ends the session, for good."""
        with self._lock:
            if self._sessions.pop(_hash(session), None) is not None:
                self._store()

    def find_session(self, session: str | None) -> Identity | None:
        """The visitor that a cookie belongs to."""
        if not session or len(session) > 200:
            return None
        key = _hash(session)
        with self._lock:
            end = self._sessions.get(key, 0.0)  # of a hash, the time of a comparison tells nothing
        if end <= time.time():
            return None
        return Identity(f"session {key[:8]}", self._csrf(session))

    def find_bearer(self, header: str | None) -> Identity | None:
        """The visitor of an Authorization header."""
        kind, _, value = (header or "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(value.strip().encode(), self._token.encode()):
            return None
        return Identity("token", "")

    def _csrf(self, session: str) -> str:
        return hmac.new(self._token.encode(), b"csrf " + session.encode(), hashlib.sha256).hexdigest()

    def _load(self) -> dict[str, float]:
        with contextlib.suppress(OSError, ValueError, AttributeError, TypeError):
            found = json.loads(self._sessions_file.read_bytes())
            return {str(key): float(end) for key, end in found.items()}
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
        raise SpecError(f"The token needs a folder of its own. {one_line(folder)}: {error.strerror}.") from None


def _own_token(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.stat().st_mode & 0o077:
            path.unlink()  # others could read it: it is no secret any more
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(32))
    return _read_token(path)


def _read_token(path: Path) -> str:
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise SpecError(
            f"The token file is text that only you can read. {one_line(path)}: {one_line(error)}."
        ) from None
    if mode & 0o077:
        raise SpecError(f"Only its owner may read the token file. Run 'chmod 600 {one_line(path)}'.")
    if len(text) < SHORTEST_TOKEN:
        raise SpecError(f"{one_line(path)}: a token has at least {SHORTEST_TOKEN} characters. Found {len(text)}.")
    return text


def _write_private(path: Path, text: str) -> None:
    replace_atomically(path, text, mode=0o600)
