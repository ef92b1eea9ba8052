"""Estimated step times against published ones: error factors, and how often the stated intervals contain the truth.

    python benchmarks/estimates.py

Every result of ``planning/public_results.csv`` is predicted (1) by the results of other workloads, (2) by those of
other programs, (3) also by the same workload on other devices, (4) also by the same workload on the same device in
another configuration. Variances are fitted again without the results that are left out. Nothing is trained.
"""

import math
from collections.abc import Callable

from batchscale.planning.efficiency import PublicResult, kind_variances, predict_efficiency, public_results

Known = Callable[[PublicResult, PublicResult], bool]

CASES: dict[str, Known] = {
    "other workloads": lambda of, other: of.slowdown.workload != other.slowdown.workload,
    "other programs": lambda of, other: _program(of) != _program(other),
    "and this workload on other devices": lambda of, other: not _same_device(of, other),
    "and this workload on this device": lambda of, other: of is not other,
}


def _program(result: PublicResult) -> str:
    return result.slowdown.workload.split()[0]


def _same_device(of: PublicResult, other: PublicResult) -> bool:
    same = of.slowdown.workload == other.slowdown.workload
    return same and of.slowdown.device == other.slowdown.device


def _applies(case: str, result: PublicResult, rest: list[PublicResult]) -> bool:
    """Cases (3) and (4) need a result of the same workload that may be used."""
    if not case.startswith("and"):
        return True
    on_device = case.endswith("on this device")
    return any(
        other.slowdown.workload == result.slowdown.workload
        and (other.slowdown.device == result.slowdown.device) == on_device
        for other in rest
    )


def predict(result: PublicResult, rest: list[PublicResult]) -> tuple[float, float]:
    """Return published by predicted time, and the factor of the interval."""
    slowdowns = [other.slowdown for other in rest]
    own = result.slowdown
    variances = kind_variances(own.kind, slowdowns)
    efficiency = predict_efficiency(own.kind, own.workload, own.device, public=slowdowns, variances=variances)
    return math.exp(own.value) / efficiency.factor, math.exp(efficiency.half_width)


def main() -> None:
    results = public_results()
    first = CASES["other workloads"]
    print(
        "| result | program | device | precision | devices | published step | predicted | error | interval | inside |"
    )
    print("|---|---|---|---|---:|---:|---:|---:|---:|---|")
    for result in results:
        error, width = predict(result, [other for other in results if first(result, other)])
        device = result.slowdown.device.removesuffix(" 16 bits")
        print(
            f"| {result.name} | {_program(result)} | {device} | {result.work.precision} | {result.devices} | "
            f"{result.step_time_s:.3g} s | {result.step_time_s / error:.3g} s | × {error:.2f} | ×÷ {width:.2f} | "
            f"{'yes' if max(error, 1 / error) <= width else 'no'} |"
        )
    print("\n| kind | predicted by | results | inside the 90 % interval | largest error | interval, median |")
    print("|---|---|---:|---:|---:|---:|")
    for kind in ("language", "convolution", "other"):
        for case, may_use in CASES.items():
            rows = []
            for result in results:
                rest = [other for other in results if may_use(result, other)]
                if result.slowdown.kind == kind and _applies(case, result, rest):
                    rows.append(predict(result, rest))
            if rows:
                inside = sum(max(error, 1 / error) <= width for error, width in rows)
                largest = max(max(error, 1 / error) for error, _ in rows)
                middle = sorted(width for _, width in rows)[len(rows) // 2]
                print(f"| {kind} | {case} | {len(rows)} | {inside} | {largest:.2f} | ×÷ {middle:.2f} |", flush=True)


if __name__ == "__main__":
    main()
