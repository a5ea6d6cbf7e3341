"""The least cost of any legal plan, by trying everything.

It shares only `legality.check` with the planner. Every set of nodes with every set of
results is tried as a kernel; a plan is a way through the sets of written tensors, from
none to all that are delivered, and recomputation and order come by themselves: a
kernel can run when what it reads is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np

from tuner.fusion.legality import Limits, Profile, Refusal, Rules
from tuner.fusion.traffic import home_of
from tuner.fusion.view import View
from tuner.ir.graph import Graph, Node, Region
from tuner.ir.ops import OPS, Pattern

Price = Callable[[Region], float]
ANCHORS = (Pattern.CONTRACTION, Pattern.WINDOW)


class _Judge:
    """What is legal in a graph: `legality.check`, with the graph looked at once."""

    def __init__(self, graph: Graph, profile: Profile, limits: Limits | None) -> None:
        self.graph = graph
        self.has_walls = limits is not None
        self.rules = Rules(View(graph), profile, limits or Limits.none())

    def refuses(self, region: Region) -> bool:
        """Whether a region cannot be one kernel."""
        view = self.rules.view
        outputs = view.tensor_mask(view.home[name] for name in region.outputs)
        found = self.rules.judge(view.node_mask(region.nodes), outputs)
        return isinstance(found, Refusal)

    def looks_at_outputs(self, nodes: tuple[Node, ...]) -> bool:
        """Whether it may matter what is written: by an anchor, and to a wall."""
        is_anchored = any(OPS[node.op].pattern in ANCHORS for node in nodes)
        return self.has_walls or is_anchored


def legal_kernels(
    graph: Graph, price: Price, profile: Profile, limits: Limits | None = None
) -> tuple[list[str], list[tuple[int, int, float]]]:
    """Tensors that kernels write, and of each legal kernel its reads, writes, cost.

    Reads and writes are masks of the tensors; views are their source.
    """
    home = {name: name for name in graph.types}
    for node in graph.nodes:
        if node.op == "reshape":
            home[node.outputs[0]] = home[node.inputs[0]]
    computing = [node for node in graph.nodes if node.op != "reshape"]
    bit = {n.outputs[0]: 1 << k for k, n in enumerate(computing)}
    judge = _Judge(graph, profile, limits)
    return list(bit), list(_kernels(judge, computing, home, bit, price))


def least_cost(
    graph: Graph, price: Price, profile: Profile, limits: Limits | None = None
) -> float:
    """Cost of the cheapest plan."""
    names, kernels = legal_kernels(graph, price, profile, limits)
    delivered = {home_of(graph, name) for name in graph.outputs}
    goal = sum(1 << k for k, name in enumerate(names) if name in delivered)
    cheapest: dict[tuple[int, int], float] = {}
    for need, make, cost in kernels:
        cheapest[need, make] = min(cost, cheapest.get((need, make), np.inf))
    needs, makes = (np.array([k[p] for k in cheapest], dtype=np.int64) for p in (0, 1))
    costs = np.array(list(cheapest.values()))
    best = np.full(1 << len(names), np.inf)
    best[0] = 0.0
    is_done = np.zeros(len(best), dtype=bool)
    while True:  # the cheapest set of tensors next: E. Dijkstra, 1959
        open_costs = np.where(is_done, np.inf, best)
        state = int(np.argmin(open_costs))
        if state & goal == goal or not np.isfinite(open_costs[state]):
            return float(open_costs[state])
        is_done[state] = True
        fits = ((needs & ~state) == 0) & ((makes & ~state) != 0)
        np.minimum.at(best, state | makes[fits], best[state] + costs[fits])


def _kernels(
    judge: _Judge,
    computing: list[Node],
    home: dict[str, str],
    bit: dict[str, int],
    price: Price,
) -> Iterator[tuple[int, int, float]]:
    for size in range(1, len(computing) + 1):
        for chosen in combinations(computing, size):
            made = {node.outputs[0] for node in chosen}
            reads = {home[i] for node in chosen for i in node.inputs} - made
            nodes = _with_reshapes(judge.graph, chosen)
            whole = Region(nodes=nodes, outputs=tuple(n.outputs[0] for n in chosen))
            refused = judge.refuses(whole)
            if refused and not judge.looks_at_outputs(chosen):
                continue
            for outputs in _output_sets(chosen, home):
                region = Region(nodes=nodes, outputs=outputs)
                if refused and judge.refuses(region):
                    continue
                yield (
                    sum(bit.get(name, 0) for name in reads),
                    sum(bit[name] for name in outputs),
                    price(region),
                )


def _with_reshapes(graph: Graph, chosen: tuple[Node, ...]) -> tuple[str, ...]:
    names = {node.name for node in chosen}
    for node in reversed(graph.nodes):
        if node.op == "reshape" and any(
            node.outputs[0] in graph.by_name[n].inputs for n in names
        ):
            names.add(node.name)
    return tuple(node.name for node in graph.nodes if node.name in names)


def _output_sets(
    chosen: tuple[Node, ...], home: dict[str, str]
) -> Iterator[tuple[str, ...]]:
    """Results to write such that every node is of use.

    Every node leads to one that no other reads, so those that no other reads are
    written; of the rest any.
    """
    made = [node.outputs[0] for node in chosen]
    read = {home[i] for node in chosen for i in node.inputs}
    inner = [name for name in made if name in read]
    for size in range(len(inner) + 1):
        for picked in combinations(inner, size):
            outputs = tuple(n for n in made if n not in read or n in picked)
            if outputs:
                yield outputs
