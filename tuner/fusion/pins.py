"""What a user wants of a partition: pairs of nodes, and kernels that are banned."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.bans import Ban
from tuner.fusion.legality import Refusal, Rules
from tuner.fusion.view import View
from tuner.plan import Pin


class Pins:
    """The user's pins and bans as masks.

    Nodes are kept apart as the user knows them: a node that was taken apart shares no
    kernel with any part of the other one. Two parts of one node are kept apart as such.

    Attributes:
        together: node masks of pairs that must share a kernel.
        apart: pairs of node masks of which no kernel may hold nodes of both.
    """

    def __init__(
        self, rules: Rules, pins: Sequence[Pin], bans: Sequence[Ban] = ()
    ) -> None:
        """Check the pins.

        Raises:
            ConstraintsUnsatisfiable: a node is unknown, or two nodes that must share a
                kernel never can.
        """
        self._rules = rules
        self._pins = tuple(pins)
        self._bans = tuple(bans)
        masks = [(pin, self._mask(rules.view, pin)) for pin in pins]
        self.together = tuple(mask for pin, mask in masks if pin.fuse)
        self.apart = tuple(_sides(rules.view, pin) for pin in pins if not pin.fuse)
        self._apart = 0
        for first, second in self.apart:
            self._apart |= first | second

    @staticmethod
    def _mask(view: View, pin: Pin) -> int:
        for name in pin.nodes:
            if name not in view.graph.by_name:
                raise ConstraintsUnsatisfiable(name, "a pin names an unknown node")
            if name not in view.index:
                raise ConstraintsUnsatisfiable(
                    name, "a pin names a view, which has no kernel of its own"
                )
        if pin.nodes[0] == pin.nodes[1]:
            raise ConstraintsUnsatisfiable(
                pin.nodes[0], "a pin names one node twice", hint="name two nodes"
            )
        return view.node_mask(pin.nodes)

    def allow(self, mask: int, outputs: int) -> bool:
        """Whether a kernel is not banned and keeps apart what must be apart."""
        if any(mask & first and mask & second for first, second in self.apart):
            return False
        return all(ban.allows(mask, outputs) for ban in self._bans)

    def keep(self, kernels: Sequence[tuple[int, int]]) -> bool:
        """Whether kernels, each with what it writes, are as the user wishes."""
        return all(self.allow(*kernel) for kernel in kernels) and all(
            any(mask & pair == pair for mask, _ in kernels) for pair in self.together
        )

    def touch(self, mask: int) -> bool:
        """Whether some pin or ban speaks about these nodes."""
        if mask & self._apart or any(mask & pair for pair in self.together):
            return True
        return any(ban.touches(mask) for ban in self._bans)

    def demand(self, mask: int) -> bool:
        """Whether some of these nodes must share a kernel."""
        return any(mask & pair for pair in self.together)

    def demands(self, masks: Sequence[int], inside: int) -> list[list[int]]:
        """For each pair that must share a kernel, which kernels hold both."""
        return [
            [k for k, mask in enumerate(masks) if mask & pair == pair]
            for pair in self.together
            if inside & pair == pair
        ]

    def error(self) -> ConstraintsUnsatisfiable:
        """The error for pins that leave no partition."""
        words = ", ".join(
            f"{'fuse' if p.fuse else 'keep apart'} {p.nodes[0]} and {p.nodes[1]}"
            for p in self._pins
        )
        reasons = "; ".join(self._reasons())
        hint = f"alone they cannot: {reasons}" if reasons else "take a pin away"
        return ConstraintsUnsatisfiable(
            "pins", f"no legal partition can {words}", hint=hint
        )

    def _reasons(self) -> list[str]:
        answers = [self._rules.family(mask) for mask in self.together]
        return [answer.reason for answer in answers if isinstance(answer, Refusal)]


def _sides(view: View, pin: Pin) -> tuple[int, int]:
    """Both nodes of a pin, each with all parts of the user's node that it is one of."""
    alone = tuple(view.node_mask([name]) for name in pin.nodes)
    owners = [view.graph.by_name[name].composite for name in pin.nodes]
    first, second = (
        view.composites[owner] if owner else mask
        for owner, mask in zip(owners, alone, strict=True)
    )
    return (alone[0], alone[1]) if first & second else (first, second)
