"""The cheapest set of kernels, with a proof of how far it can be from the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import Final

from tuner.fusion.bans import Restriction
from tuner.fusion.baselines import cheapest, greedy, unfused_groups
from tuner.fusion.candidates import Candidate, Space
from tuner.fusion.columns import Columns, Price
from tuner.fusion.horizontal import join_side_by_side
from tuner.fusion.legality import Limits, Profile, Rules
from tuner.fusion.order import launch_order
from tuner.fusion.pieces import Answer, Piece, PieceSolver, Priced, order_of
from tuner.fusion.pins import Pins
from tuner.fusion.traffic import traffic
from tuner.fusion.trim import without_unread
from tuner.fusion.tvm import tvm_groups
from tuner.fusion.view import View
from tuner.fusion.zones import Twin, Zone
from tuner.ir.graph import Graph
from tuner.plan import Baseline, CandidateSpace, Choice, Family, Partition, Pin

Clock = Callable[[], float]

NO_WALL: Final = 1 << 30
"""What a candidate space reports as `max_nodes` when no wall stands."""
JOINED_AFTERWARDS: Final = "independent kernels are joined after the proof"
"""Said of every space: such groups can only cost less than what the bound is about."""
WRITTEN_FIRST: Final = "a tensor in a ring is read after every kernel that writes it"
"""Said of every space: what `put_in_order` adds where kernels wait for each other."""
ENUMERATION_SHARE: Final = 0.5
"""Part of the time limit after which no more candidates are looked for."""


GROUPING_SHARE: Final = 0.5
"""Part of the time limit after which operators that TVM would group stay alone."""


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
    pins: Sequence[Pin | Restriction] = (),
    time_limit_seconds: float = 20.0,
    clock: Clock = perf_counter,
) -> Solution:
    """Find the cheapest legal partition.

    Args:
        graph: static, simplified.
        price: seconds of one kernel; infinite if no kernel can run the region.
        profile: which legality.
        limits: resource walls.
        pins: pairs of nodes that must or must never share a kernel, and what else
            forbids kernels.
        time_limit_seconds: when to stop with the best so far.
        clock: a monotonic clock, in seconds.

    Raises:
        ConstraintsUnsatisfiable: the pins leave no legal partition.
    """
    started = clock()
    rules = Rules(View(graph), profile, limits or Limits.none())
    columns = Columns(rules, price)
    enumeration_end = started + ENUMERATION_SHARE * time_limit_seconds
    grouping_end = started + GROUPING_SHARE * time_limit_seconds
    singles = unfused_groups(rules)
    starts: dict[str, Sequence[Priced]] = {
        "unfused": columns.of_groups(singles),
        "tvm": columns.of_groups(
            tvm_groups(rules, singles, out_of_time=lambda: clock() > grouping_end)
        ),
    }
    search = _Search(
        space=Space(rules, out_of_time=lambda: clock() > enumeration_end),
        columns=columns,
        pins=Pins(
            rules,
            [pin for pin in pins if isinstance(pin, Pin)],
            [wish.on(rules.view) for wish in pins if not isinstance(wish, Pin)],
        ),
        starts=tuple(starts.values()),
        remaining_seconds=lambda: started + time_limit_seconds - clock(),
    )
    chosen, bound = search.run()
    chosen = join_side_by_side(
        rules,
        columns.price,
        without_unread(rules, columns.price, chosen, pins=search.pins),
        pins=search.pins,
        out_of_time=lambda: search.solver.remaining_seconds() <= 0,
    )
    if search.solver.remaining_seconds() > 0:
        chosen = _or_whole(rules, columns, search.pins, chosen)
    rivals = greedy(rules, columns, singles, lambda: clock() > grouping_end)
    starts.update(rivals)
    chosen = cheapest(chosen, rivals, search.pins)
    return Solution(
        partition=_partition(rules, search, chosen, bound),
        baselines=MappingProxyType(
            {name: _baseline(rules.view, found) for name, found in starts.items()}
        ),
    )


def _or_whole(
    rules: Rules, columns: Columns, pins: Pins, chosen: list[Priced]
) -> list[Priced]:
    """The whole graph as one library call, where that is legal and cheaper."""
    view = rules.view
    mask, outputs = view.everything, view.delivered
    family = rules.judge(mask, outputs) if mask else Family.POINTWISE
    if family is not Family.LIBRARY or not pins.allow(mask, outputs):
        return chosen
    whole = columns.price(Candidate(mask=mask, outputs=outputs, needs=0, family=family))
    apart = math.fsum(kernel.seconds for kernel in chosen)
    return [whole] if whole.seconds < apart else chosen


class _Search:
    """Solves the zones of a graph, each kind once, and joins those that form rings."""

    def __init__(
        self,
        *,
        space: Space,
        columns: Columns,
        pins: Pins,
        starts: Sequence[Sequence[Priced]],
        remaining_seconds: Callable[[], float],
    ) -> None:
        self.space = space
        self.view = space.view
        self.columns = columns
        self.pins = pins
        self.starts = starts
        self.solver = PieceSolver(space.view, pins, starts, remaining_seconds)
        self.known: dict[object, tuple[Zone, Piece, Answer]] = {}
        self.seen = 0
        self.complete = True

    def run(self) -> tuple[list[Priced], float]:
        """Chosen kernels, in no order, and a bound on every choice."""
        kernels = (p.candidate.mask for start in self.starts for p in start)
        zones = list(self.space.zones([*kernels, *self.pins.together]))
        solved = [self._solve(zone) for zone in zones]
        while True:
            chosen = [kernel for kernels, _ in solved for kernel in kernels]
            _, stuck = order_of(chosen)
            if not stuck:
                return chosen, math.fsum(bound for _, bound in solved)
            ring = 0
            for k in stuck:
                ring |= chosen[k].candidate.mask
            ring = self.space.units.of(ring)
            touched = [z for z in zones if z.units & ring]
            kept = [n for n, z in enumerate(zones) if not z.units & ring]
            zones = [zones[n] for n in kept] + touched[:1]
            solved = [solved[n] for n in kept] + [self._solve_joined(touched)]
            zones[-1] = self.space.joined(touched)

    def _solve(self, zone: Zone) -> tuple[list[Priced], float]:
        nodes = self.space.units.nodes(zone.units)
        touched = self.pins.touch(nodes)
        known = None if touched else self.known.get(zone.form)
        if known is None:
            piece = self._piece([zone])
            known = (zone, piece, self.solver.solve(piece))
            if not touched:  # what a pin brings about is no answer for equal zones
                self.known[zone.form] = known
        source, piece, answer = known
        self.seen += len(piece.columns)
        chosen = [piece.columns[k] for k in answer.chosen]
        if source is not zone:
            chosen = [self._twin(Twin(source=source, target=zone), c) for c in chosen]
        return chosen, answer.bound_seconds

    def _piece(self, zones: Sequence[Zone]) -> Piece:
        """The candidates of some zones with their prices, and the known kernels."""
        inside, found, complete = 0, {}, True
        for zone in zones:
            inside |= self.space.units.nodes(zone.units)
            candidates = self.space.candidates(zone)
            complete = complete and candidates.complete
            for candidate in candidates.kernels:
                if self.solver.remaining_seconds() <= 0:
                    complete = False
                    break
                priced = self.columns.price(candidate)
                found[candidate.mask, candidate.outputs] = priced
        for priced in self.solver.known(inside):
            key = priced.candidate.mask, priced.candidate.outputs
            found.setdefault(key, priced)
        complete = complete and not self.space.is_cut_short
        self.complete = self.complete and complete
        finite = tuple(p for p in found.values() if math.isfinite(p.seconds))
        return Piece(inside=inside, columns=finite, complete=complete)

    def _twin(self, twin: Twin, priced: Priced) -> Priced:
        mask = twin.nodes(priced.candidate.mask)
        outputs = twin.tensors(priced.candidate.outputs)
        return self.columns.price(
            Candidate(
                mask=mask,
                outputs=outputs,
                needs=self.view.needs(mask),
                family=priced.candidate.family,
            )
        )

    def _solve_joined(self, zones: Sequence[Zone]) -> tuple[list[Priced], float]:
        """Zones whose kernels wait for each other, as one problem."""
        piece = self._piece(zones)
        answer = self.solver.solve(piece)
        return [piece.columns[k] for k in answer.chosen], answer.bound_seconds


def _partition(
    rules: Rules, search: _Search, chosen: Sequence[Priced], bound: float
) -> Partition:
    choices = launch_order(
        rules.view.graph,
        [
            Choice(region=p.region, family=p.candidate.family, seconds=p.seconds)
            for p in chosen
        ],
    )
    objective = math.fsum(choice.seconds for choice in choices)
    limit = rules.limits.max_nodes
    return Partition(
        choices=choices,
        objective_seconds=objective,
        bound_seconds=min(bound, objective),
        candidate_space=CandidateSpace(
            families=search.columns.families,
            legality=rules.profile,
            max_nodes=NO_WALL if limit is None else limit,
            candidates=search.seen,
            complete=search.complete,
            rules=(*search.space.rules_in_words, WRITTEN_FIRST, JOINED_AFTERWARDS),
        ),
    )


def _baseline(view: View, kernels: Sequence[Priced]) -> Baseline:
    moved = (traffic(view.graph, p.region).total_bytes for p in kernels)
    return Baseline(
        objective_seconds=math.fsum(p.seconds for p in kernels),
        kernels=len(kernels),
        traffic_bytes=sum(moved),
    )
