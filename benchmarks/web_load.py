"""What watching costs a run: what it gets of the processors with and without visitors on its live page, in turns.

    python benchmarks/web_load.py [--clients 50] [--window-s 60] [--pairs 5] [--workers N] [--json FILE]

One run goes on all the time; windows without and with visitors alternate, so that a drift of the machine falls on both.
The run trains on every core: what server and visitors take, it lacks. Its overhead is how much less processor time its
processes get per second of the clock; trials ended per second say the same with the noise of counting few of them. It
also tells percentiles of answers, the share of the processors that server and visitors take, and the server's memory.
The visitors run on the same machine: what they take is part of the overhead. At its full length it takes eleven
minutes; it says something only on a machine that is quiet.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from web_clients import Seen, Site, sign_in, visit

from batchscale.run.status import read_status
from batchscale.web.records_folders import make_records_folder

CORES = psutil.cpu_count() or 1
MOST_OVERHEAD, MOST_SECONDS, MOST_GROWTH = 0.03, 0.3, 0.05
EXPERIMENT = """goal = "val/classification_error < 0.01"
batch_sizes = [16, 32, 64, 128]
trials = 4000
stop = "budget"
workload = "digits/fc_64/nesterov_momentum"
[budget]
steps = {steps}
[evaluation]
count = 20
[search]
repeats = 0
"""


@dataclass
class Window:
    """One stretch of time: trials that ended in it, and seconds of processor time of the run, server and visitors."""

    visited: bool
    seconds: float
    trials: int
    run_s: float
    server_s: float
    visitors_s: float

    @property
    def share(self) -> float:
        """What the run got of the processors."""
        return self.run_s / self.seconds / CORES

    @property
    def rate(self) -> float:
        """Trials per second."""
        return self.trials / self.seconds


@dataclass
class Memory:
    """The server's resident memory, looked at every second."""

    process: psutil.Process
    series: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):  # the server was ended: there is no more to see
            while not self._ended.wait(1.0):
                self.series.append((time.monotonic(), self.process.memory_info().rss / 2**20))

    def growth(self) -> float:
        """How much larger it is in the last fifth than in the second, as a share."""
        part = max(1, len(self.series) // 5)
        some = (self.series[part : 2 * part], self.series[-part:])
        first, last = (statistics.median(megabytes for _, megabytes in one) for one in some)
        return last / first - 1


def start_server(folder: Path, state: Path) -> tuple[subprocess.Popen, str]:
    """A server in a process of its own, and the address to sign in at."""
    command = [sys.executable, "-m", "batchscale", "web", str(folder), "--port", "0", "--state", str(state)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert child.stdout is not None
    found = re.search(r"Open (\S+)", child.stdout.readline())
    assert found is not None
    return child, found[1]


def start_run(folder: Path, steps: int, workers: int) -> tuple[subprocess.Popen, Path]:
    """A run of short trials, once its first trials have ended."""
    file = folder.parent / "experiment.toml"
    file.write_text(EXPERIMENT.format(steps=steps))
    root = folder / "watched"
    command = [sys.executable, "-m", "batchscale", "run", str(file), "--out", str(root), "--workers", str(workers)]
    child = subprocess.Popen([*command, "--quiet"], stdout=subprocess.DEVNULL, start_new_session=True)
    while count_trials(root) < 8:
        if child.poll() is not None:
            raise SystemExit("The run ended before it was watched.")
        time.sleep(0.5)
    return child, root


def count_trials(root: Path) -> int:
    """How many trials have ended."""
    snapshot = read_status(root)
    return 0 if snapshot is None else sum(study.complete + study.infeasible for study in snapshot.studies)


def ended_between(root: Path, begin: float, end: float) -> int:
    """How many trials came to the tree between two moments of the clock."""
    times = (path.stat().st_mtime for path in root.glob("*/*/*/*/*/metadata.json"))
    return sum(begin <= moment < end for moment in times)


def processor_s(process: psutil.Process) -> float:
    """Seconds of processor time of a process and of all below it."""
    return sum(sum(one.cpu_times()[:2]) for one in (process, *process.children(recursive=True)))


def measure_window(run: psutil.Process, server: psutil.Process, seconds: float, work) -> tuple[float, ...]:
    """Begin and end of a window, and processor seconds of the run, of the server and of this process in it."""

    def used() -> tuple[float, float, float]:
        return processor_s(run), processor_s(server), time.process_time()

    before = used()
    begin = time.time()
    work()
    rest = seconds - (time.time() - begin)
    if rest > 0:
        time.sleep(rest)
    end, after = time.time(), used()
    return begin, end, *(late - early for early, late in zip(before, after, strict=True))


def measure(arguments: argparse.Namespace, work: Path) -> dict[str, object]:
    """All windows of one run."""
    folder = work / "records"
    folder.mkdir()
    server, address = start_server(folder, work / "state")
    run, root = start_run(folder, arguments.steps, arguments.workers)
    seen, spans = Seen(), []
    try:
        host, port, cookie = sign_in(address)
        site = Site(host, port, cookie, f"{make_records_folder(root, folder).id}-0")
        asyncio.run(visit(site, Seen(), 1, 3.0, has_cache=False, seed=0))  # what is made once for all is made
        process = psutil.Process(server.pid)
        running, memory = psutil.Process(run.pid), Memory(process)
        for pair in range(arguments.pairs):
            spans.append((False, measure_window(running, process, arguments.window_s, lambda: None)))

            def visiting(pair: int = pair) -> None:
                crowd = visit(
                    site, seen, arguments.clients, arguments.window_s, has_cache=pair > 0, seed=pair
                )  # browsers keep scripts and styles
                asyncio.run(crowd)

            spans.append((True, measure_window(running, process, arguments.window_s, visiting)))
            print(f"pair {pair + 1} of {arguments.pairs}", file=sys.stderr)
        if run.poll() is not None:
            raise SystemExit("The run ended too early: give more --steps.")
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGINT)
            run.wait(60)
        server.terminate()
        server.wait(20)
    windows = [
        Window(visited, end - begin, ended_between(root, begin, end), *used) for visited, (begin, end, *used) in spans
    ]
    return conclude(windows, seen, memory, arguments)


def conclude(windows: list[Window], seen: Seen, memory: Memory, arguments: argparse.Namespace) -> dict[str, object]:
    """The numbers, and whether they hold."""
    pairs = list(zip(windows[::2], windows[1::2], strict=True))
    lost = [1 - b.share / a.share for a, b in pairs]
    overhead = statistics.mean(lost)
    every = [s for kind in ("page", "chart", "answer") for s in seen.seconds[kind]]
    busy = [window for window in windows if window.visited]
    total = sum(window.seconds for window in busy) * CORES
    found = {
        "clients": arguments.clients, "workers": arguments.workers,
        "run_share": [(round(a.share, 4), round(b.share, 4)) for a, b in pairs],
        "trials_per_s": [(round(a.rate, 3), round(b.rate, 3)) for a, b in pairs],
        "overhead": round(overhead, 4),
        "overhead_spread": round(statistics.pstdev(lost), 4),
        "server_share": round(sum(window.server_s for window in busy) / total, 4),
        "visitors_share": round(sum(window.visitors_s for window in busy) / total, 4),
        "answers": {kind: percentiles(values) for kind, values in seen.seconds.items()},
        "page_answers": percentiles(every), "events": seen.events, "wrong": seen.wrong[:10],
        "memory_mb": [round(mb, 1) for _, mb in memory.series[:: max(1, len(memory.series) // 20)]],
        "memory_growth": round(memory.growth(), 4),
    }  # fmt: skip
    found["holds"] = {
        "overhead < 3 %": overhead < MOST_OVERHEAD,
        "95 % of page answers < 300 ms": percentiles(every)["p95"] < MOST_SECONDS,
        "memory grows < 5 %": memory.growth() < MOST_GROWTH,
        "nothing went wrong": not seen.wrong,
    }
    return found


def percentiles(values: list[float]) -> dict[str, float]:
    """Number, median, 95th and 99th percentile and largest, in seconds."""
    if not values:
        return {"count": 0, "p50": float("nan"), "p95": float("nan"), "p99": float("nan"), "max": float("nan")}
    ordered = sorted(values)
    at = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in
          (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))}  # fmt: skip
    return {"count": len(ordered)} | {name: round(value, 4) for name, value in at.items()}


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--window-s", type=float, default=60.0)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=CORES)
    parser.add_argument("--steps", type=int, default=40_000, help="steps of a trial: two cores end about one a second")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchscale-load-") as folder:
        found = measure(arguments, Path(folder))
    print(json.dumps(found, indent=2))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
