"""Compilation: the persistent cache in the user's cache folder, and a count of what was compiled.

Nothing happens at import; ``use_compilation_cache`` is called by whoever starts an engine.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.monitoring

from batchscale.machine import describe_processor
from batchscale.workloads.cache import cached

_COMPILE_EVENT = "/jax/core/compile/backend_compile_duration"
MAX_CACHE_BYTES = 4 * 2**30


def machine_id() -> str:
    """A short name of the processor and JAX version: compiled code and measured choices hold for it alone."""
    architecture, *model = describe_processor()
    text = "\n".join([architecture, jax.__version__, *model])
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def use_compilation_cache() -> None:
    """Keeps compiled programs across processes; a cache folder that the user has given to JAX is left as it is."""
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None:
        return
    update: Callable[[str, object], None] = jax.config.update
    update("jax_compilation_cache_dir", str(cached("xla", machine_id(), grows=True)))
    update("jax_persistent_cache_min_compile_time_secs", 0.0)
    update("jax_persistent_cache_min_entry_size_bytes", 0)
    update("jax_compilation_cache_max_size", MAX_CACHE_BYTES)


@dataclass
class CompileCount:
    """What this process has compiled (or loaded from the cache) so far, and how long that took."""

    programs: int = 0
    seconds: float = 0.0


_COUNT: CompileCount | None = None


def compile_count() -> CompileCount:
    """The running count of this process; counting starts with the first call."""
    global _COUNT
    if _COUNT is None:
        _COUNT = count = CompileCount()

        def on_duration(event: str, duration_secs: float, **_: str | int) -> None:
            if event == _COMPILE_EVENT:
                count.programs += 1
                count.seconds += duration_secs

        jax.monitoring.register_event_duration_secs_listener(on_duration)
    return _COUNT
