"""Why two nodes share a kernel or do not, and what the opposite would cost."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.columns import Price
from tuner.fusion.legality import Limits, Profile, Refusal, Rules
from tuner.fusion.partition import solve
from tuner.fusion.traffic import traffic
from tuner.fusion.view import View
from tuner.ir.graph import Graph
from tuner.plan import Partition, Pin


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One line about an edge.

    Attributes:
        together: whether some kernel holds both nodes.
        reason: why, in one line.
        seconds: cost of the partition.
        opposite_seconds: cost of the best partition in which it is the other way
            round; None if there is none.
    """

    together: bool
    reason: str
    seconds: float
    opposite_seconds: float | None


def why(
    graph: Graph,
    price: Price,
    partition: Partition,
    nodes: tuple[str, str],
    *,
    profile: Profile = "full",
    limits: Limits | None = None,
    time_limit_seconds: float = 20.0,
) -> Explanation:
    """Explain what a partition does with two nodes, by solving for the opposite.

    Raises:
        ConstraintsUnsatisfiable: a node is unknown, or is a view.
    """
    pair = set(nodes)
    together = any(pair <= set(choice.region.nodes) for choice in partition.choices)
    seconds = partition.objective_seconds
    try:
        other = solve(
            graph,
            price,
            profile=profile,
            limits=limits,
            pins=(Pin(fuse=not together, nodes=nodes),),
            time_limit_seconds=time_limit_seconds,
        ).partition
    except ConstraintsUnsatisfiable as error:
        reason = _refusal(graph, nodes, profile, limits) or error.problem
        return Explanation(
            together=together, reason=reason, seconds=seconds, opposite_seconds=None
        )
    return Explanation(
        together=together,
        reason=_comparison(graph, partition, other, together=together),
        seconds=seconds,
        opposite_seconds=other.objective_seconds,
    )


def _refusal(
    graph: Graph, nodes: tuple[str, str], profile: Profile, limits: Limits | None
) -> str:
    """Why the two nodes alone are no kernel; empty if they are or do not exist."""
    view = View(graph)
    if any(name not in view.index for name in nodes):
        return ""
    answer = Rules(view, profile, limits or Limits.none()).family(view.node_mask(nodes))
    return answer.reason if isinstance(answer, Refusal) else ""


def _comparison(
    graph: Graph, partition: Partition, other: Partition, *, together: bool
) -> str:
    word, opposite = ("fused", "apart") if together else ("apart", "fused")
    moved, moved_other = _bytes(graph, partition), _bytes(graph, other)
    gained = other.objective_seconds - partition.objective_seconds
    return (
        f"{word}: {opposite} costs {1e6 * gained:+.2f} us, "
        f"moves {moved_other - moved:+d} bytes, "
        f"launches {len(other.choices) - len(partition.choices):+d} kernels"
    )


def _bytes(graph: Graph, partition: Partition) -> int:
    return sum(traffic(graph, c.region).total_bytes for c in partition.choices)
