"""What a graph is made of, and what each level of the planner brings on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.baselines import Price, unfused
from tuner.fusion.legality import Limits, Profile
from tuner.fusion.memory import ALIGNMENT_BYTES
from tuner.fusion.traffic import traffic
from tuner.fusion.view import View, bits
from tuner.ir.graph import Graph
from tuner.ir.ops import Pattern
from tuner.plan import Choice, Plan

CHAIN: Final = 3
"""Shortest run of element-wise nodes that counts as a chain."""

LaunchSeconds = Callable[[Choice], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A graph or plan after one level of the planner.

    Attributes:
        seconds: predicted; None where some operator has no price.
    """

    kernels: int
    traffic_bytes: int
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Runs of element-wise nodes, each read by the next one alone.

    Attributes:
        count: runs of at least `CHAIN` nodes.
        nodes: nodes in them.
        longest: nodes of the longest.
        inner_bytes: tensors inside them, written and read when nothing is fused.
    """

    count: int
    nodes: int
    longest: int
    inner_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProfile:
    """Where the time of a graph goes without fusion, and what was done about it.

    Attributes:
        launch_seconds: launches of the unfused graph.
        launch_share: their share of its time; None without a time.
        imported, simplified, fused: unfused as handed in, unfused after algebraic
            simplification, and as planned.
        separate_bytes: intermediate tensors of the plan, each with its own memory.
        arena_bytes: the arena that holds them all.
    """

    launch_seconds: float
    launch_share: float | None
    chains: Chains
    imported: Level
    simplified: Level
    fused: Level
    separate_bytes: int
    arena_bytes: int


def profile(
    imported: Graph,
    plan: Plan,
    prices: tuple[Price, Price],
    launch_seconds: LaunchSeconds,
    *,
    limits: Limits,
) -> GraphProfile:
    """Describe a graph and its plan.

    Args:
        imported: the graph as handed in.
        plan: the plan of the simplified graph.
        prices: seconds of a kernel of either.
        launch_seconds: of a kernel of the simplified graph.
        limits: resource walls.
    """
    legality = plan.options.legality
    before = _apart(imported, prices[0], legality, limits)
    choices = _apart(plan.graph, prices[1], legality, limits)
    simplified = _level(plan.graph, choices)
    launches = math.fsum(launch_seconds(choice) for choice in choices)
    return GraphProfile(
        launch_seconds=launches,
        launch_share=launches / simplified.seconds if simplified.seconds else None,
        chains=chains(plan.graph),
        imported=_level(imported, before),
        simplified=simplified,
        fused=Level(
            kernels=len(plan.kernels),
            traffic_bytes=plan.traffic_bytes,
            seconds=plan.partition.objective_seconds,
        ),
        separate_bytes=sum(_aligned(buffer.bytes) for buffer in plan.memory.buffers),
        arena_bytes=plan.memory.arena_bytes,
    )


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def _apart(
    graph: Graph, price: Price, legality: Profile, limits: Limits
) -> tuple[Choice, ...]:
    return unfused(graph, price, profile=legality, limits=limits)


def _level(graph: Graph, choices: Sequence[Choice]) -> Level:
    seconds = math.fsum(choice.seconds for choice in choices)
    return Level(
        kernels=len(choices),
        traffic_bytes=sum(traffic(graph, c.region).total_bytes for c in choices),
        seconds=seconds if math.isfinite(seconds) else None,
    )


def chains(graph: Graph) -> Chains:
    """Count the runs of element-wise nodes."""
    view = View(graph)
    lengths: list[int] = []
    inner = 0
    run: dict[int, tuple[int, int]] = {}
    for i in bits(view.masks[Pattern.ELEMENTWISE]):
        length, held = max(
            (run.pop(p) for p in bits(view.before[i]) if p in run), default=(0, 0)
        )
        if _goes_on(view, i):
            run[i] = (length + 1, held + sum(view.bytes[j] for j in bits(view.made[i])))
        elif length + 1 >= CHAIN:
            lengths.append(length + 1)
            inner += held
    return Chains(
        count=len(lengths),
        nodes=sum(lengths),
        longest=max(lengths, default=0),
        inner_bytes=2 * inner,
    )


def _goes_on(view: View, i: int) -> bool:
    """Whether one element-wise node alone reads what a node makes."""
    readers = view.after[i]
    return (
        readers.bit_count() == 1
        and not readers & ~view.masks[Pattern.ELEMENTWISE]
        and not view.made[i] & view.delivered
    )
