"""The cheapest set of kernels, with a proof of how far it can be from the best."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from types import MappingProxyType
from typing import Final

from tuner.fusion.bans import Restriction
from tuner.fusion.baselines import cheapest, constrained, greedy, unfused_groups
from tuner.fusion.candidates import Candidate, Space
from tuner.fusion.columns import Book, Columns, Floor, Price
from tuner.fusion.effort import Clock, Effort
from tuner.fusion.finishing import Finishing
from tuner.fusion.grouping import Grouping
from tuner.fusion.horizontal import join_side_by_side
from tuner.fusion.least import least_of_any, least_seconds
from tuner.fusion.legality import Limits, Profile, Rules
from tuner.fusion.order import launch_order
from tuner.fusion.pieces import Answer, Piece, PieceSolver, Priced, order_of
from tuner.fusion.pins import Pins
from tuner.fusion.soundness import believed
from tuner.fusion.trim import SOLVER_TOLERANCE, without_unread
from tuner.fusion.turning import read_turned
from tuner.fusion.tvm import tvm_groups
from tuner.fusion.view import View, bits
from tuner.fusion.zones import Twin, Zone
from tuner.ir.graph import Graph
from tuner.plan import Baseline, CandidateSpace, Choice, Family, Partition, Pin

NO_WALL: Final = 1 << 30
"""What a candidate space reports as `max_nodes` when no wall stands."""
JOINED_AFTERWARDS: Final = (
    "kernels that are cheaper in pairs are joined after the proof"
)
"""Said where such groups cost no less than what the bound is about, or where nothing is
known of what they could cost."""
JOINED_IN_BOUND: Final = (
    "kernels that are cheaper in pairs are joined; the bound is that of the fewest"
    " launches, of every tensor given or delivered moved once, and of every node"
    " computed once, however kernels are joined"
)
"""Said where joined kernels cost less than the best partition without them."""
TURNED: Final = (
    "transposes that stood alone are computed by the kernels that read them, after the"
    " proof"
)
"""Said where that was cheaper; the bound is of kernels apart."""
LEFT_OUT: Final = (
    "of parts of which some candidates were not looked at, the bound is that of the"
    " fewest launches and of every tensor that leaves or enters moved once"
)
"""Said where an enumeration or a solver was cut short."""
WRITTEN_FIRST: Final = "a tensor in a ring is read after every kernel that writes it"
"""Said of every space: what `put_in_order` adds where kernels wait for each other."""
STOPPED: Final = (
    "the time limit was reached: what was left out depends on how fast the machine is"
)
"""Said where a limit cut something short: another run may give another answer."""
SPENT: Final = (
    "the work that one plan may take was spent: what was left out is the same on every"
    " machine; a time limit lets the search go on"
)
"""Said where counted work cut something short."""
JOINED_SHARE: Final = 0.05
"""Of a bound on kernels apart, what joining them afterwards could save yet: only a
library call that is cheaper by more ends the search for them."""
FINISHING_SHARE: Final = 0.1
"""Of the time limit, what is left at least for kernels side by side: they are found
quickly, and may save more than a search that does not end."""


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
    time_limit_seconds: float | None = None,
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
        time_limit_seconds: when to stop with the best so far; by default the work is
            counted instead, so that the answer is the same on every machine.
        clock: a monotonic clock, in seconds.

    Raises:
        ConstraintsUnsatisfiable: the pins leave no legal partition.
    """
    return Partitioner(graph, profile=profile, limits=limits, clock=clock).solve(
        price, pins=pins, time_limit_seconds=time_limit_seconds
    )


