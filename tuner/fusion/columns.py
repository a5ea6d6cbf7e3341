"""Candidates with prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from tuner.fusion.candidates import Candidate
from tuner.fusion.effort import PRICE_STEPS, Effort
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.linear import Numbers
from tuner.fusion.pieces import Priced
from tuner.fusion.traffic import traffic
from tuner.fusion.view import bits, joined
from tuner.ir.graph import Region
from tuner.ir.types import TensorType
from tuner.plan import Family

Price = Callable[[Region, Family], float]
"""Seconds of one kernel; infinite where no kernel can run the region."""
FLOOR_STEPS: Final = 20
"""Steps of work, measured: to say what a kernel costs at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """What kernels do at least, however nodes are joined.

    Attributes:
        read, written: what is moved once at least, all of it.
        nodes: what is computed once at least; each alone in a region, with the family
            that runs it there.
    """

    read: tuple[TensorType, ...]
    written: tuple[TensorType, ...]
    nodes: tuple[tuple[Region, Family], ...]


class Floor(Protocol):
    """What prices cannot be below, from what kernels move and compute at least."""

    def launch_seconds(self, family: Family) -> float | None:
        """What any kernel of a family costs; None if it has to be priced."""

    def any_launch_seconds(self) -> float:
        """What a kernel costs at least, whoever runs it."""

    def moving_seconds(self, nbytes: int) -> float:
        """What it adds to read a tensor of so many bytes."""

    def storing_seconds(self, nbytes: int) -> float:
        """What it adds to write a tensor of so many bytes; no less than moving it."""

    def joint_seconds(self, work: Least, *, kernels: int) -> float:
        """What generated kernels take at least that do some work together.

        Args:
            work: what has to be moved and computed.
            kernels: no fewer can do it.
        """

    def reading(self, tensor: TensorType) -> Numbers:
        """What a kernel has to do to read all of a tensor; such work adds up."""

    def writing(self, tensor: TensorType) -> Numbers:
        """What a kernel has to do to write a tensor."""

    def computing(self, region: Region, family: Family) -> Numbers:
        """What a kernel has to do to compute all of a node, alone in a region here."""

    def kernel_seconds(self, work: Numbers) -> float:
        """What a generated kernel costs at least that has so much to do."""


class Book:
    """What is known of candidates whatever they cost."""

    def __init__(self, rules: Rules) -> None:
        """Start empty."""
        self.rules = rules
        self._regions: dict[tuple[int, int], Region] = {}
        self._kinds: dict[tuple[int, int, Family], int] = {}
        self._numbers: dict[object, int] = {}
        self._moved: dict[tuple[int, int], int] = {}

    def region(self, mask: int, outputs: int) -> Region:
        """The region of a kernel."""
        key = (mask, outputs)
        found = self._regions.get(key)
        if found is None:
            found = self._regions[key] = self.rules.view.region(mask, outputs)
        return found

    def kind(self, candidate: Candidate) -> int:
        """A number that kernels share when they are the same but for names."""
        key = (candidate.mask, candidate.outputs, candidate.family)
        found = self._kinds.get(key)
        if found is None:
            structure = self.rules.view.structure(candidate.mask, candidate.outputs)
            number = len(self._numbers)
            found = self._numbers.setdefault((candidate.family, structure), number)
            self._kinds[key] = found
        return found

    def moved_bytes(self, candidate: Candidate) -> int:
        """Bytes that a kernel reads and writes."""
        key = (candidate.mask, candidate.outputs)
        found = self._moved.get(key)
        if found is None:
            graph = self.rules.view.graph
            found = traffic(graph, self.region(*key), self.rules.known).total_bytes
            self._moved[key] = found
        return found


