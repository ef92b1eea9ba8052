"""Estimated step times as sentences, as notes of a table and as JSON objects."""

from collections.abc import Mapping
from typing import Any

from batchscale.formatting import count_text
from batchscale.planning.estimate import StepEstimate


def memory_text(choice: Mapping[str, Any]) -> str:
    """Return how a step fits into memory; empty if it fits whole, or if that is not known.

    >>> memory_text({"accumulation": 4, "micro_batch": 8, "sharding": "optimizer", "recompute": True})
    '4 passes of 8, optimizer sharded, recomputed'
    >>> memory_text({"accumulation": 1, "micro_batch": 8, "sharding": "none", "recompute": False})
    ''
    """
    passes, sharding = choice["accumulation"], choice["sharding"]
    if passes is None:
        return ""
    parts = [
        f"{passes:,} passes of {choice['micro_batch']:,}" if passes > 1 else "",
        f"{sharding} sharded" if sharding != "none" else "",
        "recomputed" if choice["recompute"] else "",
    ]
    return ", ".join(part for part in parts if part)


def estimate_sentences(estimates: Mapping[str, StepEstimate]) -> list[str]:
    """Return for each device the expected share of its peak, and the fewest devices that hold a step."""
    sentences = {}
    for estimate in estimates.values():
        low, middle, high = estimate.efficiency.share
        own = count_text(len(estimate.measured), "measured step time")
        basis = f"public results of {_KINDS[estimate.work.kind]}{f' and {own}' if estimate.measured else ''}"
        fewest = estimate.fewest_devices
        room = "" if fewest in (None, 1) or estimate.work.memory is None else f" A step needs at least {fewest:,}."
        sentences[estimate.device] = (
            f"{estimate.device}: estimated at {100 * middle:.0f} % of its peak ({100 * low:.0f} to "
            f"{100 * min(high, 1):.0f} %) from {basis}.{room}"
        )
    return list(sentences.values())


_KINDS = {
    "language": "language models",
    "convolution": "convolutional networks",
    "other": "small or recurrent programs",
}


def estimate_json(machine: str, estimate: StepEstimate) -> dict[str, Any]:
    """Return an estimate as an object."""
    low, middle, high = estimate.efficiency.share
    work = estimate.work
    return {
        "machine": machine,
        "device": estimate.device,
        "table_row": estimate.accelerator.device,
        "source": estimate.accelerator.source,
        "kind": work.kind,
        "precision": work.precision,
        "flops_per_example": work.flops_per_example,
        "bytes_per_example": work.bytes_per_example,
        "parameters": work.parameters,
        "efficiency": middle,
        "efficiency_low": low,
        "efficiency_high": high,
        "measurements": len(estimate.measured),
        "fewest_devices": estimate.fewest_devices,
    }
