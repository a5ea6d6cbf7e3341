"""The cheapest set of kernels, with a proof of how far it can be from the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import Final

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.baselines import unfused_groups
from tuner.fusion.candidates import Candidate, Space
from tuner.fusion.legality import Limits, Profile, Refusal, Rules
from tuner.fusion.order import launch_order
from tuner.fusion.pieces import Priced, Solved, solve_pieces
from tuner.fusion.traffic import traffic
from tuner.fusion.tvm import tvm_groups
from tuner.fusion.view import View
from tuner.ir.graph import Graph, Region
from tuner.plan import Baseline, CandidateSpace, Choice, Family, Partition, Pin

Price = Callable[[Region, Family], float]
Clock = Callable[[], float]

DEFAULT_MAX_NODES: Final = 1 << 30
"""What a candidate space reports when no wall stands."""
ENUMERATION_SHARE: Final = 0.5
"""Part of the time limit after which no more candidates are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best partition and what other strategies would have cost."""

    partition: Partition
    baselines: Mapping[str, Baseline]


def solve(
    graph: Graph,
    price: Price,
    *,
    profile: Profile = "full",
    limits: Limits | None = None,
    pins: Sequence[Pin] = (),
    time_limit_seconds: float = 20.0,
    clock: Clock = perf_counter,
) -> Solution:
    """Find the cheapest legal partition.

    Args:
        graph: static, simplified.
        price: seconds of one kernel; infinite if no kernel can run the region.
        profile: which legality.
        limits: resource walls.
        pins: pairs of nodes that must or must never share a kernel.
        time_limit_seconds: when to stop with the best so far.
        clock: a monotonic clock, in seconds.

    Raises:
        ConstraintsUnsatisfiable: the pins leave no legal partition.
    """
    deadline = clock() + time_limit_seconds
    half = clock() + ENUMERATION_SHARE * time_limit_seconds
    rules = Rules(View(graph), profile, limits or Limits.none())
    space = Space(rules, out_of_time=lambda: clock() > half)
    columns = _Columns(rules, price)
    unfused = columns.add_groups(unfused_groups(rules))
    tvm = columns.add_groups(tvm_groups(rules, unfused_groups(rules)))
    for candidate in space.candidates():
        columns.add(candidate)
    solved = solve_pieces(
        rules.view,
        columns.priced,
        pins=pins,
        remaining_seconds=lambda: deadline - clock(),
    )
    return Solution(
        partition=_partition(rules, space, columns, solved),
        baselines=MappingProxyType(
            {
                "unfused": _baseline(rules.view, unfused),
                "tvm": _baseline(rules.view, tvm),
            }
        ),
    )


class _Columns:
    """Candidates with prices; each once."""

    def __init__(self, rules: Rules, price: Price) -> None:
        self._rules = rules
        self._price = price
        self._found: dict[tuple[int, int], Priced] = {}

    @property
    def priced(self) -> tuple[Priced, ...]:
        """Every candidate that some kernel can run."""
        return tuple(p for p in self._found.values() if math.isfinite(p.seconds))

    def add(self, candidate: Candidate) -> Priced:
        """Price a candidate."""
        key = (candidate.mask, candidate.outputs)
        if key not in self._found:
            region = self._rules.view.region(*key)
            self._found[key] = Priced(
                candidate=candidate,
                region=region,
                seconds=self._price(region, candidate.family),
            )
        return self._found[key]

    def add_groups(self, groups: Sequence[int]) -> list[Priced]:
        """Price the kernels of a grouping without recomputation."""
        view = self._rules.view
        found = []
        for mask in groups:
            outputs = view.wanted(mask)
            family = self._rules.judge(mask, outputs)
            assert not isinstance(family, Refusal)
            kept = view.trimmed(mask, outputs)
            candidate = Candidate(
                mask=kept, outputs=outputs, needs=view.needs(kept), family=family
            )
            found.append(self.add(candidate))
        return found


def _partition(
    rules: Rules, space: Space, columns: _Columns, solved: Solved
) -> Partition:
    if not solved.chosen:
        choices: tuple[Choice, ...] = ()
    else:
        choices = launch_order(
            rules.view.graph,
            [
                Choice(region=p.region, family=p.candidate.family, seconds=p.seconds)
                for p in solved.chosen
            ],
        )
    objective = math.fsum(choice.seconds for choice in choices)
    complete = space.complete and solved.finished
    bound = min(solved.bound_seconds, objective) if space.complete else 0.0
    limit = rules.limits.max_nodes
    families = {p.candidate.family.value for p in columns.priced}
    return Partition(
        choices=choices,
        objective_seconds=objective,
        bound_seconds=max(0.0, bound),
        candidate_space=CandidateSpace(
            families=tuple(sorted(families)),
            legality=rules.profile,
            max_nodes=DEFAULT_MAX_NODES if limit is None else limit,
            candidates=len(columns.priced),
            complete=complete,
        ),
    )


def _baseline(view: View, kernels: Sequence[Priced]) -> Baseline:
    moved = (traffic(view.graph, p.region).total_bytes for p in kernels)
    return Baseline(
        objective_seconds=math.fsum(p.seconds for p in kernels),
        kernels=len(kernels),
        traffic_bytes=sum(moved),
    )


def unsatisfiable(pins: Sequence[Pin]) -> ConstraintsUnsatisfiable:
    """The error for pins that leave no partition."""
    words = ", ".join(
        f"{'fuse' if pin.fuse else 'keep apart'} {pin.nodes[0]} and {pin.nodes[1]}"
        for pin in pins
    )
    return ConstraintsUnsatisfiable(
        "pins", f"no legal partition can {words}", hint="take a pin away"
    )
