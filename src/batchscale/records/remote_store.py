"""Whole files under a remote path (gs://, s3:// or another scheme of fsspec), with retries and readable errors."""

import importlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

from batchscale.errors import StorageError, one_line

T = TypeVar("T")
TRIES = 4
FIRST_PAUSE_S = 0.5
_TIMES = {"connect_timeout": 10, "read_timeout": 60, "retries": {"max_attempts": 2}}
_GCS_TIMES = {"sock_connect": 10, "sock_read": 60}  # without them its client waits forever


class RemoteStore:
    """Files under one remote path. A file that is put appears whole or not at all, as object stores promise."""

    def __init__(self, url: str, pause: Callable[[float], None] = time.sleep) -> None:
        self.url = url.rstrip("/")
        self._pause = pause
        self._files, self._root = _open(self.url)

    def put(self, name: str, content: bytes) -> None:
        """Write a file."""
        self._retry("write", name, lambda: self._files.pipe_file(self._path(name), content))

    def get(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""

        def read() -> bytes | None:
            try:
                content: bytes = self._files.cat_file(self._path(name))
            except FileNotFoundError:
                return None
            return content

        return self._retry("read", name, read)

    def remove(self, name: str) -> None:
        """Remove a file if possible; a failure is ignored."""
        try:
            self._files.rm_file(self._path(name))
        except Exception:  # noqa: BLE001 - every library has its own errors; a file that stays only takes space
            return

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _retry(self, verb: str, name: str, action: Callable[[], T]) -> T:
        for remaining in range(TRIES - 1, -1, -1):
            try:
                return action()
            except Exception as error:  # noqa: BLE001 - every library has its own errors
                if not remaining or not _is_transient(error):
                    raise StorageError(
                        f"{self.url}: cannot {verb} {one_line(name)} ({type(error).__name__}: {one_line(error, 300)}). "
                        "Check the address, the network and the credentials."
                    ) from None
                self._pause(FIRST_PAUSE_S * 2 ** (TRIES - 1 - remaining))
        raise AssertionError


def _open(url: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ModuleNotFoundError:
        raise StorageError(f"{url}: remote paths need fsspec; install 'batchscale[remote]'.") from None
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if url.startswith("file://"):
        options["auto_mkdir"] = True
    if url.startswith("s3://"):
        options["config_kwargs"] = _TIMES
    try:
        if url.startswith(("gs://", "gcs://")):
            options["requests_timeout"] = importlib.import_module("aiohttp").ClientTimeout(**_GCS_TIMES)
        files, root = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError) as error:
        raise StorageError(
            f"{url}: this path needs a library that is missing ({one_line(error, 300)}); install 'batchscale[remote]' "
            "for S3, 'batchscale[gcs]' for Google's storage."
        ) from None
    return files, str(root).rstrip("/")


def _is_transient(error: Exception) -> bool:
    """True if a retry may help: not where a name, a right or a credential is missing."""
    if isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError):
        return False
    if getattr(error, "code", None) == 401 or str(error).startswith("Forbidden"):  # as Google's client reports it
        return False
    return "Credential" not in type(error).__name__
