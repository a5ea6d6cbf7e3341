"""Every kernel that the partition may choose from.

The space is given by rule. Up to `EXHAUSTIVE_UNITS` units: every set of units that is
legal, hangs together or not, convex or not, with every useful choice of outputs. Above:
the sets reached by adding one unit at a time to a legal set, as long as they hang
together by a tensor worth saving; not convex ones only where computing again moves
fewer bytes than writing and reading would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.candidate import BREADTHS, Breadth, Candidate
from tuner.fusion.legality import Rules
from tuner.fusion.sets import Looked, Sets
from tuner.fusion.units import (
    MANY_READERS,
    NEAR_READERS,
    Units,
    glued,
    whole_composites,
)
from tuner.fusion.view import View, bits
from tuner.fusion.writing import Writing
from tuner.fusion.zones import Zone, find_zones, make_zone

__all__ = ["EXHAUSTIVE_UNITS", "Candidate", "Candidates", "Space"]

EXHAUSTIVE_UNITS: Final = 10
ONE_ZONE_UNITS: Final = 40
"""Up to so many units the graph is one zone. Above, it is cut where no two units that
share a tensor can be in one kernel, even if three together could."""
FEW_UNITS: Final = 20
"""In zones of up to so many units the widest rule is seldom too much: it comes first.
"""
GOOD_PART: Final = 0.25
"""Of a budget: where the narrowest rule takes so much, the widest mostly takes all."""
MAX_SETS: Final = 30_000
"""Sets of nodes looked at before an enumeration gives up being complete."""
BUDGET: Final = 4_000
"""Candidates of one zone above which the next, narrower rule is taken."""
LAST_BUDGET: Final = 12_000
"""Candidates of one zone at which the enumeration gives up being complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Candidates of a zone.

    Attributes:
        kernels: in a fixed order, each once.
        complete: whether no cap and no time limit left one out.
        breadth: the rule that they follow; None where every set was looked at.
    """

    kernels: tuple[Candidate, ...]
    complete: bool
    breadth: Breadth | None = None


class Space:
    """The candidates of one graph; they are found once, prices play no part in them."""

    def __init__(self, rules: Rules, *, out_of_time: Callable[[], bool]) -> None:
        self.rules = rules
        self.view: View = rules.view
        self._out_of_time = out_of_time
        self._complete = True
        self._cut_short = False
        self._used: set[Breadth] = set()
        self._found: dict[int, Candidates] = {}
        self._zones: dict[tuple[int, ...], tuple[Zone, ...]] = {}
        self.units = self._make_units()
        is_all, prologues = self.exhaustive, self._prologues
        self.sets = Sets(rules, self.units, exhaustive=is_all, prologues=prologues)
        self._writing = Writing(self.sets, exhaustive=is_all, prologues=prologues)
        self._first_breadth = 0 if len(self.units) <= ONE_ZONE_UNITS else 1

    def _make_units(self) -> Units:
        view, profile = self.view, self.rules.profile
        groups = [1 << i for i in range(len(view.nodes))]
        if profile == "reference":
            groups = whole_composites(view)
        if len(groups) > EXHAUSTIVE_UNITS:
            groups = glued(self.rules, groups)
        self._prologues = len(groups) <= ONE_ZONE_UNITS
        return Units(view, groups, prologues=self._prologues and self.rules.prepares)

    @property
    def exhaustive(self) -> bool:
        """Whether every set of units is looked at."""
        return len(self.units) <= EXHAUSTIVE_UNITS

    def zones(self, together: Iterable[int]) -> tuple[Zone, ...]:
        """Parts of the graph that no candidate spans.

        Args:
            together: node masks of kernels and pins that must not be torn apart.
        """
        if not len(self.units):
            return ()
        key = tuple(together) if len(self.units) > ONE_ZONE_UNITS else ()
        found = self._zones.get(key)
        if found is None:
            found = self._find_zones(key)
            if not self._cut_short:
                self._zones[key] = found
        return found

    def _find_zones(self, together: Sequence[int]) -> tuple[Zone, ...]:
        if len(self.units) <= ONE_ZONE_UNITS:
            return (make_zone(self.units, (1 << len(self.units)) - 1),)
        return find_zones(self.units, self._joins, together)

    def renew(self) -> None:
        """Forget that time ran out, and which rules were used: a new solve begins."""
        self._cut_short = False
        self._used.clear()

    @property
    def is_cut_short(self) -> bool:
        """Whether time ran out before the zones were as large as they must be."""
        return self._cut_short

    def joined(self, zones: Sequence[Zone]) -> Zone:
        """Zones as one."""
        members = 0
        for zone in zones:
            members |= zone.units
        return make_zone(self.units, members)

    def _joins(self, first: int, second: int) -> bool:
        self._cut_short = self._cut_short or self._out_of_time()
        if self._cut_short:
            return False
        pair, widest = 1 << first | 1 << second, BREADTHS[self._first_breadth]
        return any(
            self.sets.is_open(self.sets.look(units), widest)
            for units in (pair, self.sets.filled(pair))
        )

    def candidates(self, zone: Zone) -> Candidates:
        """All candidates of a zone, in a fixed order, each once.

        The widest rule is taken that keeps them within the budget. What was found
        while there was time is kept.
        """
        found = self._found.get(zone.units)
        if found is None:
            found = self._enumerated(zone)
            if not self._out_of_time():
                self._found[zone.units] = found
        if found.breadth is not None:
            self._used.add(found.breadth)
        return found

    def _enumerated(self, zone: Zone) -> Candidates:
        """What the widest rule allows of which there are few enough.

        A narrower rule allows nothing that a wider one does not. So where many units
        hang together the narrowest comes first: if it is too much for the others'
        budget, none of them needs to be tried. If it is a good part of that, or the
        widest is too much, the narrowest of the others says whether any of them is not:
        only then are those between tried, with the widest if it was not.
        """
        if self.exhaustive:
            self._complete = True
            kernels = self._collected(self._every_set(), BREADTHS[0], None)
            return Candidates(kernels=kernels, complete=self._complete)
        *wide, last = BREADTHS[self._first_breadth :]
        narrowest = None
        if zone.units.bit_count() > FEW_UNITS:
            narrowest = self._within(zone, last, LAST_BUDGET)
            if not narrowest.complete or len(narrowest.kernels) >= BUDGET:
                return narrowest
        found, untried = None, wide[:-1]
        if narrowest is None or len(narrowest.kernels) < GOOD_PART * BUDGET:
            found, untried = self._tried(zone, wide[0]), wide[1:-1]
        if found is None:
            found = self._tried(zone, wide[-1])
            better = found and self._first_within(zone, untried)
            found = better or found
        return found or narrowest or self._within(zone, last, LAST_BUDGET)

    def _first_within(
        self, zone: Zone, breadths: Sequence[Breadth]
    ) -> Candidates | None:
        """What the first of some rules allows of which there are few enough."""
        tries = (self._tried(zone, breadth) for breadth in breadths)
        return next((found for found in tries if found is not None), None)

    def _tried(self, zone: Zone, breadth: Breadth) -> Candidates | None:
        """What a rule allows; None where that is too much, or time is over."""
        if self._out_of_time():
            return None
        found = self._within(zone, breadth, BUDGET)
        return found if found.complete else None

    def _within(self, zone: Zone, breadth: Breadth, budget: int) -> Candidates:
        self._complete = True
        sets = self._grown_sets(zone.units, breadth, is_last=budget > BUDGET)
        kernels = self._collected(sets, breadth, budget)
        complete = self._complete and len(kernels) < budget
        return Candidates(kernels=kernels, complete=complete, breadth=breadth)

    def _collected(
        self, sets: Iterable[Looked], breadth: Breadth, budget: int | None
    ) -> tuple[Candidate, ...]:
        found: dict[tuple[int, int], Candidate] = {}
        for looked in sets:
            if self._out_of_time():
                self._complete = False
                break
            for candidate in self._writing.variants(looked, breadth):
                found.setdefault((candidate.mask, candidate.outputs), candidate)
            if budget is not None and len(found) >= budget:
                break
        return tuple(found.values())

    @property
    def rules_in_words(self) -> tuple[str, ...]:
        """How the candidates are chosen, for those who read a bound."""
        if self.exhaustive:
            return ("every set of nodes, with every useful choice of outputs",)
        return (
            "sets grown node by node through tensors worth saving",
            "unary element-wise nodes stay with their only reader",
            f"of over {MANY_READERS} readers those that are {NEAR_READERS} apart join",
            *(b.words for b in BREADTHS if b in self._used),
        )

    def _every_set(self) -> Iterator[Looked]:
        for units in range(1, 1 << len(self.units)):
            looked = self.sets.look(units)
            if self.sets.is_open(looked, BREADTHS[0]):
                yield looked

    def _grown_sets(
        self, inside: int, breadth: Breadth, *, is_last: bool
    ) -> Iterator[Looked]:
        """Legal sets of a zone by growth from single units, small ones first.

        Where there are too many it ends, or under the last rule goes on with the sets
        that it has met.
        """
        front, outside = [1 << u for u in bits(inside)], ~inside
        seen = set(front)
        while front:
            following: list[int] = []
            for units in front:
                looked = self.sets.look(units)
                if not self.sets.is_open(looked, breadth):
                    continue
                yield looked
                if len(seen) > MAX_SETS or self._out_of_time():
                    self._complete = False
                    if not is_last:
                        return
                    continue
                fresh = [
                    grown
                    for grown in self.sets.near(looked)
                    if grown not in seen and not grown & outside
                ]
                seen.update(fresh)
                if breadth.repeated == 0:  # a set that is not convex repeats something
                    fresh = [grown for grown in fresh if grown not in looked.torn]
                following += fresh
            front = following
