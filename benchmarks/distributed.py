"""Weak and strong scaling of one trial over processes that are pinned to a core each, in one run, taking turns.

    python benchmarks/distributed.py [--cases fc_1024,…] [--per-device 8,64,512] [--rounds 5] [--json FILE]

One process and two processes are measured alternately, several rounds; the least time of each counts. Weak: as many
examples per device. Strong: as many in all. The exchange is timed alone, as one sum of a gradient's worth of numbers.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CASES = ("fc_1024", "simple_cnn_base", "small_transformer")


class World:
    """The processes that train a trial together, each on its own core."""

    def __init__(self, count: int) -> None:
        names = [f"127.0.0.1:{_free_port()}" for _ in range(count)]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "PJRT_NPROC"), "1")
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        self.count, self._processes = count, []
        for place in range(count):
            cluster = json.dumps({"processes": names, "process": place}) if count > 1 else "none"
            self._processes.append(
                subprocess.Popen(
                    [sys.executable, str(HERE / "distributed_worker.py"), str(place), cluster],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                    env=os.environ | threads | {"XLA_FLAGS": flags},
                )
            )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, float]:
        """The chief's answer; all are asked."""
        for process in self._processes:
            assert process.stdin
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        answers = []
        for process in self._processes:
            assert process.stdout
            line = process.stdout.readline()
            while line and not line.startswith("{"):
                line = process.stdout.readline()  # words of libraries
            if not line:
                raise SystemExit("A process of the benchmark died.")
            answers.append(json.loads(line))
        return dict(answers[0])

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compare(one: World, two: World, case: str, per_device: int, rounds: int) -> dict[str, Any]:
    """The least step times of one process and of two, weak and strong, and what the exchange takes of it."""
    best: dict[str, float] = {}

    def keep(name: str, value: float) -> None:
        best[name] = min(value, best.get(name, float("inf")))

    one.ask(case=case, batch_size=per_device)
    steps = max(2, min(200, int(0.3 / one.ask(steps=3)["step"])))
    for name, batch_size in (("weak", per_device * two.count), ("strong", per_device)):
        two.ask(case=case, batch_size=batch_size)
        for _ in range(rounds):
            keep("one", one.ask(steps=steps)["step"])
            found = two.ask(steps=steps, exchange=True)
            keep(name, found["step"])
            keep("exchange", found["exchange"])
    return {
        "case": case, "per_device": per_device, **{f"{name}_s": value for name, value in best.items()},
        "weak_efficiency": best["one"] / best["weak"],
        "strong_efficiency": best["one"] / (two.count * best["strong"]),
        "exchange_share": best["exchange"] / best["weak"],
    }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--per-device", default="8,64,512")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    one, two = World(1), World(2)
    rows = []
    try:
        write("| model | per device | 1 process | 2, weak | efficiency | 2, strong | efficiency | exchange |\n")
        write("|---|---:|---:|---:|---:|---:|---:|---:|\n")
        for case in given.cases.split(","):
            for per_device in map(int, given.per_device.split(",")):
                row = compare(one, two, case, per_device, given.rounds)
                rows.append(row)
                write(
                    f"| {case} | {per_device} | {1e3 * row['one_s']:.2f} ms | {1e3 * row['weak_s']:.2f} ms | "
                    f"{row['weak_efficiency']:.2f} | {1e3 * row['strong_s']:.2f} ms | {row['strong_efficiency']:.2f} | "
                    f"{100 * row['exchange_share']:.0f} % |\n"
                )
    finally:
        one.close()
        two.close()
    if given.json:
        given.json.write_text(json.dumps(rows, indent=2))


def write(text: str) -> None:
    """Print at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
