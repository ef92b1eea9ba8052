"""What is compiled, and when."""

import re
import subprocess
import sys
import threading
import time

import filelock

from batchscale import machine
from batchscale.training.compilation import compile_count, compile_in_turn, machine_id
from batchscale.training.study_engine import TrialTask
from batchscale.workloads.cache import cache_folder


def task(trial_id, until, learning_rate=0.1):
    return TrialTask(trial_id, {"learning_rate": learning_rate}, seed=trial_id, until_step=until, from_step=-1)


def test_a_second_chunk_a_second_trial_and_other_metaparameters_compile_nothing(toy, engine_of):
    engine = engine_of(toy, population=2)
    count = compile_count()
    before = count.programs
    engine.advance([task(1, until=11)])
    assert count.programs > before  # the count sees compilations
    before = count.programs
    engine.advance([task(1, until=29), task(2, until=40, learning_rate=0.3), task(3, until=25, learning_rate=1e9)])
    engine.advance([task(4, until=1), task(1, until=40)])
    assert count.programs == before


def test_the_cache_folder_is_named_by_the_user_or_the_system(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("BATCHSCALE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "batchscale"


def test_compiled_programs_are_kept_in_the_cache_folder_and_found_again(tmp_path):
    code = (
        "import jax; from batchscale.training.compilation import *\n"
        "heard = []; jax.monitoring.register_event_listener(lambda event, **_: heard.append(event))\n"
        "missed = lambda: heard.count('/jax/compilation_cache/cache_misses')\n"
        "use_compilation_cache(); f = lambda x: x * 2 + 1\n"
        "jax.jit(f)(1.0); misses = missed(); assert misses > 0\n"
        "jax.clear_caches(); jax.jit(f)(1.0); assert missed() == misses\n"
        "print(machine_id())"
    )
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), "BATCHSCALE_CACHE": str(tmp_path)}
    answer = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
    assert list((tmp_path / "xla" / answer.stdout.strip()).glob("*-cache"))


def test_a_second_process_compiles_nothing(tmp_path):
    code = (
        "import collections, jax; from batchscale.training.compilation import *\n"
        "events = collections.Counter()\n"
        "jax.monitoring.register_event_listener(lambda event, **_: events.update([event]))\n"
        "use_compilation_cache(); jax.jit(lambda x: x * 3 + 1)(1.0)\n"
        "print(*(events['/jax/compilation_cache/' + name] for name in ('cache_misses', 'cache_hits')))"
    )
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), "BATCHSCALE_CACHE": str(tmp_path)}

    def misses_and_hits() -> list[int]:
        done = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True, text=True)
        return [int(word) for word in done.stdout.split()]

    written, read = misses_and_hits()
    assert written > 0 and read == 0
    assert misses_and_hits() == [0, written]


def test_without_the_library_of_the_cache_nothing_is_trained_in_silence():
    code = "import sys; sys.modules['filelock'] = None; import batchscale.training.compilation"
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "filelock" in done.stderr


def test_importing_the_engine_configures_nothing():
    code = (
        "import jax, batchscale.training.study_engine; assert jax.config.jax_compilation_cache_dir is None;"
        "import jax._src.xla_bridge as b; assert not b._backends"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)})


def test_the_name_of_a_machine_follows_its_processor_and_jax_and_not_its_load(monkeypatch, tmp_path):
    def named(text: str) -> str:
        (tmp_path / "cpuinfo").write_text(text)
        return machine_id()

    monkeypatch.setattr(machine, "CPU_INFO", tmp_path / "cpuinfo")
    one = named("model name\t: A\nflags\t: avx2\ncpu MHz\t: 2400\n")
    assert re.fullmatch("[0-9a-f]{12}", one)
    assert named("cpu MHz\t: 800\nmodel name\t: A\nflags\t: avx2\nmodel name\t: A\nflags\t: avx2\n") == one
    assert named("model name\t: A\nflags\t: avx2 avx512f\n") != one
    assert named("model name\t: B\nflags\t: avx2\n") != one
    monkeypatch.setattr("jax.__version__", "0.0.0")
    assert named("model name\t: A\nflags\t: avx2\n") != one


def test_a_program_is_compiled_in_turn_at_its_first_call_only(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path / "new"))
    events = []
    program = compile_in_turn(lambda value: events.append(value) or value)
    other = filelock.FileLock(tmp_path / "new" / "xla" / f"{machine_id()}.lock")
    other.acquire()
    first = threading.Thread(target=program, args=("first",))
    first.start()
    time.sleep(0.2)
    assert not events, "another process compiles"
    other.release()
    first.join(10)
    with other:
        assert program("second") == "second"
    assert events == ["first", "second"]


def test_a_process_that_holds_the_lock_for_long_delays_no_other_for_ever(monkeypatch, tmp_path):
    monkeypatch.setenv("BATCHSCALE_CACHE", str(tmp_path))
    monkeypatch.setattr("batchscale.training.compilation.COMPILE_WAIT_S", 0.1)
    (tmp_path / "xla").mkdir()
    with filelock.FileLock(tmp_path / "xla" / f"{machine_id()}.lock"):
        assert compile_in_turn(lambda: "compiled")() == "compiled"
