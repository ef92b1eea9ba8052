"""The web interface: every experiment under a folder in a browser, read, watched, started, stopped and planned with.

The server only reads files, starts driver processes that outlive it, and signals those that are proven ours. It never
trains and never loads JAX. FastAPI is used here and nowhere else. docs/web.md has the pages and the attack list.
"""

import importlib
from typing import Any

_PUBLIC = {"Limits": "settings", "WebSettings": "settings", "create_app": "app", "serve": "server"}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale.web' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.web.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
