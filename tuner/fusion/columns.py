"""Candidates with prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tuner.fusion.candidates import Candidate
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.pieces import Priced
from tuner.ir.graph import Region
from tuner.plan import Family

Price = Callable[[Region, Family], float]
"""Seconds of one kernel; infinite where no kernel can run the region."""


class Columns:
    """Prices candidates; kernels that are equal but for names are priced once."""

    def __init__(self, rules: Rules, price: Price) -> None:
        """Start without prices."""
        self._rules = rules
        self._price = price
        self._found: dict[tuple[int, int], Priced] = {}
        self._prices: dict[object, tuple[float, Family]] = {}

    @property
    def families(self) -> tuple[str, ...]:
        """Families that were priced, sorted."""
        return tuple(sorted({p.candidate.family.value for p in self._found.values()}))

    def price(self, candidate: Candidate) -> Priced:
        """A candidate with its price, in the cheaper family that can run it."""
        key = (candidate.mask, candidate.outputs)
        if key not in self._found:
            view = self._rules.view
            region = view.region(*key)
            structure = (candidate.family, view.structure(*key))
            if structure not in self._prices:
                self._prices[structure] = self._cheapest(candidate, region)
            seconds, family = self._prices[structure]
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
