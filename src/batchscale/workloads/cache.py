"""The one cache folder: compiled programs, encoded text, copied images, vocabularies, fetched data. Imports no jax."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder named by ``BATCHSCALE_CACHE``, else the user's."""
    named = os.environ.get("BATCHSCALE_CACHE")
    return Path(named).expanduser() if named else user_cache_folder()


def user_cache_folder() -> Path:
    """``batchscale`` below ``XDG_CACHE_HOME``, which must be absolute to count, or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "batchscale"