class Partitioner:
    """Solves one graph under one price after another.

    What no price changes is made once and kept: legality, zones, candidates, what
    other strategies would join, regions and which of them are equal.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        profile: Profile = "full",
        limits: Limits | None = None,
        clock: Clock = perf_counter,
    ) -> None:
        """Keep the graph; nothing is looked at before the first solve.

        Args:
            graph: static, simplified.
            profile: which legality.
            limits: resource walls.
            clock: a monotonic clock, in seconds.
        """
        self._graph = graph
        self._profile: Profile = profile
        self._limits = limits or Limits.none()
        self._clock = clock
        self._effort = Effort.unlimited()
        self._spent = 0.0
        self._groups: dict[str, list[int]] = {}
        self._groupings: dict[str, Grouping] = {}

    @property
    def judged(self) -> int:
        """How many sets of nodes legality has been asked about, in all solves."""
        return self._book.rules.judged

    @property
    def spent(self) -> float:
        """Steps of work of all solves."""
        return self._spent + self._effort.spent

    @cached_property
    def _book(self) -> Book:
        return Book(Rules(View(self._graph), self._profile, self._limits))

    @cached_property
    def _space(self) -> Space:
        return Space(self._book.rules, out_of_time=lambda: self._effort.is_half_over)

    def solve(
        self,
        price: Price,
        *,
        pins: Sequence[Pin | Restriction] = (),
        time_limit_seconds: float | None = None,
        steps: float | None = None,
        floor: Floor | None = None,
    ) -> Solution:
        """Find the cheapest legal partition.

        Args:
            price: seconds of one kernel; infinite if no kernel can run the region.
            pins: pairs of nodes that must or must never share a kernel, and what else
                forbids kernels.
            time_limit_seconds: when to stop with the best so far; by default the work
                is counted instead, so that the answer is the same on every machine.
            steps: most work; by default any where there is a time limit.
            floor: what no price is below, from what a kernel moves alone; without it
                every candidate is priced.

        Raises:
            ConstraintsUnsatisfiable: the pins leave no legal partition.
        """
        self._spent = self.spent
        effort = Effort.within(time_limit_seconds, self._clock, steps=steps)
        self._effort = effort
        rules, space = self._book.rules, self._space
        space.renew()
        columns = Columns(rules, price, self._book, floor, effort)
        groups = self._known_groups()
        singles = groups["unfused"]
        wishes = Pins(
            rules,
            [pin for pin in pins if isinstance(pin, Pin)],
            [wish.on(rules.view) for wish in pins if not isinstance(wish, Pin)],
        )
        starts = constrained(
            rules,
            columns,
            singles,
            wishes,
            {name: columns.of_groups(found) for name, found in groups.items()},
        )
        search = _Search(
            space=space,
            columns=columns,
            pins=wishes,
            starts=tuple(starts.values()),
            effort=effort,
        )
        starts.update(
            constrained(rules, columns, singles, wishes, self._rivals(columns, singles))
        )
        whole = _whole_call(rules, columns, wishes)
        enough = whole.seconds / (1 - JOINED_SHARE) if whole else math.inf
        chosen, bound = search.run(enough)
        effort.keep(FINISHING_SHARE)
        improved = _improved(search, chosen)
        chosen = cheapest(improved, starts, wishes, self._book.moved_bytes)
        if chosen is not improved:  # a strategy that no search has improved
            chosen = _improved(search, chosen)
        return Solution(
            partition=_partition(
                rules,
                search,
                chosen,
                (bound, least_seconds(rules, floor)),
                cut=_cut_of(effort),
            ),
            baselines=MappingProxyType(
                {name: self._baseline(found) for name, found in starts.items()}
            ),
        )

    def _known_groups(self) -> dict[str, list[int]]:
        """Groupings without recomputation to start from."""
        rules, effort = self._book.rules, self._effort
        singles = self._groups.setdefault("unfused", unfused_groups(rules))
        if "tvm" in self._groups:
            return self._groups
        joined = tvm_groups(rules, singles, out_of_time=lambda: effort.is_half_over)
        if not effort.was_over:
            self._groups["tvm"] = joined
        return {"unfused": singles, "tvm": joined}

    def _rivals(
        self, columns: Columns, singles: Sequence[int]
    ) -> dict[str, list[Priced]]:
        effort = self._effort
        return greedy(
            self._book.rules,
            columns,
            singles,
            lambda: effort.is_half_over,
            known=self._groupings,
        )

    def _baseline(self, kernels: Sequence[Priced]) -> Baseline:
        moved = (self._book.moved_bytes(p.candidate) for p in kernels)
        return Baseline(
            objective_seconds=math.fsum(p.seconds for p in kernels),
            kernels=len(kernels),
            traffic_bytes=sum(moved),
        )


def _whole_call(rules: Rules, columns: Columns, pins: Pins) -> Priced | None:
    """The whole graph as one library call, where that is legal."""
    view = rules.view
    mask, outputs = view.everything, view.delivered
    family = rules.judge(mask, outputs) if mask else Family.POINTWISE
    if family is not Family.LIBRARY or not pins.allow(mask, outputs):
        return None
    return columns.price(Candidate(mask=mask, outputs=outputs, needs=0, family=family))


def _cut_of(effort: Effort) -> tuple[str, ...]:
    """What is said of an effort that did not suffice."""
    words = STOPPED if effort.was_late else SPENT
    return (words,) if effort.was_over else ()


def _improved(search: _Search, chosen: list[Priced]) -> list[Priced]:
    """A solved partition without idle work, and rearranged where that costs less."""
    rules, columns, pins = search.space.rules, search.columns, search.pins
    step = Finishing(
        rules=rules,
        price=columns.price,
        pins=pins,
        out_of_time=lambda: search.effort.is_over,
    )
    chosen = without_unread(rules, columns.price, chosen, pins=pins)
    chosen, search.turned_seconds = _rearranged(step, chosen)
    return _or_whole(rules, columns, pins, chosen)  # one price, time or not


def _rearranged(step: Finishing, chosen: list[Priced]) -> tuple[list[Priced], float]:
    """Kernels side by side, and transposes in their readers, in the better order.

    Transposes that share a launch are no longer alone; those that were read elsewhere
    no longer share one.

    Returns:
        The kernels, and the seconds that transposes in their readers saved.
    """
    joined = join_side_by_side(step, chosen)
    best = read_turned(step, joined)
    saved = _seconds(joined) - _seconds(best)
    turned = read_turned(step, chosen)
    if turned != chosen:
        other = join_side_by_side(step, turned)
        if _seconds(other) < _seconds(best):
            best, saved = other, _seconds(chosen) - _seconds(turned)
    return best, saved


def _or_whole(
    rules: Rules, columns: Columns, pins: Pins, chosen: list[Priced]
) -> list[Priced]:
    """The whole graph as one library call, where that is legal and cheaper."""
    whole = _whole_call(rules, columns, pins)
    apart = math.fsum(kernel.seconds for kernel in chosen)
    return [whole] if whole is not None and whole.seconds < apart else chosen


def _seconds(kernels: Iterable[Priced]) -> float:
    return math.fsum(kernel.seconds for kernel in kernels)


class _Search:
    """Solves the zones of a graph, each kind once, and joins those that form rings."""

    def __init__(
        self,
        *,
        space: Space,
        columns: Columns,
        pins: Pins,
        starts: Sequence[Sequence[Priced]],
        effort: Effort,
    ) -> None:
        self.space = space
        self.view = space.view
        self.columns = columns
        self.pins = pins
        self.starts = starts
        self.effort = effort
        self.turned_seconds = 0.0
        self.solver = PieceSolver(space.view, pins, columns, starts, effort)
        self.known: dict[object, tuple[Zone, Piece, Answer]] = {}
        self.pieces: dict[int, Piece] = {}
        self.seen = 0
        self.complete = True
        self.is_bound_by_floor = False

    def run(self, enough: float) -> tuple[list[Priced], float]:
        """Chosen kernels, in no order, and a bound on every choice.

        Args:
            enough: where no choice costs less than this, any will do.
        """
        kernels = (p.candidate.mask for start in self.starts for p in start)
        zones = list(self.space.zones([*kernels, *self.pins.together]))
        start = min(self.starts, key=_seconds)
        if enough <= _seconds(start):  # a bound on all choices is no more than that
            bound = believed(
                self._bound(zones), _seconds(start), where="what all kernels cost least"
            )
            if bound >= enough:
                return list(start), bound
            self.seen = 0
        solved = [self._solve(zone) for zone in zones]
        while True:
            chosen = [kernel for kernels, _ in solved for kernel in kernels]
            _, stuck = order_of(chosen)
            if not stuck:
                return chosen, self._proved(bound for _, bound in solved)
            ring = 0
            for k in stuck:
                ring |= chosen[k].candidate.mask
            ring = self.space.units.of(ring)
            touched = [z for z in zones if z.units & ring]
            kept = [n for n, z in enumerate(zones) if not z.units & ring]
            zones = [zones[n] for n in kept] + touched[:1]
            solved = [solved[n] for n in kept] + [self._solve_joined(touched)]
            zones[-1] = self.space.joined(touched)

    def _proved(self, bounds: Iterable[float]) -> float:
        """What no choice can beat, from what none can in each zone.

        Where the search ended before zones were as large as they must be, kernels may
        span several of them: then nothing is known but what all nodes take together.
        """
        bound = math.fsum(bounds)
        if not self.space.is_cut_short:
            return bound
        self.is_bound_by_floor = True
        rules, floor = self.space.rules, self.columns.floor
        return min(bound, least_of_any(rules, floor, self.view.everything))

    def _bound(self, zones: Sequence[Zone]) -> float:
        """What no choice can beat, from what kernels cost at least."""
        found: dict[object, tuple[float, int]] = {}
        for zone in zones:
            key = self._kind(zone)
            if key not in found:
                piece = self._piece_of(zone)
                found[key] = (self.solver.bound(piece), len(piece.kernels))
        each = [found[self._kind(zone)] for zone in zones]
        self.seen = sum(count for _, count in each)
        return math.fsum(bound for bound, _ in each)

    def _kind(self, zone: Zone) -> object:
        """What zones share that have the same answer.

        What a pin brings about is no answer for equal zones.
        """
        touched = self.pins.touch(self.space.units.nodes(zone.units))
        return zone.units if touched else zone.form

    def _piece_of(self, zone: Zone) -> Piece:
        """A zone's piece; zones of the same form have candidates alike."""
        found = self.pieces.get(zone.units)
        if found is None:
            found = self.pieces[zone.units] = self._piece([zone])
        return found

    def _solve(self, zone: Zone) -> tuple[list[Priced], float]:
        kind = self._kind(zone)
        known = self.known.get(kind)
        if known is None:
            piece = self._piece_of(zone)
            known = self.known[kind] = (zone, piece, self._answer(piece))
        source, piece, answer = known
        self.seen += len(piece.kernels)
        chosen = list(answer.chosen)
        if source is not zone:
            chosen = [self._twin(Twin(source=source, target=zone), c) for c in chosen]
        return chosen, answer.bound_seconds

    def _piece(self, zones: Sequence[Zone]) -> Piece:
        """The candidates of some zones, and the known kernels."""
        inside, complete = 0, True
        found: dict[tuple[int, int], Candidate] = {}
        for zone in zones:
            inside |= self.space.units.nodes(zone.units)
            candidates = self.space.candidates(zone)
            complete = complete and candidates.complete
            found.update({(c.mask, c.outputs): c for c in candidates.kernels})
        for priced in self.solver.known(inside):
            key = priced.candidate.mask, priced.candidate.outputs
            found.setdefault(key, priced.candidate)
        complete = complete and not self.space.is_cut_short
        self.complete = self.complete and complete
        return Piece(inside=inside, kernels=tuple(found.values()), complete=complete)

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
        answer = self._answer(self._piece(zones))
        return list(answer.chosen), answer.bound_seconds

    def _answer(self, piece: Piece) -> Answer:
        """The best kernels of a piece; there always is a bound.

        Where not all kernels were looked at, it speaks of every kernel that there
        could be.
        """
        answer = self.solver.solve(piece)
        cost = math.fsum(kernel.seconds for kernel in answer.chosen)
        first = self.view.nodes[next(bits(piece.inside))].name
        bound = believed(
            answer.bound_seconds, cost, where=f"the solver, part with {first}"
        )
        if bound <= 0:
            self.is_bound_by_floor = True
            least = least_of_any(self.space.rules, self.columns.floor, piece.inside)
            bound = believed(least, cost, where=f"the floor of the part with {first}")
        return replace(answer, bound_seconds=bound)