class Columns:
    """Prices candidates; kernels that are equal but for names are priced once."""

    def __init__(
        self,
        rules: Rules,
        price: Price,
        book: Book | None = None,
        floor: Floor | None = None,
        effort: Effort | None = None,
    ) -> None:
        """Start without prices.

        Args:
            rules: which kernels are legal.
            price: seconds of one kernel.
            book: what is known of candidates already; by default nothing.
            floor: what no price is below; by default nothing is known of that.
            effort: where the work is counted.
        """
        self._effort = effort or Effort.unlimited()
        self._rules = rules
        self._price = price
        self._book = book or Book(rules)
        self._found: dict[tuple[int, int], Priced] = {}
        self._prices: dict[int, tuple[float, Family]] = {}
        self._floor = floor
        self._reading: dict[str, Numbers] = {}
        self._writing: dict[str, Numbers] = {}
        self._computing: dict[int, Numbers] = {}
        self._families: set[Family] = set()

    @property
    def floor(self) -> Floor | None:
        """What no price is below, if anything is known of that."""
        return self._floor

    @property
    def families(self) -> tuple[str, ...]:
        """Families that prices were asked of, sorted."""
        return tuple(sorted(family.value for family in self._families))

    def at_least(self, candidate: Candidate) -> tuple[float, bool]:
        """Seconds that a candidate costs at least, and whether it costs just that."""
        found = self._found.get((candidate.mask, candidate.outputs))
        floor = None if found is not None else self._floor
        if floor is None or floor.launch_seconds(candidate.family) is None:
            return self.price(candidate).seconds, True
        self._families.add(candidate.family)
        self._effort.spend(FLOOR_STEPS)
        return floor.kernel_seconds(self._work(floor, candidate)), False

    def _work(self, floor: Floor, candidate: Candidate) -> Numbers:
        """What a candidate has to do at least.

        Where a node of it may need a part of its operands only, what is read, and what
        is computed for it, counts as nothing. All others are computed in full, since
        all of them is needed behind them, and read all that they read.
        """
        view, mask = self._rules.view, candidate.mask
        parts = [self._written(floor, view.tensors[j]) for j in bits(candidate.outputs)]
        whole, needs = list(bits(mask)), candidate.needs
        narrowing = mask & view.narrowing
        if narrowing:
            whole = [i for i in whole if not (view.below[i] | 1 << i) & narrowing]
            needs &= joined(view.reads, sum(1 << i for i in whole))
        names = [view.tensors[j] for j in bits(needs)]
        given = {name for i in whole for name in view.given[i]}
        names += sorted(name for name in given if not view.is_free(name))
        parts += [self._read(floor, name) for name in names]
        parts += [self._computed(floor, i) for i in whole]
        total: Numbers = np.add.reduce(parts)
        return total

    def _read(self, floor: Floor, name: str) -> Numbers:
        found = self._reading.get(name)
        if found is None:
            types = self._rules.view.graph.types
            found = self._reading[name] = floor.reading(types[name])
        return found

    def _written(self, floor: Floor, name: str) -> Numbers:
        found = self._writing.get(name)
        if found is None:
            types = self._rules.view.graph.types
            found = self._writing[name] = floor.writing(types[name])
        return found

    def _computed(self, floor: Floor, i: int) -> Numbers:
        found = self._computing.get(i)
        if found is None:
            made = self._rules.view.made[i]
            family = self._rules.judge(1 << i, made)
            if isinstance(family, Refusal):  # never alone: its part is not known
                first = self._rules.view.tensors[next(bits(made))]
                found = np.zeros_like(self._written(floor, first))
            else:
                region = self._book.region(1 << i, made)
                found = floor.computing(region, family)
            self._computing[i] = found
        return found

    def price(self, candidate: Candidate) -> Priced:
        """A candidate with its price, in the cheaper family that can run it."""
        key = (candidate.mask, candidate.outputs)
        if key not in self._found:
            region = self._book.region(*key)
            kind = self._book.kind(candidate)
            if kind not in self._prices:
                self._effort.spend(PRICE_STEPS)
                self._prices[kind] = self._cheapest(candidate, region)
            seconds, family = self._prices[kind]
            self._families.add(family)
            self._found[key] = Priced(
                candidate=replace(candidate, family=family),
                region=region,
                seconds=seconds,
            )
        return self._found[key]

    def _cheapest(self, candidate: Candidate, region: Region) -> tuple[float, Family]:
        found = (self._price(region, candidate.family), candidate.family)
        if candidate.family is not Family.LIBRARY:
            return found
        family = self._rules.own_family(candidate.mask, candidate.outputs)
        if family is None:
            return found
        ours = self._price(region, family)
        return (ours, family) if ours < found[0] else found

    def of_groups(self, groups: Sequence[int]) -> list[Priced]:
        """Kernels of a grouping without recomputation, priced."""
        view = self._rules.view
        found = []
        for mask in groups:
            outputs = view.wanted(mask)
            family = self._rules.judge(mask, outputs)
            assert not isinstance(family, Refusal), family
            kept = view.trimmed(mask, outputs)
            candidate = Candidate(
                mask=kept, outputs=outputs, needs=view.needs(kept), family=family
            )
            found.append(self.price(candidate))
        return found
