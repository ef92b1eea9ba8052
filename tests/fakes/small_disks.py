"""File systems of a few bytes, for tests that fill them."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(path: Path, kilobytes: int):
    """A file system of its own; skips the test where none can be mounted."""
    path.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("a file system can only be mounted as root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def resize(path: Path, kilobytes: int) -> None:
    """Give the file system another size."""
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", str(path)], check=True)
