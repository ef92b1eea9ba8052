"""The nodes of a Ray cluster, as far as workers care: what each has, and how many workers it holds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchscale.spec.experiment import RayPlan


@dataclass(frozen=True)
class Demand:
    """What a worker takes of its node: cores, accelerators (fractions share one), and resources that nodes declare."""

    num_cpus: float = 1.0
    num_gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)

    def amounts(self) -> dict[str, float]:
        """By Ray's names, without those of which nothing is taken."""
        named = {"CPU": self.num_cpus, "GPU": self.num_gpus, **self.resources}
        return {name: amount for name, amount in named.items() if amount > 0}

    def __str__(self) -> str:
        return ", ".join(f"{amount:g} {name}" for name, amount in self.amounts().items()) or "nothing"


@dataclass(frozen=True)
class NodeFacts:
    """A node that is alive."""

    node_id: str
    host: str
    resources: Mapping[str, float]

    def seats(self, demand: Demand) -> int:
        """How many workers it holds.

        >>> NodeFacts("a", "n1", {"CPU": 8.0, "GPU": 2.0}).seats(Demand(num_cpus=2, num_gpus=1))
        2
        """
        amounts = demand.amounts()
        if not amounts:
            return 1  # what takes nothing has no limit; one of it is meant
        return min(math.floor(self.resources.get(name, 0.0) / amount + 1e-9) for name, amount in amounts.items())

    @property
    def memory_bytes(self) -> float:
        """What Ray lets its workers have here."""
        return self.resources.get("memory", math.inf)


def read_nodes(described: Sequence[Mapping[str, Any]]) -> dict[str, NodeFacts]:
    """The nodes of `ray.nodes()` that are alive, by their ids."""
    return {
        node["NodeID"]: NodeFacts(node["NodeID"], node["NodeManagerHostname"], dict(node["Resources"]))
        for node in described
        if node["Alive"]
    }


def choose_demand(plan: RayPlan, num_devices: int, nodes: Mapping[str, NodeFacts]) -> Demand:
    """What a worker takes: what the file says, else accelerators if any node has some, else a core for each device."""
    any_gpus = any(node.resources.get("GPU", 0.0) > 0 for node in nodes.values())
    num_gpus = plan.num_gpus
    if num_gpus is None:
        num_gpus = float(num_devices) if any_gpus and not plan.resources else 0.0
    num_cpus = plan.num_cpus
    if num_cpus is None:
        num_cpus = 1.0 if num_gpus or plan.resources else float(num_devices)
    return Demand(num_cpus, num_gpus, dict(plan.resources))
