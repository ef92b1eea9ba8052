"""Which package imports which: the graph in docs/architecture.md, and the numbers that say how tangled it is.

``python scripts/import_graph.py`` prints the numbers of the code on the path. Every import counts, those inside
functions and those for type checkers too. The graph has the packages of batchscale and its single modules; an arrow
that other arrows imply is left out of the drawing, not of the numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import grimp

ROOT = "batchscale"
Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Numbers:
    """How tangled a code is: the longest chain of packages, the cycles, and how much one part needs of the others."""

    modules: int
    package_depth: int
    module_depth: int
    package_cycles: int
    module_cycles: int
    mean_fan_out: float
    largest_fan_out: tuple[str, int]


def read_modules() -> Graph:
    """What every module of batchscale imports of batchscale."""
    graph = grimp.build_graph(ROOT, cache_dir=None)
    return {module: frozenset(graph.find_modules_directly_imported_by(module)) for module in graph.modules}


def to_packages(modules: Graph) -> Graph:
    """What every package imports of the others; batchscale itself and ``__main__`` are left out."""

    def package(module: str) -> str:
        return module.split(".")[1] if "." in module else ROOT

    found: dict[str, set[str]] = {package(module): set() for module in modules if module != ROOT}
    for module, imported in modules.items():
        if module != ROOT:
            found[package(module)] |= {package(other) for other in imported} - {package(module), ROOT}
    return {name: frozenset(names) for name, names in found.items() if name != "__main__"}


def depth(graph: Graph) -> int:
    """The number of nodes on the longest chain of imports; 0 for a graph with a cycle.

    >>> depth({"a": frozenset({"b", "c"}), "b": frozenset({"c"}), "c": frozenset()})
    3
    """
    levels: dict[str, int] = {}
    try:
        for node in TopologicalSorter(graph).static_order():
            levels[node] = 1 + max((levels[other] for other in graph.get(node, ())), default=0)
    except CycleError:
        return 0
    return max(levels.values(), default=0)


def cycles(graph: Graph) -> list[list[str]]:
    """The groups of nodes that import each other, over however many steps.

    >>> cycles({"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"b"})})
    [['b', 'c']]
    """
    reach = {node: _reachable(graph, node) for node in graph}
    groups = {tuple(sorted(other for other in reach[node] if node in reach.get(other, ()))) for node in graph}
    return sorted(list(group) for group in groups if group)


def _reachable(graph: Graph, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for other in graph.get(waiting.pop(), frozenset()) - found:
            found.add(other)
            waiting.append(other)
    return found


def without_implied(graph: Graph) -> Graph:
    """The same graph without the arrows that a longer way implies (the transitive reduction).

    >>> without_implied({"a": frozenset({"b", "c"}), "b": frozenset({"c"}), "c": frozenset()})["a"]
    frozenset({'b'})
    """
    return {
        node: frozenset(
            other for other in others if not any(other in _reachable(graph, between) for between in others - {other})
        )
        for node, others in graph.items()
    }


def measure(modules: Graph) -> Numbers:
    """The numbers of a code."""
    packages = to_packages(modules)
    largest = max(sorted(modules), key=lambda module: len(modules[module]))
    return Numbers(
        modules=len(modules),
        package_depth=depth(packages),
        module_depth=depth(modules),
        package_cycles=len(cycles(packages)),
        module_cycles=len(cycles(modules)),
        mean_fan_out=round(sum(map(len, modules.values())) / len(modules), 2),
        largest_fan_out=(largest, len(modules[largest])),
    )


def make_part(modules: Graph) -> str:
    """The graph and its numbers as Markdown. Packages only, so that it changes when the shape does and not before."""
    packages = to_packages(modules)
    drawn = without_implied(packages)
    arrows = [f"  {name} --> {other}" for name in sorted(drawn) for other in sorted(drawn[name])]
    rows = [
        f"| `{name}` | {len(others)} | {sum(name in theirs for theirs in packages.values())} |"
        for name, others in sorted(packages.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    return "\n".join(
        [
            f"Packages: {len(packages)}. Longest chain: {depth(packages)}. "
            f"Cycles of packages: {len(cycles(packages))}; of modules: {len(cycles(modules))}.",
            "",
            "```mermaid",
            "graph TD",
            *arrows,
            "```",
            "",
            "| package | imports so many packages | is imported by |",
            "|---|---:|---:|",
            *rows,
        ]
    )


if __name__ == "__main__":
    print(measure(read_modules()))
