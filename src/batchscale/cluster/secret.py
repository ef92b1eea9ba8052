"""The secret that the processes of a cluster share, if they do: who does not know it is not let in.

It is never sent. The chief asks each process for the HMAC of a number that it has just drawn, and proves to it in turn
that it knows the secret as well. It guards the meeting alone: what is said later is neither encrypted nor signed.
"""

import hashlib
import hmac
import secrets
from pathlib import Path

from batchscale.errors import RunError

FILE_VARIABLE = "BATCHSCALE_TOKEN_FILE"
NONCE_BYTES = 32
MIN_BYTES, MAX_BYTES = 16, 4096


def read_token(path: Path, source: str) -> bytes:
    """The secret in a file, without the white space around it.

    Raises:
        RunError: it cannot be read, or is no secret.
    """
    try:
        with path.open("rb") as file:
            token = file.read(MAX_BYTES + 1).strip()
    except OSError as error:
        raise RunError(f"{source}: the file {path} cannot be read ({error.strerror or error}).") from None
    if not MIN_BYTES <= len(token) <= MAX_BYTES:
        raise RunError(
            f"{source}: a secret has {MIN_BYTES} to {MAX_BYTES} bytes. Found {len(token)} in {path}; make one with "
            "'openssl rand -hex 32'."
        )
    return token


def make_nonce() -> bytes:
    """A number that was never used before."""
    return secrets.token_bytes(NONCE_BYTES)


def sign(token: bytes, role: str, nonce: bytes, text: bytes) -> str:
    """The proof that whoever has this ``role`` knows the secret, for this nonce and text alone."""
    return hmac.new(token, role.encode() + b"\0" + nonce + text, hashlib.sha256).hexdigest()


def is_signed(token: bytes, role: str, nonce: bytes, text: bytes, found: object) -> bool:
    """Whether a proof is one."""
    return isinstance(found, str) and hmac.compare_digest(sign(token, role, nonce, text).encode(), found.encode())
