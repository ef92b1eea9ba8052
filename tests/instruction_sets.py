"""Runs the tests as older processors would: once for every set of vector instructions that this machine has.

``python tests/instruction_sets.py ARGUMENTS`` gives the arguments to pytest. NumPy, OpenBLAS and XLA each choose their
instructions when they start and are told otherwise by an environment variable each. What they compute may differ in the
last digits; what the tests promise may not.
"""

import os
import subprocess
import sys

from numpy._core._multiarray_umath import __cpu_features__

# What NumPy calls the levels above the one that is left; it warns about those that the machine does not have.
ABOVE_AVX2 = ("X86_V4", "AVX512_ICL", "AVX512_SPR")
ABOVE_SSE = ("X86_V3", *ABOVE_AVX2)


def settings() -> dict[str, dict[str, str]]:
    """The environment of every set, by name; the machine's own comes last and is empty."""
    sets = {}
    if __cpu_features__.get("X86_V3"):
        sets["SSE4.2"] = _set(ABOVE_SSE, "Nehalem", "SSE4_2")
    if __cpu_features__.get("X86_V4"):
        sets["AVX2"] = _set(ABOVE_AVX2, "Haswell", "AVX2")
    return {**sets, "all of this machine": {}}


def _set(disabled: tuple[str, ...], openblas: str, xla: str) -> dict[str, str]:
    given = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={xla}"
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in disabled if __cpu_features__.get(name)),
        "OPENBLAS_CORETYPE": openblas,
        "XLA_FLAGS": given.strip(),
    }


def main(arguments: list[str]) -> int:
    """Runs pytest under every set; says which failed, and exits with 1 if any did."""
    failed = []
    for name, variables in settings().items():
        print(f"\nInstructions: {name} {variables}", flush=True)  # noqa: T201
        answer = subprocess.run([sys.executable, "-m", "pytest", *arguments], env={**os.environ, **variables})
        if answer.returncode:
            failed.append(name)
    print(f"\nFailed with: {', '.join(failed) or 'none of them'}")  # noqa: T201
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