def _partition(
    rules: Rules,
    search: _Search,
    chosen: Sequence[Priced],
    bounds: tuple[float, float | None],
    *,
    cut: Sequence[str],
) -> Partition:
    """The answer, with the bound that speaks about its kernels.

    Args:
        rules: which kernels are legal.
        search: how they were found.
        chosen: them.
        bounds: of all partitions without kernels that were joined afterwards, and of
            all with such kernels, if that is known.
        cut: what is said where the effort did not suffice.
    """
    bound, least = bounds
    choices = launch_order(
        rules.view.graph,
        [
            Choice(region=p.region, family=p.candidate.family, seconds=p.seconds)
            for p in chosen
        ],
    )
    objective = math.fsum(choice.seconds for choice in choices)
    if least is not None:
        least = believed(least, objective, where="the floor of the whole graph")
    limit = rules.limits.max_nodes
    joined = JOINED_AFTERWARDS
    apart = objective + search.turned_seconds
    if least is not None and apart < (1 - SOLVER_TOLERANCE) * bound:
        bound, joined = least, JOINED_IN_BOUND
    elif least is not None:
        bound = max(bound, least)
    return Partition(
        choices=choices,
        objective_seconds=objective,
        bound_seconds=min(bound, objective),  # kernels joined since may cost less
        candidate_space=CandidateSpace(
            families=search.columns.families,
            legality=rules.profile,
            max_nodes=NO_WALL if limit is None else limit,
            candidates=search.seen,
            complete=search.complete,
            rules=(
                *search.space.rules_in_words,
                WRITTEN_FIRST,
                joined,
                *((TURNED,) if search.turned_seconds > 0.0 else ()),
                *((LEFT_OUT,) if search.is_bound_by_floor else ()),
                *cut,
            ),
        ),
    )
