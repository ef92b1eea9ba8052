"""Weak and strong scaling of one trial over processes that are pinned to a core each, in one run, taking turns.

    python benchmarks/distributed.py [--cases fc_1024,…] [--per-device 8,64,512] [--rounds 3] [--json FILE]

One process and two processes are measured alternately, several rounds; the least time of each counts. Weak: as many
examples per device. Strong: as many in all. Given is the time of a step that passed, or with ``--clock processor`` what
a process computed, which other work on the machine lengthens less. The exchange is timed alone, as one sum of a
gradient's worth of numbers; its share is that of a step of two processes at as many examples per device.
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
CLOCKS = {"wall": "step", "processor": "computed"}


class World:
    """The processes that train a trial together, each on its own core."""

    def __init__(self, count: int) -> None:
        names = [f"127.0.0.1:{free_port()}" for _ in range(count)]
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


def free_port() -> int:
    """A port of this machine that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compare(one: World, two: World, case: str, per_device: int, rounds: int, clock: str) -> dict[str, Any]:
    """The least step times of one process and of two, weak and strong, and what the exchange takes of it."""
    best: dict[str, float] = {}

    def keep(name: str, found: dict[str, float]) -> None:
        for key, value in found.items():
            best[f"{name}_{key}_s"] = min(value, best.get(f"{name}_{key}_s", float("inf")))

    one.ask(case=case, batch_size=per_device)
    steps = max(2, min(200, int(0.3 / one.ask(steps=3)["step"])))
    for name, batch_size in (("weak", per_device * two.count), ("strong", per_device)):
        two.ask(case=case, batch_size=batch_size)
        for _ in range(rounds):
            keep("one", one.ask(steps=steps))
            keep(name, two.ask(steps=steps, exchange=True))
    alone, weak, strong = (best[f"{name}_{CLOCKS[clock]}_s"] for name in ("one", "weak", "strong"))
    return {
        "case": case, "per_device": per_device, **best,
        "shown_s": [alone, weak, strong],
        "weak_efficiency": alone / weak,
        "strong_efficiency": alone / (two.count * strong),
        "exchange_share": best["weak_exchange_s"] / best["weak_step_s"],
    }  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--per-device", default="8,64,512")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    one, two = World(1), World(2)
    rows = []
    try:
        write("| model | per device | 1 process | 2, weak | efficiency | 2, strong | efficiency | exchange | share |\n")
        write("|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
        for case in given.cases.split(","):
            for per_device in map(int, given.per_device.split(",")):
                row = compare(one, two, case, per_device, given.rounds, given.clock)
                rows.append(row)
                alone, weak, strong = (f"{1e3 * seconds:.3g} ms" for seconds in row["shown_s"])
                efficiencies = (f"{row[f'{name}_efficiency']:.2f}" for name in ("weak", "strong"))
                exchange = f"{1e3 * row['weak_exchange_s']:.3g} ms | {row['exchange_share']:.2f}"
                cells = [case, str(per_device), alone, weak, next(efficiencies), strong, next(efficiencies), exchange]
                write(f"| {' | '.join(cells)} |\n")
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
