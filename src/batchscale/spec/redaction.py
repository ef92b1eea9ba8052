"""Keep secrets out of everything that is stored or shown.

The values of ``[trainer] env`` are hidden wherever an experiment is written down. So are values whose names look like
those of secrets: in command lines, in the stored text of the experiment file, and in the last lines of a failed script.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence

from batchscale.spec.untrusted_text import parse_toml

HIDDEN = "***"
MIN_SECRET_LENGTH = 6
"""Shorter values are hidden where they are set, and not wherever the same characters occur."""

NOT_STORED = "# This file is not stored: the values of its trainer.env could not be told apart from the rest.\n"

_SECRET_WORDS = {
    *("key", "keys", "apikey", "token", "secret", "secrets", "password", "passwd", "passphrase"),
    *("credential", "credentials", "pwd", "auth", "cookie", "private"),
}
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_+/=-]{24,}")
_STRINGS = re.compile(
    r'"""(?:\\.|[^\\])*?"""' + r"|'''.*?'''" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'" + r"|#[^\n]*", re.DOTALL
)
_SETTING = re.compile(
    r"""(?P<name>[\w.-]*(?i:key|token|secret|pass|cred)[\w.-]*)(?P<equals>["']?\s*[=:]\s*)(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,"'\]}]+)"""
)
_HEADER = re.compile(r"^\s*\[+([^\[\]\n]+)\]+", re.MULTILINE)
_ENV_KEY = re.compile(r"(?:^|[\s.{,])env\s*(?:=\s*\{|\.)")
_URL_PASSWORD = re.compile(r"(://[^/\s:@]*:)[^@/\s]+@")


def looks_secret(name: str) -> bool:
    """Return True if a name is like that of a secret.

    >>> [looks_secret(name) for name in ("WANDB_API_KEY", "--hf-token", "dbPassword", "max_tokens", "tokenizer")]
    [True, True, True, False, False]
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", words))


def is_secret(name: str, value: str) -> bool:
    """Return True if the value of a variable is like a secret, by its name or by the value itself.

    >>> is_secret("WANDB_API_KEY", "x"), is_secret("OMP_NUM_THREADS", "4"), is_secret("DEVICE_KEY", "{device}")
    (True, False, False)
    >>> is_secret("STORE", "s3://me:word@host"), is_secret("ID", "0a1B2c3D4e5F6g7H8i9J0k1L")
    (True, True)
    """
    if "{" in value:
        return False
    return looks_secret(name) or bool(_RANDOM.fullmatch(value) or _URL_PASSWORD.search(value))


def redact_words(words: Sequence[str]) -> list[str]:
    """Return the words of a command without the values of secrets; placeholders stay.

    >>> redact_words(["train.py", "--api-key", "abc", "--hf-token=abc", "--seed", "{seed}"])
    ['train.py', '--api-key', '***', '--hf-token=***', '--seed', '{seed}']
    """
    shown: list[str] = []
    hide = False
    for word in words:
        name, equals, value = word.partition("=")
        if hide and not word.startswith("-"):
            shown.append(_hide(word))
        elif equals and looks_secret(name):
            shown.append(f"{name}={_hide(value)}")
        else:
            shown.append(_URL_PASSWORD.sub(rf"\1{HIDDEN}@", word))
        hide = word.startswith("-") and not equals and looks_secret(name)
    return shown


def secrets_of(command: Sequence[str], *environments: Mapping[str, str]) -> set[str]:
    """Return the values that must not be shown anywhere: by their names, in a command and in environments."""
    named = {value for variables in environments for name, value in variables.items() if looks_secret(name)}
    for word, shown in zip(command, redact_words(command), strict=True):
        if shown.partition("=")[2] == HIDDEN or shown == HIDDEN:
            named.add(word if shown == HIDDEN else word.partition("=")[2])
    return {value for value in named if len(value) >= MIN_SECRET_LENGTH and value != HIDDEN}


def redact_line(line: str, secrets: Iterable[str]) -> str:
    """Return a line without these values, and without passwords in addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        line = line.replace(secret, HIDDEN)
    return _URL_PASSWORD.sub(rf"\1{HIDDEN}@", line)


def redact_toml(text: str, command: Sequence[str], env: Mapping[str, str]) -> str:
    """Return the text of an experiment file without the values of ``env`` and of secrets; it parses as before."""
    secrets = secrets_of(command, env)

    def hide(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("#"):
            return _SETTING.sub(_hide_setting, token)
        value = tomllib.loads(f"x = {token}")["x"]
        if value in secrets or (value in env.values() and _is_in_env(text[: match.start()])):
            return f'"{HIDDEN}"'
        (shown,) = redact_words([value])
        return token if shown == value else f"'{shown}'"

    redacted = redact_line(_STRINGS.sub(hide, text), secrets)
    try:
        shown = set(parse_toml(redacted)["trainer"].get("env", {}).values())
    except (ValueError, LookupError):
        shown = {""}
    return redacted if shown <= {HIDDEN} else NOT_STORED


def redact_stored(text: str | None) -> str | None:
    """Return the stored text of an experiment file without secrets: older versions stored all of it."""
    if text is None or "trainer" not in text:
        return text
    try:
        trainer = parse_toml(text)["trainer"]
        return redact_toml(text, trainer["command"], trainer.get("env", {}))
    except (ValueError, LookupError, TypeError, AttributeError):
        return text


def _is_in_env(before: str) -> bool:
    """Return True if a value after this text is one of the table ``trainer.env``, in any of its forms."""
    headers = _HEADER.findall(before)
    line = before.rpartition("\n")[2]
    return bool(headers and headers[-1].replace(" ", "") == "trainer.env") or _ENV_KEY.search(line) is not None


def _hide(value: str) -> str:
    return value if "{" in value else HIDDEN


def _hide_setting(match: re.Match[str]) -> str:
    return f"{match['name']}{match['equals']}{HIDDEN}" if looks_secret(match["name"]) else match[0]
