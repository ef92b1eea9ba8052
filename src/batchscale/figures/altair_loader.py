"""Let Altair be imported under ``python -OO``, which removes the docstrings that Altair reads while it is imported."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

_PACKAGE = "altair"


def keep_altair_docstrings() -> None:
    """Compile Altair's modules with their docstrings in this process, if docstrings are removed."""
    is_installed = any(isinstance(finder, _Finder) for finder in sys.meta_path)
    if sys.flags.optimize >= 2 and not is_installed:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _PACKAGE and not name.startswith(f"{_PACKAGE}."):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        del fullname
        code: CodeType = compile(Path(self.path).read_bytes(), self.path, "exec", dont_inherit=True, optimize=0)
        return code
