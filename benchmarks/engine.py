"""The engine against PyTorch: the same models on the same machine in one run, contestants taking turns.

    make bench      or      python benchmarks/engine.py [--json FILE] [--cases fc_1024,…] [--batch-sizes 1,8]
                                                        [--max-isa AVX2] [--no-compile] [--torch-python PYTHON]
                                                        [--before CHECKOUT]

Each contestant has one process per core (two at most), all pinned to their core and single-threaded, measured at the
same time. What is measured is the processor time of a training step of one trial, so that other work on the machine
lengthens it little; of several rounds, in which the contestants alternate, the least counts.
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine_cases import BATCH_SIZES, CASES

HERE = Path(__file__).parent
AVX2 = {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""The variables that limit PyTorch and numpy to an older processor's instructions, as XLA's flag limits the engine."""


class Process:
    """A contestant's process on one core; ``checkout`` is the folder of another version of batchscale, if it is one."""

    def __init__(
        self, python: str, script: str, core: int, max_isa: str | None = None, checkout: Path = HERE.parent
    ) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        environment = os.environ | threads | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
        if max_isa == "AVX2":
            flags += " --xla_cpu_max_isa=AVX2"
            # programs of torch.compile that are stored for all instructions fail with fewer
            environment |= AVX2 | {"TORCHINDUCTOR_CACHE_DIR": str(Path(tempfile.gettempdir()) / "inductor-avx2")}
        environment |= {"XLA_FLAGS": flags, "PYTHONPATH": str(checkout / "src")}
        self._process = subprocess.Popen(
            [python, str(checkout / "benchmarks" / script), str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=environment,
        )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):  # the process died, as its answer says
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": "the process died"}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def ask_all(processes: Sequence[Process], request: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers of processes that work at the same time."""
    for process in processes:
        process.ask(request)
    return [process.answer() for process in processes]


def find_torch(python: str) -> str | None:
    """The version of PyTorch that this interpreter has."""
    code = "import torch; print(torch.__version__)"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def compare(groups: dict[str, Any], name: str, batch_size: int, rounds: int, seconds: float) -> dict[str, Any]:
    """One line of the table: the core-seconds of a step of every contestant."""
    result: dict[str, Any] = {"case": name, "batch_size": batch_size}
    best: dict[str, float] = {}
    for label, (processes, options) in groups.items():
        answers = ask_all(processes, {"prepare": name, "batch_size": batch_size, "options": options})
        if label == "engine":  # an older version may have counted otherwise
            result |= {key: value for key, value in answers[0].items() if key in ("population", "flops", "bytes")}
        if "error" in answers[0]:
            result[f"{label}_error"] = answers[0]["error"]
        else:
            best[label] = float("inf")
    for _ in range(rounds):
        for label in best:
            answers = ask_all(groups[label][0], {"measure": seconds})
            times = [answer["step_s"] for answer in answers if "step_s" in answer]
            if len(times) == len(answers):
                best[label] = min(best[label], sum(times) / len(times))
    return result | {f"{label}_step_s": value for label, value in best.items()}


def show(rows: list[dict[str, Any]], machine: dict[str, float]) -> None:
    """The table, in Markdown."""
    print(
        "\n| model | batch size | before, µs per step | engine | eager PyTorch | torch.compile "
        "| × before | × eager | × compiled | roofline |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        ours = row.get("engine_step_s", float("nan"))
        before, *peers = (row.get(f"{label}_step_s") for label in ("before", "eager", "compiled"))
        bound = max(row.get("flops", 0) / machine["gemm_flops"], row.get("bytes", 0) / machine["bandwidth"])
        row["roofline"] = bound / ours
        cells = [
            row["case"], str(row["batch_size"]),
            *(f"{value * 1e6:,.0f}" if value else "–" for value in (before, ours, *peers)),
            *(f"{value / ours:.1f}" if value else "–" for value in (before, *peers)),
            f"{100 * row['roofline']:.0f} %",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |")


def write(
    path: Path | None, machine: dict[str, float], torch: str | None, max_isa: str | None, rows: list[Any]
) -> None:
    """Write the measurements so far, so that an interrupted run leaves what it has."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"machine": machine, "torch": torch, "max_isa": max_isa, "rows": rows}, indent=1))


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--batch-sizes", default=",".join(map(str, BATCH_SIZES)))
    parser.add_argument("--torch-python", default=sys.executable, help="the interpreter that has PyTorch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--before", type=Path, help="a checkout of an older version, to be measured too")
    parser.add_argument("--max-isa", choices=["AVX2"], help="limit all contestants to these instructions")
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    engine = [Process(sys.executable, "engine_worker.py", core, given.max_isa) for core in cores]
    groups: dict[str, Any] = {"engine": (engine, {})}
    if given.before is not None:
        checkout = given.before.resolve()
        older = [Process(sys.executable, "engine_worker.py", core, given.max_isa, checkout) for core in cores]
        groups["before"] = (older, {})
    torch_version = find_torch(given.torch_python)
    if torch_version is None:
        print("PyTorch is not installed here, so the engine runs alone: pip install torch==2.13.0", file=sys.stderr)
    else:
        torch = [Process(given.torch_python, "torch_worker.py", core, given.max_isa) for core in cores]
        groups["eager"] = (torch, {})
        if not given.no_compile:
            compiled = [Process(given.torch_python, "torch_worker.py", core, given.max_isa) for core in cores]
            groups["compiled"] = (compiled, {"compiled": True})
    machine = {
        key: max(found[key] for found in ask_all(engine, {"machine": True})) for key in ("gemm_flops", "bandwidth")
    }
    rows = []
    for name in given.cases.split(","):
        for batch_size in map(int, given.batch_sizes.split(",")):
            rows.append(compare(groups, name, batch_size, given.rounds, given.seconds))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            write(given.json, machine, torch_version, given.max_isa, rows)
    for processes, _ in groups.values():
        for process in processes:
            process.close()
    print(f"Machine: {platform.processor() or platform.machine()}, {len(cores)} cores used, "
          f"{machine['gemm_flops'] / 1e9:.0f} GFLOP/s and {machine['bandwidth'] / 1e9:.0f} GB/s per core, "
          f"PyTorch {torch_version}")  # fmt: skip
    show(rows, machine)
    write(given.json, machine, torch_version, given.max_isa, rows)


if __name__ == "__main__":
    main()
