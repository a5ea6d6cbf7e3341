"""What a kernel costs, as far as a tuning run knows: three prices for one solver.

*Predicted* is the cost model's. *Measured* is the best run where there is one, else the
model's prediction, corrected by how wrong it was on this device. *Optimistic* is the
best run where there is one, else a time that nothing can beat: a partition that is
best under it and holds measured kernels only is the best of all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

from tuner.assembly import Tuned
from tuner.ir.graph import Region
from tuner.plan import Choice, Family
from tuner.pricing import Pricer
from tuner.search.kernels import KernelState

PriceKind = Literal["predicted", "measured", "optimistic"]
Price = Callable[[Region, Family], float]

QUANTILE: Final = 0.75
"""Of the model's errors so far. Above the median, because a solver picks the kernels
that look cheapest, and those are the ones whose prediction is too low."""

LAST_RESORT: Final = 100.0
"""By how much its predicted time is raised where a kernel of one node has failed: there
may be no other way to run the node, and a plan with it is better than none."""


class Costs:
    """Prices regions by what was measured; equal kernels are priced alike."""

    def __init__(self, pricer: Pricer) -> None:
        self._pricer = pricer
        self._states: dict[object, KernelState] = {}

    def add(self, choice: Choice, state: KernelState) -> None:
        """Say which state a kernel has."""
        self._states[self._key(choice.region, choice.family)] = state

    def price(self, kind: PriceKind) -> Price:
        """One of the three prices as things stand now."""
        if kind == "predicted":
            return self._pricer.seconds
        scale = self.floor_scale()
        if kind == "optimistic":
            return lambda region, family: self._optimistic(region, family, scale)
        factors = {family: self.correction(family) for family in Family}
        return lambda region, family: self._measured(region, family, scale, factors)

    def avoiding(self, names: Collection[str]) -> Price:
        """Measured prices, under which some kernels are no part of a good partition.

        Where a node has no other kernel, the partition holds it all the same.
        """
        measured = self.price("measured")

        def price(region: Region, family: Family) -> float:
            state = self._states.get(self._key(region, family))
            if state is not None and state.name in names:
                return self.last_resort(region, family)
            return measured(region, family)

        return price

    def _measured(
        self,
        region: Region,
        family: Family,
        scale: float,
        factors: Mapping[Family, float],
    ) -> float:
        """Measured seconds where there are any, else the model's, corrected."""
        found = self._found(region, family, lambda state: state.chosen)
        if found is not None:
            return found
        priced = self._pricer.priced(region, family)
        if priced is None:
            return math.inf
        predicted = priced.estimate.seconds * factors[family]
        return max(predicted, priced.floor_seconds * scale)

    def _optimistic(self, region: Region, family: Family, scale: float) -> float:
        """Soundly measured seconds where there are any, else a lower bound."""
        found = self._found(region, family, lambda state: state.best)
        if found is not None:
            return found
        return self._pricer.floor_seconds(region, family) * scale

    def _found(
        self,
        region: Region,
        family: Family,
        which: Callable[[KernelState], Tuned | None],
    ) -> float | None:
        """What a kernel's own runs say; None if there are none of that kind."""
        state = self._states.get(self._key(region, family))
        if state is None:
            return None
        if state.is_hopeless:
            return self.last_resort(region, family)
        tuned = which(state)
        return None if tuned is None else tuned.measurement.seconds

    def last_resort(self, region: Region, family: Family) -> float:
        """What a kernel counts that has failed: infinite if it can be taken apart."""
        priced = self._pricer.priced(region, family)
        if priced is None or not self._pricer.is_single(region):
            return math.inf
        return LAST_RESORT * priced.estimate.seconds

    def known(self) -> object:
        """All that measured prices depend on; equal while no price has changed."""
        priced = {}
        for key, state in self._states.items():
            chosen = state.chosen
            if chosen is not None:
                priced[key] = chosen.measurement.seconds
            elif state.is_hopeless:
                priced[key] = math.inf
        corrections = tuple(self.correction(family) for family in Family)
        return (priced, corrections, self.floor_scale())

    def correction(self, family: Family) -> float:
        """Upper quantile of measured over predicted seconds of default schedules.

        Of the kernel's own family; of all kernels while it has none.
        """
        own = self._ratios(family)
        return upper_quantile(own or self._ratios(None), default=1.0)

    def floor_scale(self) -> float:
        """Factor that keeps lower bounds below every time that was measured."""
        least = 1.0
        for state in self._states.values():
            best = state.best
            if best is not None and state.floor_seconds > 0:
                low = best.measurement.low_seconds or best.measurement.seconds
                least = min(least, low / state.floor_seconds)
        return least

    def best_seconds(self) -> dict[str, float]:
        """Best sound run of every kernel that has one."""
        best = {state.name: state.best for state in self._states.values()}
        return {n: found.measurement.seconds for n, found in best.items() if found}

    def expected(self, state: KernelState) -> float:
        """Measured seconds of a kernel, else the model's, corrected."""
        chosen = state.chosen
        if chosen is not None:
            return chosen.measurement.seconds
        predicted = state.predicted_seconds * self.correction(state.family)
        return max(predicted, state.floor_seconds * self.floor_scale())

    def hopes(self, states: Iterable[KernelState]) -> dict[str, float]:
        """By how much each kernel's run is expected to raise a bound that counts it.

        By name; a kernel counts as often as it is used.
        """
        scale = self.floor_scale()
        return {
            state.name: state.uses
            * max(0.0, self.expected(state) - scale * state.floor_seconds)
            for state in states
        }

    def _ratios(self, family: Family | None) -> list[float]:
        found = []
        for state in self._states.values():
            plain = state.plain
            fits = family is None or state.family is family
            if fits and plain is not None and state.predicted_seconds > 0:
                found.append(plain.measurement.seconds / state.predicted_seconds)
        return found

    def _key(self, region: Region, family: Family) -> object:
        return (family, self._pricer.structure(region))


def upper_quantile(values: Sequence[float], *, default: float) -> float:
    """The least value that at least `QUANTILE` of all do not exceed."""
    if not values:
        return default
    ordered = sorted(values)
    return ordered[math.ceil(QUANTILE * len(ordered)) - 1]
