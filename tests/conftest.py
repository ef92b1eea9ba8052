"""What all tests share: how property tests draw, and the folders for compiled programs and other caches."""

import gc
import hashlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Property tests draw new examples on every run, but the same ones where CI says so: a landing is not a lottery. Drawing
# is slow on a busy machine, which says nothing of the code.
settings.register_profile("ours", suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("ours"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "ours")

MAX_PROGRAM_BYTES = 2**30

# Programs of tests run for milliseconds and are compiled by the hundred: in a hurry, unless BATCHSCALE_FULL_PROGRAMS
# asks for those that users have (`make test-slow` does; docs/decisions/0153).
IN_A_HURRY = ("--xla_backend_optimization_level=0", "--xla_cpu_use_fusion_emitters=false")
# As workers have it: whoever compiles a program, here or in theirs, finds it under the same name in the cache.
AS_WORKERS = ("--xla_cpu_multi_thread_eigen=false",)

# Python's 700 would look through everything that the libraries made, again and again, while they load.
gc.set_threshold(50_000, 10, 10)


def pytest_configure(config: pytest.Config) -> None:
    """Gives the whole session, with its workers and the processes they start, one cache that is not the user's.

    Compiled programs are kept for the next session as well, under their own hash: compiling hundreds of small ones is
    much of a first run's time. Everything else that is cached lasts for the session.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:  # the process that started this one has set them
        return
    # Hundreds of processes load the same modules: whoever wants no bytecode beside them pays for it every time.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    session = Path(tempfile.mkdtemp(prefix="batchscale-tests-"))
    config.add_cleanup(lambda: shutil.rmtree(session, ignore_errors=True))
    os.environ["XLA_FLAGS"] = _with_defaults(os.environ.get("XLA_FLAGS", ""))
    cache = getattr(config, "cache", None)
    os.environ["BATCHSCALE_CACHE"] = str(session)
    os.environ["BATCHSCALE_ATLAS"] = str(session / "atlas")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(_program_folder(cache.mkdir("programs") if cache else session))
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"
    if "jax" in sys.modules:  # by a conftest of the one folder that is tested: it has read the variables before
        sys.modules["jax"].config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
        sys.modules["jax"].config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        sys.modules["jax"].config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_collection_finish() -> None:
    """What has been loaded stays: later collections need not look at it."""
    gc.freeze()


def _with_defaults(given: str) -> str:
    """The flags that were given, and ours for what they do not say."""
    ours = AS_WORKERS if os.environ.get("BATCHSCALE_FULL_PROGRAMS") else IN_A_HURRY + AS_WORKERS
    named = {flag.partition("=")[0] for flag in given.split()}
    return " ".join([*given.split(), *(flag for flag in ours if flag.partition("=")[0] not in named)])


def _program_folder(parent: Path) -> Path:
    """The folder for programs of this processor, emptied when it has grown large."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    facts = "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    folder = parent / hashlib.blake2b(facts.encode(), digest_size=6).hexdigest()
    if folder.exists() and sum(path.stat().st_size for path in folder.iterdir()) > MAX_PROGRAM_BYTES:
        shutil.rmtree(folder, ignore_errors=True)
    return folder


@pytest.fixture
def full_programs(monkeypatch):
    """Processes that the test starts compile as users do: worth it where they train long."""
    flags = [flag for flag in os.environ["XLA_FLAGS"].split() if flag not in IN_A_HURRY]
    monkeypatch.setenv("XLA_FLAGS", " ".join(flags))


@pytest.fixture(autouse=True)
def _tables_as_wide_as_they_are(monkeypatch):
    """Processes that run tests side by side set a width, which tables would be cut to."""
    monkeypatch.delenv("COLUMNS", raising=False)
