"""Why two nodes share a kernel or do not, and what the opposite would cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.candidates import Candidate
from tuner.fusion.columns import Columns, Price
from tuner.fusion.contraction import parallel_contractions
from tuner.fusion.groups import Groups
from tuner.fusion.legality import ANCHORS, Limits, Profile, Refusal, Rules
from tuner.fusion.partition import solve
from tuner.fusion.traffic import traffic
from tuner.fusion.view import View, bits
from tuner.ir.graph import Graph
from tuner.plan import Choice, Partition, Pin


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
    time_limit_seconds: float | None = None,
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
        reason=_comparison(graph, partition, other, _word(graph, partition, pair)),
        seconds=seconds,
        opposite_seconds=other.objective_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide:
    """Parts of a graph that do not depend on each other, in one kernel or in several.

    Attributes:
        nodes: one of each part: its contraction, or its last node.
        kernels: numbers of the kernels that hold them, in launch order.
        together: whether that is one kernel.
        reason: why, in one line.
        seconds: of these kernels.
        opposite_seconds: of the parts in kernels of their own, or in one; None where
            no kernel can hold them.
    """

    nodes: tuple[str, ...]
    kernels: tuple[int, ...]
    together: bool
    reason: str
    seconds: float
    opposite_seconds: float | None


def side_by_side(
    graph: Graph,
    price: Price,
    partition: Partition,
    *,
    profile: Profile = "full",
    limits: Limits | None = None,
) -> tuple[SideBySide, ...]:
    """Kernels that hold independent parts, and products that are not merged.

    What the opposite costs is asked of these kernels alone; `why` asks it of the whole
    partition.
    """
    view = View(graph)
    rules = Rules(view, profile, limits or Limits.none())
    told = _Parallel(rules, Columns(rules, price), partition.choices)
    return (*told.joined(), *told.apart())


class _Parallel:
    """The independent parts of a partition's kernels."""

    def __init__(
        self, rules: Rules, columns: Columns, choices: Sequence[Choice]
    ) -> None:
        self.rules = rules
        self.view = rules.view
        self.columns = columns
        self.choices = choices
        self.masks = [self.view.node_mask(c.region.nodes) for c in choices]
        self.outputs = [self.view.tensor_mask(c.region.outputs) for c in choices]

    def joined(self) -> Iterator[SideBySide]:
        """Kernels whose parts could be kernels of their own."""
        for k, mask in enumerate(self.masks):
            parts = _parts(self.view, mask)
            if len(parts) < 2:  # noqa: PLR2004
                continue
            apart = [
                self._seconds(p, self.outputs[k] & self.view.makes(p)) for p in parts
            ]
            known = [seconds for seconds in apart if seconds is not None]
            other = math.fsum(known) if len(known) == len(parts) else None
            seconds = self.choices[k].seconds
            yield SideBySide(
                nodes=tuple(self._name(part) for part in parts),
                kernels=(k,),
                together=True,
                reason=self._saving(k, parts, seconds, other),
                seconds=seconds,
                opposite_seconds=other,
            )

    def apart(self) -> Iterator[SideBySide]:
        """Products of one tensor that are in several kernels."""
        for names in parallel_contractions(self.view.graph):
            at = [self._holder(self.view.node_mask([name])) for name in names]
            if len(set(at)) < 2:  # noqa: PLR2004
                continue
            held = sorted(set(at))
            mask = outputs = 0
            for k in held:
                mask |= self.masks[k]
                outputs |= self.outputs[k]
            seconds = math.fsum(self.choices[k].seconds for k in held)
            other = self._seconds(mask, outputs)
            yield SideBySide(
                nodes=names,
                kernels=tuple(held),
                together=False,
                reason=self._refused(mask, outputs, seconds, other),
                seconds=seconds,
                opposite_seconds=other,
            )

    def _holder(self, node: int) -> int:
        return next(k for k, mask in enumerate(self.masks) if mask & node)

    def _name(self, part: int) -> str:
        """A part by the name of its contraction, or of its last node."""
        anchors = [i for i in bits(part) if self.view.patterns[i] in ANCHORS]
        return self.view.nodes[(anchors or list(bits(part)))[-1]].name

    def _seconds(self, mask: int, outputs: int) -> float | None:
        family = self.rules.judge(mask, outputs)
        if isinstance(family, Refusal):
            return None
        needs = self.view.needs(mask)
        found = self.columns.price(
            Candidate(mask=mask, outputs=outputs, needs=needs, family=family)
        ).seconds
        return found if math.isfinite(found) else None

    def _saving(
        self, k: int, parts: Sequence[int], seconds: float, other: float | None
    ) -> str:
        graph = self.view.graph
        whole = traffic(graph, self.choices[k].region).total_bytes
        single = sum(
            traffic(
                graph,
                self.view.region(part, self.outputs[k] & self.view.makes(part)),
            ).total_bytes
            for part in parts
        )
        saved = f"{len(parts) - 1} launches and {single - whole} bytes fewer"
        if other is None:
            return f"{saved}; no kernel runs each part alone"
        return f"{saved}; apart costs {1e6 * (other - seconds):+.2f} µs"

    def _refused(
        self, mask: int, outputs: int, seconds: float, other: float | None
    ) -> str:
        family = self.rules.judge(mask, outputs)
        if isinstance(family, Refusal):
            return family.reason
        if other is None:
            return "no kernel of ours can run them together"
        return f"together costs {1e6 * (other - seconds):+.2f} µs"


def _parts(view: View, mask: int) -> list[int]:
    """The nodes of a kernel by parts that share no tensor made in it."""
    groups = Groups(len(view.nodes))
    for i in bits(mask):
        for p in bits(view.before[i] & mask):
            groups.join(i, p)
    return [part for part in groups.masks() if part & mask]


def _refusal(
    graph: Graph, nodes: tuple[str, str], profile: Profile, limits: Limits | None
) -> str:
    """Why the two nodes alone are no kernel; empty if they are or do not exist."""
    view = View(graph)
    if any(name not in view.index for name in nodes):
        return ""
    answer = Rules(view, profile, limits or Limits.none()).family(view.node_mask(nodes))
    return answer.reason if isinstance(answer, Refusal) else ""


def _comparison(graph: Graph, partition: Partition, other: Partition, word: str) -> str:
    opposite = "in one kernel" if word == "apart" else "apart"
    moved, moved_other = _bytes(graph, partition), _bytes(graph, other)
    gained = other.objective_seconds - partition.objective_seconds
    return (
        f"{word}: {opposite} costs {1e6 * gained:+.2f} µs, "
        f"moves {moved_other - moved:+d} bytes, "
        f"launches {len(other.choices) - len(partition.choices):+d} kernels"
    )


def _word(graph: Graph, partition: Partition, pair: set[str]) -> str:
    """How two nodes stand to each other: apart, or how they share a kernel."""
    view = View(graph)
    for choice in partition.choices:
        if not pair <= set(choice.region.nodes):
            continue
        mask = view.node_mask(choice.region.nodes)
        parts = _parts(view, mask)
        both = view.node_mask(pair)
        if any(both & ~part == 0 for part in parts):
            return "fused"
        is_product = any(view.patterns[i] in ANCHORS for i in bits(mask))
        return "merged" if is_product else "side by side"
    return "apart"


def _bytes(graph: Graph, partition: Partition) -> int:
    return sum(traffic(graph, c.region).total_bytes for c in partition.choices)
