"""What is known of sets of units, whatever they write and however wide the space is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tuner.fusion.candidate import Breadth, Candidate
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.traffic import traffic
from tuner.fusion.units import LIGHT, Units
from tuner.fusion.view import View, bits
from tuner.ir.ops import Pattern
from tuner.plan import Family


class Sums(NamedTuple):
    """What the units of a set have together; one unit more changes it in one step.

    Attributes:
        nodes: node mask.
        above, below: unit mask of all predecessors and successors.
        near, light: unit mask of the partners, and of the light units in front.
    """

    nodes: int
    above: int
    below: int
    near: int
    light: int

    def plus(self, units: Units, more: int) -> Sums:
        """The sums with more units."""
        nodes, above, below, near, light = self
        while more:
            low = more & -more
            more ^= low
            u = low.bit_length() - 1
            nodes |= units.masks[u]
            above |= units.above[u]
            below |= units.below[u]
            near |= units.partners[u]
            light |= units.light[u]
        return Sums(nodes, above, below, near, light)


_NO_SUMS: Final = Sums(0, 0, 0, 0, 0)


class Writes(NamedTuple):
    """What a set of units may write.

    Attributes:
        wanted: what others read of it or the graph delivers.
        choices: what it may write or not.
    """

    wanted: int
    choices: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Looked:
    """What is known of one set of units, however wide the space is.

    Attributes:
        units: the set.
        mask: its nodes.
        is_convex: whether no path between two of its units leads out of it.
        is_judged: whether it was asked who runs it.
        family: who runs it; None where nobody may.
        exits: units that lead out of the set and back in; None if not yet asked.
        pays: whether computing the exits again is worth it; None if not yet asked.
        near: sets with one unit more; None if not yet asked.
        torn: those of them that are not convex.
        writes: what it may write; None if not yet asked.
        kernels: by what it writes; None where that is no kernel.
    """

    units: int
    mask: int
    is_convex: bool
    is_judged: bool = False
    family: Family | None = None
    exits: int | None = None
    pays: bool | None = None
    near: tuple[int, ...] | None = None
    torn: frozenset[int] = frozenset()
    writes: Writes | None = None
    kernels: dict[int, Candidate | None] = field(default_factory=dict)


class Sets:
    """Sets of units of one graph; each is looked at once."""

    def __init__(
        self, rules: Rules, units: Units, *, exhaustive: bool, prologues: bool
    ) -> None:
        """Start with nothing known.

        Args:
            rules: which kernels are legal.
            units: what sets are made of.
            exhaustive: whether every set is worth growing from.
            prologues: whether kernels may compute something in front of a contraction,
                where contractions run in kernels of ours.
        """
        self.rules = rules
        self.view: View = rules.view
        self.units = units
        self._exhaustive = exhaustive
        self._prologues = prologues
        self._may_prepare = prologues and rules.prepares
        self._moved: dict[tuple[int, int], int] = {}
        self._sums: dict[int, Sums] = {}
        self._looked: dict[int, Looked] = {}

    def _is_barred(self, mask: int) -> bool:
        """Work in front of a contraction would tie the zones of large graphs."""
        return not self._prologues and self.rules.has_prologue(mask)

    def near(self, looked: Looked) -> tuple[int, ...]:
        """Sets that grow from this one by a step."""
        if looked.near is None:
            torn: list[int] = []
            looked.near = tuple(dict.fromkeys(self._neighbours(looked.units, torn)))
            looked.torn = frozenset(torn)
        return looked.near

    def look(self, units: int) -> Looked:
        """What is known of a set, however wide the space is."""
        found = self._looked.get(units)
        if found is None:
            sums = self._summed(units)
            is_convex = not sums.above & sums.below & ~units
            found = Looked(units=units, mask=sums.nodes, is_convex=is_convex)
            self._looked[units] = found
        return found

    def is_open(self, looked: Looked, breadth: Breadth) -> bool:
        """Whether a set is legal and worth growing from.

        Who runs it is asked last of what takes no traffic to say: of most sets it is
        known without that they repeat too much.
        """
        most = breadth.repeated
        if looked.is_convex:
            return self._runner(looked) is not None
        if most is not None and (not most or self.exits(looked).bit_count() > most):
            return False
        if self._runner(looked) is None:
            return False
        if looked.pays is None:
            looked.pays = self._recomputing_pays(looked)
        return looked.pays

    def _runner(self, looked: Looked) -> Family | None:
        """Who runs a set; None where nobody may."""
        if not looked.is_judged:
            family = self.rules.family(looked.mask)
            if not isinstance(family, Refusal) and not self._is_barred(looked.mask):
                looked.family = family
            looked.is_judged = True
        return looked.family

    def _summed(self, units: int) -> Sums:
        found = self._sums.get(units)
        if found is None:
            found = self._sums[units] = _NO_SUMS.plus(self.units, units)
        return found

    def _neighbours(self, units: int, torn: list[int]) -> Iterator[int]:
        """The set with one more unit: as it is, and filled up to be convex.

        Args:
            units: the set.
            torn: is told what is not convex.
        """
        sums, known = self._summed(units), self._sums
        above, below = self.units.above, self.units.below
        light = sums.light & ~units
        if light:
            yield self._lit(units, light, torn)
        for u in bits(sums.near & ~units):
            low = 1 << u
            grown = units | low
            missing = (sums.above | above[u]) & (sums.below | below[u]) & ~grown
            yield grown
            if missing:
                torn.append(grown)
                grown |= missing
                yield grown  # whole: what lies between is there with all between it
            if grown not in known:
                known[grown] = sums.plus(self.units, low | missing)

    def _lit(self, units: int, light: int, torn: list[int]) -> int:
        """The set with light work that it depends on; `torn` is told if not convex."""
        grown = self._with_light(units, light)
        if self._reach(grown) & ~grown:
            torn.append(grown)
        return grown

    def _with_light(self, units: int, light: int) -> int:
        """The set with all the light work that it depends on."""
        weights = self.units.weights
        most = max(weights[u] for u in bits(units))
        extra, rest = 0, light & ~units
        while rest:
            extra |= rest
            more = 0
            for u in bits(rest):
                more |= self.units.feeders[u]
            near = more & ~units & ~extra
            rest = sum(1 << u for u in bits(near) if weights[u] * LIGHT < most)
        return units | extra

    def _reach(self, units: int) -> int:
        sums = self._summed(units)
        return sums.above & sums.below

    def filled(self, units: int) -> int:
        """The set with what lies on paths between its units."""
        return units | self._reach(units)

    def exits(self, looked: Looked) -> int:
        """Units of the set that lead out of it and, by way of others, back in.

        A kernel that holds them reads something that depends on them, so another
        kernel must compute them too, and this one cannot be the one that writes them.
        """
        if looked.exits is None:
            units = looked.units
            between = self._reach(units) & ~units
            below = self.units.below
            picked = bits(units) if between else ()
            looked.exits = sum(1 << u for u in picked if below[u] & between)
        return looked.exits

    def _recomputing_pays(self, looked: Looked) -> bool:
        """Whether computing the exits again moves fewer bytes than storing them.

        Let K compute the exits again, and let X be what K uses of them. Some other
        kernel before K computes every tensor of X or reads it (that is what makes the
        set not convex), so it can write X, and K without the exits can read X. That
        costs the bytes of X written, except tensors that are stored anyway, and
        changes what K reads. If K does not read less than that, it is not needed.

        A kernel that computes X in front of a contraction cannot write it, so where
        there may be one nothing is said against K.
        """
        rest = looked.units & ~self.exits(looked)
        if not rest or self._exhaustive:
            return bool(rest)
        kept = self.units.nodes(rest)
        return (
            isinstance(self.rules.family(kept), Refusal)
            or self._is_in_front(looked, kept)
            or self._reads_less(looked.mask, kept)
        )

    def _is_in_front(self, looked: Looked, kept: int) -> bool:
        """Whether what the exits make may also be made in front of a contraction.

        That is one between the exits and the rest of the set.
        """
        if not self._may_prepare:
            return False
        view = self.view
        crossing = view.makes(looked.mask & ~kept) & view.needs(kept)
        behind = 0
        for j in bits(crossing & ~self.units.stored):
            behind |= view.below[view.maker[j]]
        between = self.units.nodes(self._reach(looked.units) & ~looked.units)
        return bool(behind & between & view.masks[Pattern.CONTRACTION])

    def _reads_less(self, mask: int, kept: int) -> bool:
        """Whether a kernel with exits moves fewer bytes than one without."""
        view = self.view
        outputs = view.wanted(mask) & view.makes(kept)
        useful = self.units.of(view.trimmed(mask, outputs))
        if not outputs or useful != self.units.of(mask):
            return False
        crossing = view.makes(mask & ~kept) & view.needs(kept) & ~self.units.stored
        written = sum(view.bytes[j] for j in bits(crossing))
        return self._reads(mask, outputs) < self._reads(kept, outputs) + written

    def _reads(self, mask: int, outputs: int) -> int:
        key = (mask, outputs)
        if key not in self._moved:
            kept = self.view.trimmed(mask, outputs)
            counted = self.view.read_bytes(kept)
            if counted is None:
                region = self.view.region(kept, outputs)
                moved = traffic(self.view.graph, region, self.rules.known)
                counted = sum(moved.reads.values())
            self._moved[key] = counted
        return self._moved[key]
