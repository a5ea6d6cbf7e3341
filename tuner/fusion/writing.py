"""What a set of units may write as a kernel: every useful choice is a candidate."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.fusion.candidate import Breadth, Candidate
from tuner.fusion.legality import Refusal
from tuner.fusion.sets import Looked, Sets, Writes
from tuner.fusion.units import LIGHT
from tuner.fusion.view import bits, joined


class Writing:
    """Kernels of sets of units, by what they write."""

    def __init__(self, sets: Sets, *, exhaustive: bool, prologues: bool) -> None:
        """Start with nothing known.

        Args:
            sets: what is known of sets.
            exhaustive: whether every choice of outputs is of use.
            prologues: whether kernels may compute something in front of a contraction.
        """
        self._sets = sets
        self._rules = sets.rules
        self._view = sets.view
        self._units = sets.units
        self._exhaustive = exhaustive
        self._prologues = prologues
        self._made = [tuple(bits(made)) for made in self._view.made]
        self._behind = [self._view.above[i] | 1 << i for i in self._view.maker]

    def variants(self, looked: Looked, breadth: Breadth) -> Iterator[Candidate]:
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

    def _writes(self, looked: Looked) -> Writes:
        units, mask = looked.units, looked.mask
        exits = 0 if looked.is_convex else self._sets.exits(looked)
        nodes = self._units.nodes(units & ~exits) if exits else mask
        made = self._view.makes(nodes)
        if not self._exhaustive:
            made &= ~self._taken_in(units) | self._view.delivered
        wanted = self._view.wanted(mask) & made
        return Writes(
            wanted=wanted,
            choices=tuple(bits(self._optional(mask, wanted) & made)),
        )

    def _kernel(self, looked: Looked, outputs: int) -> Candidate | None:
        """A set that writes some tensors; None where it is of no use or not legal."""
        mask, family = looked.mask, looked.family
        kept = self._kept(mask, outputs, is_convex=looked.is_convex)
        if kept != mask and not self._holds_all(mask & ~kept, kept):
            return None
        if family is None or isinstance(self._rules.judge(mask, outputs), Refusal):
            return None
        needs = self._view.needs(kept)
        return Candidate(mask=kept, outputs=outputs, needs=needs, family=family)

    def _kept(self, mask: int, outputs: int, *, is_convex: bool) -> int:
        """`View.trimmed`; no path between nodes of a convex set leads out of it."""
        if not is_convex:
            return self._view.trimmed(mask, outputs)
        return joined(self._behind, outputs) & mask

    def _holds_all(self, dropped: int, kept: int) -> bool:
        """Whether no unit has lost all of its nodes."""
        masks, unit_of = self._units.masks, self._units.unit_of
        return all(masks[unit_of[i]] & kept for i in bits(dropped))

    def _taken_in(self, units: int) -> int:
        """Tensors of light work that a heavy kernel does for itself, not for others."""
        weights = self._units.weights
        members = list(bits(units))
        most = max([weights[u] for u in members])
        light = [u for u in members if weights[u] * LIGHT < most]
        if not light:
            return 0
        heavy = units & ~sum([1 << u for u in light])
        own = sum([1 << u for u in light if not self._units.above[u] & heavy])
        return self._view.makes(self._units.nodes(own))

    def _output_choices(self, writes: Writes, breadth: Breadth) -> Iterator[int]:
        wanted, choices = writes.wanted, writes.choices
        if self._exhaustive or len(choices) <= breadth.optional:
            for pick in range(1, 1 << len(choices)):
                yield sum(1 << choices[b] for b in bits(pick))
            return
        if wanted:
            yield wanted
        delivered = self._view.delivered
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
        view, inner = self._view, self._units.inner
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
