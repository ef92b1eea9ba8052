"""Size and start-up of the installed package by extras, as medians of alternating calls.

python benchmarks/start_up.py build/wheel --name 3.11-highest

The environments are those of `make test-wheel`. Byte code is compiled first, as pip does when it installs.
"""

import argparse
import os
import statistics
import subprocess
import time
from pathlib import Path

KINDS = ("base", "jax", "extras")
STUDY = Path(__file__).parents[1] / "examples" / "mnist_fc_records"
COMMANDS = {
    "--help": ("batchscale", "--help"),
    "import": ("python", "-c", "import batchscale"),
    "analyze": ("batchscale", "analyze", STUDY, "--goal", "val/classification_error < 0.03"),
}


def processor_time(words: list[str]) -> float:
    """Return the processor seconds of a command: on a busy machine they vary less than those of the clock."""
    before = os.times()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--name", default="3.11-highest")
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    rows = {}
    for kind in KINDS:
        environment = options.folder / f"{options.name}-{kind}"
        (site,) = environment.glob("lib/python3*/site-packages")
        subprocess.run([environment / "bin/python", "-m", "compileall", "-q", site], check=False, capture_output=True)
        size = sum(file.stat().st_size for file in site.rglob("*") if file.is_file())
        rows[kind] = [len(list(site.glob("*.dist-info"))), size / 1e6]
    seconds = {(kind, name): ([], []) for kind in KINDS for name in COMMANDS}
    for _ in range(options.repetitions + 1):
        for name, words in COMMANDS.items():
            for kind in KINDS:
                program = options.folder.resolve() / f"{options.name}-{kind}" / "bin" / words[0]
                began = time.perf_counter()
                processor = processor_time([program, *words[1:]])
                seconds[kind, name][0].append(time.perf_counter() - began)
                seconds[kind, name][1].append(processor)
    print("| installed | packages | MB |", " | ".join(f"{name}, s | processor, s" for name in COMMANDS), "|")
    print("|---" * (3 + 2 * len(COMMANDS)) + "|")
    for kind, (packages, size) in rows.items():
        times = [
            statistics.median(values[1:]) for name in COMMANDS for values in seconds[kind, name]
        ]  # first: cold files
        print(f"| {kind} | {packages} | {size:,.0f} |", " | ".join(f"{value:.2f}" for value in times), "|")


if __name__ == "__main__":
    main()
