"""The process of a fork server: ``python -m batchscale.workers.forking FD``, started with one end of a socket."""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from typing import NoReturn

import psutil

from batchscale.workers.engine_host import find_engine
from batchscale.workers.fork_server import MAX_MESSAGE_BYTES, TRAINING_ENGINE
from batchscale.workers.worker import ignore_signals, main


def serve(handle: int) -> NoReturn:
    """Load the engine, then fork a worker for each request and report its end, until the driver's end is closed."""
    gc.disable()  # objects that libraries make as they load stay
    ignore_signals()
    driver = socket.socket(fileno=handle)
    with contextlib.suppress(Exception):  # an error is reported when a worker uses the engine
        find_engine(TRAINING_ENGINE)
    gc.freeze()
    gc.enable()
    if psutil.Process().num_threads() > 1:  # a lock that a thread holds would never open in a worker
        os._exit(1)
    wake, waker = socket.socketpair()
    waker.setblocking(False)
    signal.set_wakeup_fd(waker.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    numbers: dict[int, int] = {}  # by process id
    while True:
        ready, _, _ = select.select([driver, wake], [], [])
        if wake in ready:
            wake.recv(4096)
            _report_ended(driver, numbers)
        if driver in ready:
            data, handles, _, _ = socket.recv_fds(driver, MAX_MESSAGE_BYTES, 2)
            if not data:
                os._exit(0)
            number, variables = json.loads(data)
            pipe, output = handles
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for own in (driver, wake, waker):
                    own.close()
                os.setsid()
                os.dup2(output, 1)
                os.dup2(output, 2)
                os.close(output)
                os.environ.update(variables)
                main(pipe)
            os.close(pipe)
            os.close(output)
            numbers[pid] = number
            _reply(driver, number, pid, None)


def _report_ended(driver: socket.socket, numbers: dict[int, int]) -> None:
    for pid in list(numbers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _reply(driver, numbers.pop(pid), pid, os.waitstatus_to_exitcode(status))


def _reply(driver: socket.socket, number: int, pid: int, code: int | None) -> None:
    try:
        driver.send(json.dumps([number, pid, code]).encode())
    except OSError:
        os._exit(0)  # the driver is gone


if __name__ == "__main__":
    serve(int(sys.argv[1]))
