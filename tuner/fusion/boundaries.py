"""Why a fusion group ends where it ends."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.fusion.baselines import Price
from tuner.fusion.legality import Limits, Profile, Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.view import View, bits
from tuner.ir.graph import Graph
from tuner.plan import Choice, Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """Where a tensor leaves its group.

    Attributes:
        group: number of the group that writes it, in launch order.
        tensor: what crosses.
        reader: number of the group that reads it; None for the caller.
        reason: why the two are not one group.
    """

    group: int
    tensor: str
    reader: int | None
    reason: str


def boundaries(
    graph: Graph,
    choices: Sequence[Choice],
    price: Price,
    *,
    profile: Profile,
    limits: Limits,
) -> tuple[Boundary, ...]:
    """All tensors that cross between groups of a partition, in launch order.

    Args:
        graph: the planned graph.
        choices: the groups, in launch order.
        price: seconds of one kernel.
        profile: which legality.
        limits: resource walls.
    """
    return tuple(_Joins(graph, choices, price, profile, limits).all())


class _Joins:
    def __init__(
        self,
        graph: Graph,
        choices: Sequence[Choice],
        price: Price,
        profile: Profile,
        limits: Limits,
    ) -> None:
        self.view = view = View(graph)
        self.rules = Rules(view, profile, limits)
        self.price = price
        self.choices = choices
        self.masks = [view.node_mask(c.region.nodes) for c in choices]
        self.writes = [view.tensor_mask(c.region.outputs) for c in choices]
        self.needs = [view.needs(mask) for mask in self.masks]
        self._known: dict[tuple[int, int, int], str] = {}

    def all(self) -> Iterator[Boundary]:
        """Group by group, tensor by tensor, reader by reader."""
        writer: dict[int, int] = {}
        for k, writes in enumerate(self.writes):
            for j in bits(writes):
                writer.setdefault(j, k)
        for k, writes in enumerate(self.writes):
            for j in bits(writes):
                if writer[j] == k:
                    yield from self._of_tensor(k, j)

    def _of_tensor(self, k: int, j: int) -> Iterator[Boundary]:
        name = self.view.tensors[j]
        if self.view.delivered >> j & 1:
            reason = "the graph delivers it"
            yield Boundary(group=k, tensor=name, reader=None, reason=reason)
        for r, needs in enumerate(self.needs):
            if needs >> j & 1:
                reason = self._reason(k, r, j)
                yield Boundary(group=k, tensor=name, reader=r, reason=reason)

    def _reason(self, k: int, r: int, j: int) -> str:
        if (k, r, j) not in self._known:
            self._known[k, r, j] = self._why_apart(k, r, j)
        return self._known[k, r, j]

    def _why_apart(self, k: int, r: int, j: int) -> str:
        writes = self._writes(k, r)
        part = self.view.trimmed(self.masks[k], 1 << j) | self.masks[r]
        alone = self.rules.judge(part, self.writes[r])
        if isinstance(alone, Refusal):
            return alone.reason
        mask = self.masks[k] | self.masks[r]
        family = self.rules.judge(mask, writes)
        if isinstance(family, Refusal):
            return family.reason
        if self._forms_a_ring(k, r, writes):
            return "another group lies between them"
        return self._comparison(k, r, mask, writes, family)

    def _writes(self, k: int, r: int) -> int:
        """What one group of both would write."""
        wanted = self.view.delivered
        for n, needs in enumerate(self.needs):
            if n not in (k, r):
                wanted |= needs
        return (self.writes[k] | self.writes[r]) & wanted

    def _forms_a_ring(self, k: int, r: int, writes: int) -> bool:
        rest = [n for n in range(len(self.masks)) if n not in (k, r)]
        needs = [self.needs[n] for n in rest]
        makes = [self.writes[n] for n in rest]
        needs.append(self.view.needs(self.masks[k] | self.masks[r]))
        return bool(runnable_order(needs, [*makes, writes])[1])

    def _comparison(
        self, k: int, r: int, mask: int, writes: int, family: Family
    ) -> str:
        families = [family]
        if family is Family.LIBRARY:
            own = self.rules.own_family(mask, writes)
            families += [own] if own is not None else []
        region = self.view.region(self.view.trimmed(mask, writes), writes)
        together = min(self.price(region, each) for each in families)
        if not math.isfinite(together):
            return "no kernel of ours runs both"
        apart = self.choices[k].seconds + self.choices[r].seconds
        more = together - apart
        if more > 0:
            return f"one kernel of both takes {1e6 * more:.2f} µs more"
        return (
            f"joining saves {-1e6 * more:.2f} µs, but is not in the candidate space, "
            "or other groups gain more"
        )


def ops_in_words(graph: Graph, choice: Choice, most: int = 12) -> str:
    """The operators of a group in order, equal neighbours counted."""
    names = [graph.by_name[name].op for name in choice.region.nodes]
    runs: list[tuple[str, int]] = []
    for name in names:
        if runs and runs[-1][0] == name:
            runs[-1] = (name, runs[-1][1] + 1)
        else:
            runs.append((name, 1))
    words = [name if count == 1 else f"{name} x{count}" for name, count in runs]
    more = len(words) - most
    return " ".join(words[:most]) + (f" +{more}" if more > 0 else "")
