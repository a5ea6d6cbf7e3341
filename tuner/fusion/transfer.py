"""A partition of one graph on another that differs from it in sizes alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.fusion.candidates import Candidate
from tuner.fusion.columns import Columns, Price
from tuner.fusion.legality import Limits, Profile, Refusal, Rules
from tuner.fusion.order import launch_order
from tuner.fusion.view import View
from tuner.ir.graph import Graph
from tuner.plan import Choice, Partition


@dataclass(frozen=True, slots=True)
class Grouping:
    """A partition as sets of node groups, whatever the sizes.

    Attributes:
        skeleton: digest of operators and edges of the graph that it is of.
        groups: nodes and written tensors of each kernel.
    """

    skeleton: str
    groups: frozenset[tuple[tuple[str, ...], tuple[str, ...]]]


def skeleton(graph: Graph) -> str:
    """Digest of a graph's operators and edges, whatever the sizes."""
    rows = tuple((n.name, n.op, n.inputs, n.outputs) for n in graph.nodes)
    told = repr((rows, graph.inputs, graph.weights, graph.outputs))
    return hashlib.sha256(told.encode()).hexdigest()


def grouping(graph: Graph, partition: Partition) -> Grouping:
    """What a partition groups: no prices, families, order or sizes."""
    regions = (choice.region for choice in partition.choices)
    groups = frozenset((region.nodes, region.outputs) for region in regions)
    return Grouping(skeleton(graph), groups)


def transferred(
    graph: Graph,
    found: Grouping,
    price: Price,
    *,
    profile: Profile,
    limits: Limits,
) -> tuple[Choice, ...] | None:
    """The kernels of a grouping on a graph, priced there, in launch order.

    Args:
        graph: where the kernels shall run.
        found: a grouping, perhaps of a graph with other sizes.
        price: seconds of one kernel on this graph.
        profile: which legality.
        limits: resource walls.

    Returns:
        None where the graph has other operators or edges, or where some kernel is not
        legal or cannot be run at its sizes.
    """
    if skeleton(graph) != found.skeleton:
        return None
    rules = Rules(View(graph), profile, limits)
    columns = Columns(rules, price)
    choices = []
    for nodes, outputs in sorted(found.groups):
        choice = _choice(rules, columns, nodes, outputs)
        if choice is None:
            return None
        choices.append(choice)
    return launch_order(graph, choices)


def _choice(
    rules: Rules, columns: Columns, nodes: Sequence[str], outputs: Sequence[str]
) -> Choice | None:
    view = rules.view
    mask, written = view.node_mask(nodes), view.tensor_mask(outputs)
    family = rules.judge(mask, written)
    if isinstance(family, Refusal):
        return None
    priced = columns.price(
        Candidate(mask=mask, outputs=written, needs=view.needs(mask), family=family)
    )
    if not math.isfinite(priced.seconds):
        return None
    return Choice(
        region=priced.region, family=priced.candidate.family, seconds=priced.seconds
    )
