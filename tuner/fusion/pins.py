"""What a user wants of a partition: pairs of nodes, and kernels that are banned."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.bans import Ban
from tuner.fusion.legality import Refusal, Rules
from tuner.plan import Pin


class Pins:
    """The user's pins and bans as masks.

    Attributes:
        together: node masks of pairs that must share a kernel.
        apart: node masks of pairs that must not.
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
        masks = [(pin, self._mask(rules, pin)) for pin in pins]
        self.together = tuple(mask for pin, mask in masks if pin.fuse)
        self.apart = tuple(mask for pin, mask in masks if not pin.fuse)

    def _mask(self, rules: Rules, pin: Pin) -> int:
        view = rules.view
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
        if any(mask & pair == pair for pair in self.apart):
            return False
        return all(ban.allows(mask, outputs) for ban in self._bans)

    def keep(self, kernels: Sequence[tuple[int, int]]) -> bool:
        """Whether kernels, each with what it writes, are as the user wishes."""
        return all(self.allow(*kernel) for kernel in kernels) and all(
            any(mask & pair == pair for mask, _ in kernels) for pair in self.together
        )

    def touch(self, mask: int) -> bool:
        """Whether some pin or ban speaks about these nodes."""
        if any(mask & pair for pair in (*self.together, *self.apart)):
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
