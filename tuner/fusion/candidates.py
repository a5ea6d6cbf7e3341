"""Every kernel that the partition may choose from.

The space is given by rule. Up to `EXHAUSTIVE_UNITS` units: every set of units that is
legal, hangs together or not, convex or not, with every useful choice of outputs. Above:
the sets reached by adding one unit at a time to a legal set, as long as they hang
together by a tensor worth saving; not convex ones only where computing again moves
fewer bytes than writing and reading would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.traffic import traffic
from tuner.fusion.units import (
    LIGHT,
    MANY_READERS,
    NEAR_READERS,
    Units,
    glued,
    whole_composites,
)
from tuner.fusion.view import View, bits, joined
from tuner.fusion.zones import Zone, find_zones, make_zone
from tuner.ir.ops import Pattern
from tuner.plan import Family

EXHAUSTIVE_UNITS: Final = 10
ONE_ZONE_UNITS: Final = 40
"""Up to so many units the graph is one zone. Above, it is cut where no two units that
share a tensor can be in one kernel, even if three together could."""
FEW_UNITS: Final = 20
"""In zones of up to so many units the widest rule is seldom too much: it comes first.
"""
GOOD_PART: Final = 0.25
"""Of a budget: where the narrowest rule takes so much, the widest takes all of it."""
MAX_SETS: Final = 30_000
"""Sets of nodes looked at before an enumeration gives up being complete."""
BUDGET: Final = 4_000
"""Candidates of one zone above which the next, narrower rule is taken."""
LAST_BUDGET: Final = 12_000
"""Candidates of one zone at which the enumeration gives up being complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breadth:
    """How wide the space of one zone is.

    Attributes:
        repeated: most units that a kernel computes again although others need them
            before it can run; None is no limit.
        optional: up to so many possible outputs every choice of outputs is tried, and
            every choice beside what the graph delivers; above, all of them, all but
            one, and one. With 0 a kernel writes all that
            others read.
    """

    repeated: int | None
    optional: int

    @property
    def words(self) -> str:
        """The rule in one line."""
        most = "any number of" if self.repeated is None else str(self.repeated)
        again = f"of what other kernels need first, {most} units are computed again"
        if not self.optional:
            return f"{again}; a kernel writes all that others read"
        return f"{again}; every choice of up to {self.optional} outputs"


BREADTHS: Final = (
    Breadth(repeated=None, optional=4),
    Breadth(repeated=1, optional=4),
    Breadth(repeated=1, optional=2),
    Breadth(repeated=0, optional=1),
    Breadth(repeated=0, optional=0),
)
"""Tried in this order; large graphs start with the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A legal kernel.

    Attributes:
        mask: nodes that it computes.
        outputs: tensors that it writes.
        needs: tensors of other kernels that it reads.
        family: who runs it.
    """

    mask: int
    outputs: int
    needs: int
    family: Family


class _Sums(NamedTuple):
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

    def plus(self, units: Units, more: int) -> _Sums:
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
        return _Sums(nodes, above, below, near, light)


_NO_SUMS: Final = _Sums(0, 0, 0, 0, 0)


