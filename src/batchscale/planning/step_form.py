"""The forms a step time may have: a device's share of the batch, synchronising, and how the two overlap.

After the goodput model of AdaptDL (Qiao et al., "Pollux", OSDI 2021). A step on N devices, each with a share of m
examples, takes

    ((a_c + b_c m)^g + sync^g)^(1/g)

where ``sync`` is 0 on one device, and otherwise a latency plus so much for each device beyond the second. Synchronising
may cost the same within a host and between hosts (``shared``) or not. g = 1 is the sum of both times (nothing
overlaps), g without end their maximum (all of it does), anything between is fitted. Parameters are kept as logarithms,
so that no time can be negative and no term can shrink with more work.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Overlap(StrEnum):
    """The way in which computing and synchronising add up."""

    SUM = "sum"
    NORM = "p-norm"
    MAX = "max"


class Tier(StrEnum):
    """The connection over which devices synchronise."""

    ALONE = "one device"
    WITHIN = "within a host"
    BETWEEN = "between hosts"


@dataclass(frozen=True)
class Layout:
    """Many configurations as arrays: hosts, devices over all hosts, examples per device."""

    hosts: FloatArray
    devices: FloatArray
    share: FloatArray

    def __len__(self) -> int:
        return len(self.share)

    def take(self, mask: NDArray[np.bool_]) -> "Layout":
        """Return the configurations of a mask."""
        return Layout(self.hosts[mask], self.devices[mask], self.share[mask])

    def tiers(self) -> list[Tier]:
        """Return the tier of each configuration."""
        return [
            Tier.ALONE if n == 1 else Tier.WITHIN if h == 1 else Tier.BETWEEN
            for h, n in zip(self.hosts, self.devices, strict=True)
        ]


@dataclass(frozen=True)
class Form:
    """The terms of a step time.

    Terms are named ``sync``, ``sync_within`` and ``sync_between`` (latencies) and the same with ``_per_device``.
    ``per_example`` is False if only one share of a batch was timed.
    """

    terms: tuple[str, ...] = ()
    overlap: Overlap = Overlap.SUM
    per_example: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters, in the order of their values."""
        compute = ("latency_s", "per_example_s") if self.per_example else ("latency_s",)
        overlap = ("overlap",) if self.overlap is Overlap.NORM else ()
        return (*compute, *(f"{term}_s" for term in self.terms), *overlap)

    @property
    def size(self) -> int:
        """The number of parameters."""
        return len(self.names)

    def columns(self, at: Layout) -> FloatArray:
        """Return the factor of each time parameter: a row per configuration."""
        ones = np.ones(len(at))
        columns = [ones, at.share] if self.per_example else [ones]
        return np.stack([*columns, *(_column(term, at) for term in self.terms)], axis=1)

    def times(self, parameters: FloatArray, at: Layout) -> FloatArray:
        """Return the step times of configurations, from the logarithms of the parameters."""
        compute_count = 2 if self.per_example else 1
        count = compute_count + len(self.terms)
        # A term may run off towards 0 while it is fitted; its logarithm may not run off for ever.
        parts = self.columns(at) * np.exp(np.clip(parameters[:count], -80, 80))
        compute = parts[:, :compute_count].sum(axis=1)
        sync = parts[:, compute_count:].sum(axis=1)
        if self.overlap is Overlap.SUM:
            return np.asarray(compute + sync)
        if self.overlap is Overlap.MAX:
            return np.asarray(np.maximum(compute, sync))
        power = 1 + np.exp(np.clip(parameters[-1], -30, 5))
        larger, smaller = np.maximum(compute, sync), np.minimum(compute, sync)
        return np.asarray(larger * (1 + (smaller / larger) ** power) ** (1 / power))


def _column(term: str, at: Layout) -> FloatArray:
    several = at.devices > 1
    where = several
    if "within" in term:
        where = several & (at.hosts == 1)
    elif "between" in term:
        where = several & (at.hosts > 1)
    amount = np.maximum(at.devices - 2, 0) if term.endswith("_per_device") else np.ones(len(at))
    return np.asarray(where * amount, dtype=np.float64)


def possible_forms(at: Layout) -> list[Form]:
    """Return the forms that measurements of these configurations can determine, simple ones first."""
    per_example = len(np.unique(at.share)) > 1
    tiers = set(at.tiers())
    if tiers == {Tier.ALONE} or not tiers:
        return [Form((), Overlap.SUM, per_example)]
    sums: list[tuple[str, ...]] = [("sync",)]
    if _counts(at, Tier.WITHIN, Tier.BETWEEN) > 1:
        sums.append(("sync", "sync_per_device"))
    if {Tier.WITHIN, Tier.BETWEEN} <= tiers:
        apart = ("sync_within", "sync_between")
        sums.append(apart)
        within = ("sync_within_per_device",) if _counts(at, Tier.WITHIN) > 1 else ()
        between = ("sync_between_per_device",) if _counts(at, Tier.BETWEEN) > 1 else ()
        sums += [(*apart, *more) for more in dict.fromkeys((within, between, within + between)) if more]
    return [Form(terms, overlap, per_example) for overlap in Overlap for terms in sums]


def _counts(at: Layout, *tiers: Tier) -> int:
    mask = np.array([tier in tiers for tier in at.tiers()])
    return len(np.unique(at.devices[mask]))
