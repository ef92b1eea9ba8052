"""Commands and code in processes that need not start: one that has loaded the libraries forks itself for each of them.

``python warm_commands.py SOCKET`` is that process; `warm_commands` starts it, and `ask` asks it. What runs in a fork
has a folder, output and exit code of its own, as in a fresh interpreter; it need not load JAX and Altair again.
"""

import atexit
import contextlib
import importlib
import json
import linecache
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

LIBRARIES = (
    "altair",
    "vl_convert",
    "scipy.optimize",
    "flax.nnx",
    "batchscale.workers.training_engine",
)
SHIM = """#!{python} -IS
import sys
sys.path.append({here!r})
from warm_commands import ask
sys.exit(ask({address!r}, [{name!r}, *sys.argv[1:]]))
"""


def ask(address: str, words: Sequence[str]) -> int:
    """The exit code of ``batchscale …`` or ``python … -c CODE``, in the folder and with the open files of this one."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        request = json.dumps({"words": list(words), "folder": str(Path.cwd())}).encode()
        socket.send_fds(line, [len(request).to_bytes(4, "big")], [0, 1, 2])
        line.sendall(request)
        answer = line.recv(4)
    return int.from_bytes(answer, "big", signed=True) if answer else 1


@contextlib.contextmanager
def warm_commands(folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """The warm process, for as long as it is needed: ``batchscale`` and ``python`` in ``folder/bin`` ask it."""
    address = str(folder / "socket")
    (folder / "bin").mkdir(parents=True)
    for name in ("batchscale", "python"):
        shim = folder / "bin" / name
        text = SHIM.format(python=sys.executable, here=str(Path(__file__).parent), address=address, name=name)
        shim.write_text(text, encoding="utf-8")
        shim.chmod(0o755)
    process = subprocess.Popen([sys.executable, __file__, address], env=dict(environment))
    try:
        while not Path(address).exists():
            assert process.poll() is None, "the warm process did not start"
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()


def serve(address: str) -> None:
    """Fork for every question, for ever."""
    for name in LIBRARIES:
        importlib.import_module(name)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(address + ".new")
        door.listen(16)
        Path(address + ".new").rename(address)
        while True:
            line, _ = door.accept()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if os.fork() == 0:
                door.close()
                answer(line)
            line.close()


def answer(line: socket.socket) -> None:
    """Run what is asked in a child, and say its exit code."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    head, files, _, _ = socket.recv_fds(line, 4, 3)
    request = b""
    while len(request) < int.from_bytes(head, "big"):
        request += line.recv(65536)
    asked = json.loads(request)
    child = os.fork()
    if child == 0:
        line.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.chdir(asked["folder"])
        os._exit(run(asked["words"]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    line.sendall(code.to_bytes(4, "big", signed=True))
    os._exit(0)


def run(words: Sequence[str]) -> int:
    """The words as a fresh interpreter would run them, and its exit code."""
    try:
        try:
            if words[0] == "batchscale":
                from batchscale.cli.app import main

                sys.argv = list(words)
                main()
            else:
                assert words[1:4] == ["-W", "error", "-c"], words  # what else Python can do is not done here
                warnings.simplefilter("error")
                sys.argv, sys.path[0] = ["-c"], ""
                sys.modules["__main__"] = types.ModuleType("__main__")
                lines = words[-1].splitlines(keepends=True)
                linecache.cache["<block>"] = (len(words[-1]), None, lines, "<block>")  # as in a cell of a notebook
                exec(compile(words[-1], "<block>", "exec"), vars(sys.modules["__main__"]))
        finally:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(end.code + "\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