class _Writes(NamedTuple):
    """What a set of units may write.

    Attributes:
        wanted: what others read of it or the graph delivers.
        choices: what it may write or not.
    """

    wanted: int
    choices: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class _Looked:
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
    writes: _Writes | None = None
    kernels: dict[int, Candidate | None] = field(default_factory=dict)


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
        self._moved: dict[tuple[int, int], int] = {}
        self._sums: dict[int, _Sums] = {}
        self._looked: dict[int, _Looked] = {}
        self.units = self._make_units()
        self.stored = self.units.stored
        self._made = [tuple(bits(made)) for made in self.view.made]
        self._behind = [self.view.above[i] | 1 << i for i in self.view.maker]
        self._first_breadth = 0 if len(self.units) <= ONE_ZONE_UNITS else 1

    def _make_units(self) -> Units:
        view, profile = self.view, self.rules.profile
        groups = [1 << i for i in range(len(view.nodes))]
        if profile == "reference":
            groups = whole_composites(view)
        if len(groups) > EXHAUSTIVE_UNITS:
            groups = glued(self.rules, groups)
        self._prologues = len(groups) <= ONE_ZONE_UNITS
        return Units(view, groups, prologues=self._prologues and self._generates)

    @property
    def exhaustive(self) -> bool:
        """Whether every set of units is looked at."""
        return len(self.units) <= EXHAUSTIVE_UNITS

    @property
    def _generates(self) -> bool:
        return self.rules.profile == "full" and self.rules.limits.contractions

    def _is_barred(self, mask: int) -> bool:
        """Work in front of a contraction would tie the zones of large graphs."""
        return not self._prologues and self.rules.has_prologue(mask)

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
            self._is_open(self._look(units), widest)
            for units in (pair, self._filled(pair))
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
        widest is too much, the narrowest of the others says whether any of them is not.
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
        found = None
        if narrowest is None or len(narrowest.kernels) < GOOD_PART * BUDGET:
            found = self._tried(zone, wide[0])
        if found is None:
            found = self._tried(zone, wide[-1])
            better = found and self._first_within(zone, wide[:-1])
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
        self, sets: Iterable[_Looked], breadth: Breadth, budget: int | None
    ) -> tuple[Candidate, ...]:
        found: dict[tuple[int, int], Candidate] = {}
        for looked in sets:
            if self._out_of_time():
                self._complete = False
                break
            for candidate in self._variants(looked, breadth):
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

    def _every_set(self) -> Iterator[_Looked]:
        for units in range(1, 1 << len(self.units)):
            looked = self._look(units)
            if self._is_open(looked, BREADTHS[0]):
                yield looked

    def _grown_sets(
        self, inside: int, breadth: Breadth, *, is_last: bool
    ) -> Iterator[_Looked]:
        """Legal sets of a zone by growth from single units, small ones first.

        Where there are too many it ends, or under the last rule goes on with the sets
        that it has met.
        """
        front = [1 << u for u in bits(inside)]
        seen = set(front)
        while front:
            following: list[int] = []
            for units in front:
                looked = self._look(units)
                if not self._is_open(looked, breadth):
                    continue
                yield looked
                if len(seen) > MAX_SETS or self._out_of_time():
                    self._complete = False
                    if not is_last:
                        return
                    continue
                for grown in self._near(looked):
                    if grown not in seen and not grown & ~inside:
                        seen.add(grown)
                        following.append(grown)
            front = following

    def _near(self, looked: _Looked) -> tuple[int, ...]:
        if looked.near is None:
            looked.near = tuple(self._neighbours(looked.units))
        return looked.near

    def _look(self, units: int) -> _Looked:
        """What is known of a set, however wide the space is."""
        found = self._looked.get(units)
        if found is None:
            sums = self._summed(units)
            is_convex = not sums.above & sums.below & ~units
            found = _Looked(units=units, mask=sums.nodes, is_convex=is_convex)
            self._looked[units] = found
        return found

    def _is_open(self, looked: _Looked, breadth: Breadth) -> bool:
        """Whether a set is legal and worth growing from.

        Who runs it is asked last of what takes no traffic to say: of most sets it is
        known without that they repeat too much.
        """
        most = breadth.repeated
        if looked.is_convex:
            return self._runner(looked) is not None
        if most is not None and (not most or self._exits(looked).bit_count() > most):
            return False
        if self._runner(looked) is None:
            return False
        if looked.pays is None:
            looked.pays = self._recomputing_pays(looked)
        return looked.pays

    def _runner(self, looked: _Looked) -> Family | None:
        """Who runs a set; None where nobody may."""
        if not looked.is_judged:
            family = self.rules.family(looked.mask)
            if not isinstance(family, Refusal) and not self._is_barred(looked.mask):
                looked.family = family
            looked.is_judged = True
        return looked.family

    def _summed(self, units: int) -> _Sums:
        found = self._sums.get(units)
        if found is None:
            found = self._sums[units] = _NO_SUMS.plus(self.units, units)
        return found

    def _neighbours(self, units: int) -> Iterator[int]:
        """The set with one more unit: as it is, and filled up to be convex."""
        sums, known = self._summed(units), self._sums
        light = sums.light & ~units
        if light:
            yield self._with_light(units, light)
        for u in bits(sums.near & ~units):
            grown = units | 1 << u
            if grown not in known:
                known[grown] = sums.plus(self.units, 1 << u)
            yield grown
            found = known[grown]
            missing = found.above & found.below & ~grown
            if missing:
                full = grown | missing
                if full not in known:
                    known[full] = found.plus(self.units, missing)
                yield full

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

    def _filled(self, units: int) -> int:
        return units | self._reach(units)

    def _exits(self, looked: _Looked) -> int:
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

    def _recomputing_pays(self, looked: _Looked) -> bool:
        """Whether computing the exits again moves fewer bytes than storing them.

        Let K compute the exits again, and let X be what K uses of them. Some other
        kernel before K computes every tensor of X or reads it (that is what makes the
        set not convex), so it can write X, and K without the exits can read X. That
        costs the bytes of X written, except tensors that are stored anyway, and
        changes what K reads. If K does not read less than that, it is not needed.

        A kernel that computes X in front of a contraction cannot write it, so where
        there may be one nothing is said against K.
        """
        rest = looked.units & ~self._exits(looked)
        if not rest or self.exhaustive:
            return bool(rest)
        kept = self.units.nodes(rest)
        return (
            isinstance(self.rules.family(kept), Refusal)
            or self._is_in_front(looked, kept)
            or self._reads_less(looked.mask, kept)
        )

    def _is_in_front(self, looked: _Looked, kept: int) -> bool:
        """Whether what the exits make may also be made in front of a contraction.

        That is one between the exits and the rest of the set.
        """
        if not (self._prologues and self._generates):
            return False
        view = self.view
        crossing = view.makes(looked.mask & ~kept) & view.needs(kept)
        behind = 0
        for j in bits(crossing & ~self.stored):
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
        crossing = view.makes(mask & ~kept) & view.needs(kept) & ~self.stored
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

    def _variants(self, looked: _Looked, breadth: Breadth) -> Iterator[Candidate]:
        """An open set of units with every useful choice of what it writes."""
        if looked.writes is None:
            looked.writes = self._writes(looked)
        known = looked.kernels
        for outputs in self._output_choices(looked.writes, breadth):
            if outputs not in known:
                known[outputs] = self._kernel(looked, outputs)
            kernel = known[outputs]
            if kernel is not None:
                yield kernel

    def _writes(self, looked: _Looked) -> _Writes:
        units, mask = looked.units, looked.mask
        made = self.view.makes(self.units.nodes(units & ~self._exits(looked)))
        if not self.exhaustive:
            made &= ~self._taken_in(units) | self.view.delivered
        wanted = self.view.wanted(mask) & made
        return _Writes(
            wanted=wanted,
            choices=tuple(bits(self._optional(mask, wanted) & made)),
        )

    def _kernel(self, looked: _Looked, outputs: int) -> Candidate | None:
        """A set that writes some tensors; None where it is of no use or not legal."""
        mask, family = looked.mask, looked.family
        kept = self._kept(mask, outputs, is_convex=looked.is_convex)
        if kept != mask and not self._holds_all(looked.units, kept):
            return None
        if family is None or isinstance(self.rules.judge(mask, outputs), Refusal):
            return None
        needs = self.view.needs(kept)
        return Candidate(mask=kept, outputs=outputs, needs=needs, family=family)

    def _kept(self, mask: int, outputs: int, *, is_convex: bool) -> int:
        """`View.trimmed`; no path between nodes of a convex set leads out of it."""
        if not is_convex:
            return self.view.trimmed(mask, outputs)
        return joined(self._behind, outputs) & mask

    def _holds_all(self, units: int, nodes: int) -> bool:
        """Whether some nodes are of all these units."""
        masks = self.units.masks
        return all(masks[u] & nodes for u in bits(units))

    def _taken_in(self, units: int) -> int:
        """Tensors of light work that a heavy kernel does for itself, not for others."""
        weights = self.units.weights
        most = max(weights[u] for u in bits(units))
        light = sum(1 << u for u in bits(units) if weights[u] * LIGHT < most)
        heavy = units & ~light
        own = sum(1 << u for u in bits(light) if not self.units.above[u] & heavy)
        return self.view.makes(self.units.nodes(own))

    def _output_choices(self, writes: _Writes, breadth: Breadth) -> Iterator[int]:
        wanted, choices = writes.wanted, writes.choices
        if self.exhaustive or len(choices) <= breadth.optional:
            for pick in range(1, 1 << len(choices)):
                yield sum(1 << choices[b] for b in bits(pick))
            return
        if wanted:
            yield wanted
        delivered = self.view.delivered
        inner = [j for j in choices if not delivered >> j & 1]
        last = sum(1 << j for j in choices if delivered >> j & 1)
        if last and len(inner) <= breadth.optional:
            for pick in range(1 << len(inner)):
                yield last | sum(1 << inner[b] for b in bits(pick))
        for j in choices if breadth.optional else ():
            changed = wanted ^ 1 << j
            if changed:
                yield changed
            yield 1 << j

    def _optional(self, mask: int, wanted: int) -> int:
        """Tensors that some other kernel may want from this one.

        Beside those that nodes outside read: a tensor that is smaller than what stands
        in for it, the results of its readers inside, where another kernel may repeat
        the readers. If it is not smaller, this kernel can write their results in its
        place, or what in turn stands in for these. That is followed further than to
        the next readers only where a kernel may repeat them in front of a contraction,
        and where the readers' results stay inside a unit: no other kernel can read
        those.
        """
        view, inner = self.view, self.units.inner
        found = wanted
        stand_in: dict[int, int] = {}  # for all that a node makes
        for i in reversed(tuple(bits(mask))):
            stand_in[i] = 0
            for j in self._made[i]:
                size = view.bytes[j]
                if not wanted >> j & 1:
                    grown = sum([stand_in[b] for b in bits(view.readers[j] & mask)])
                    is_inner = inner >> j & 1
                    if grown > size and not is_inner:
                        found |= 1 << j
                    else:
                        size = grown if self._prologues or is_inner else 0
                stand_in[i] += size
        return found
