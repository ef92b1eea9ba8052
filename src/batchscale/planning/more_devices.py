"""The time to the goal by the number of devices, and the number from which more of them stop paying.

With each number of hosts the fastest batch size counts. Devices stop paying where twice as many cost more than they
save: if time falls by a factor f, money grows by 2 / f, and the growth exceeds the fall when f is below √2, so when
less than 29 % of the time is saved.
"""

import math
from collections.abc import Mapping

import polars as pl

LEAST_SPEEDUP = math.sqrt(2)
MORE_DEVICES_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "machine": pl.String,
    "device": pl.String,
    "hosts": pl.Int64,
    "devices": pl.Int64,
    "batch_size": pl.Int64,
    "hours": pl.Float64,
    "hours_low": pl.Float64,
    "hours_high": pl.Float64,
    "cost": pl.Float64,
    "unit": pl.String,
    "step_time_from": pl.String,
    "pays": pl.Boolean,  # false: reached by a doubling that costs more than it saves
    "stop": pl.Boolean,  # true: the last number that pays, and twice as many were planned
}


def more_devices(table: pl.DataFrame) -> pl.DataFrame:
    """Return the fastest configuration of each machine with each number of hosts, as ``MORE_DEVICES_SCHEMA``."""
    fastest = table.sort("expected_time_s", "expected_cost").unique(["machine", "hosts"], keep="first")
    rows = []
    for (_,), group in sorted(fastest.group_by("machine"), key=lambda pair: str(pair[0][0])):
        ordered = group.sort("hosts").to_dicts()
        times = {row["hosts"]: row["expected_time_s"] for row in ordered}
        limit = last_that_pays(times)
        rows += [
            {
                **{name: row[name] for name in ("machine", "device", "hosts", "devices", "batch_size", "unit")},
                "step_time_from": row["step_time_from"],
                "hours": row["expected_time_s"] / 3600,
                "hours_low": _hours(row["expected_time_low_s"]),
                "hours_high": _hours(row["expected_time_high_s"]),
                "cost": row["expected_cost"],
                "pays": row["hosts"] <= limit,
                "stop": row["hosts"] == limit and 2 * limit in times,
            }
            for row in ordered
        ]
    return pl.DataFrame(rows, schema=MORE_DEVICES_SCHEMA)


def last_that_pays(times: Mapping[int, float]) -> int:
    """Return the largest number of hosts that is reached by doublings of which each saves enough time.

    >>> last_that_pays({1: 100.0, 2: 52.0, 4: 30.0, 8: 25.0, 16: 26.0})
    4
    """
    limit = min(times)
    while 2 * limit in times and times[limit] / times[2 * limit] >= LEAST_SPEEDUP:
        limit *= 2
    return limit


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / 3600


def stop_sentences(frame: pl.DataFrame) -> list[str]:
    """Return for each machine with several numbers of hosts where more devices stop paying."""
    sentences = []
    for (machine,), group in frame.group_by("machine", maintain_order=True):
        by_hosts = {row["hosts"]: row for row in group.to_dicts()}
        if len(by_hosts) < 2:
            continue
        limit = max(row["hosts"] for row in by_hosts.values() if row["pays"])
        here, double = by_hosts[limit], by_hosts.get(2 * limit)
        place = f"{machine}: more devices pay up to {here['devices']:,} ({here['hours']:.3g} h, {here['cost']:,.4g} "
        if double is None:
            sentences.append(f"{place}{here['unit']}), the most that were planned.")
            continue
        saved, dearer = 1 - double["hours"] / here["hours"], double["cost"] / here["cost"] - 1
        change = f"save {100 * saved:.0f} % of the time" if saved > 0 else f"take {-100 * saved:.0f} % longer"
        sentences.append(f"{place}{here['unit']}); {double['devices']:,} {change} and cost {100 * dearer:.0f} % more.")
    return sentences
