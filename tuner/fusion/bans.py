"""Kernels that a partition must not hold, beyond what legality says of one kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tuner.fusion.view import View, bits


class Ban(Protocol):
    """What is forbidden on one graph."""

    def allows(self, mask: int, outputs: int) -> bool:
        """Whether a kernel of these nodes that writes these tensors may be chosen."""

    def touches(self, mask: int) -> bool:
        """Whether some kernel among these nodes may be forbidden."""


class Restriction(Protocol):
    """A wish about kernels, before it meets a graph."""

    def on(self, view: View) -> Ban:
        """The same wish as masks of one graph."""


class _WorkingSet:
    """Kernels whose own tensors do not fit, whatever else lives beside them."""

    def __init__(self, view: View, spare_bytes: int) -> None:
        self._view = view
        self._spare_bytes = spare_bytes

    def allows(self, mask: int, outputs: int) -> bool:
        """What a kernel reads of others and writes lives while it runs."""
        return self._bytes(self._view.needs(mask) | outputs) <= self._spare_bytes

    def touches(self, mask: int) -> bool:
        """A part of the graph whose tensors all fit has no such kernel."""
        view = self._view
        touched = view.makes(mask)
        for i in bits(mask):
            touched |= view.reads[i]
        return self._bytes(touched) > self._spare_bytes

    def _bytes(self, tensors: int) -> int:
        inner = tensors & ~self._view.delivered
        return sum(self._view.bytes[j] for j in bits(inner))


class FitsIn:
    """No kernel whose own intermediate tensors take more than this many bytes.

    All that a kernel reads and writes lives at its launch, so no launch order of a plan
    with a forbidden kernel can do with less: the cut loses no plan that keeps the cap.
    """

    def __init__(self, spare_bytes: int) -> None:
        """Keep what is left beside graph inputs, weights and outputs."""
        self.spare_bytes = spare_bytes

    def on(self, view: View) -> Ban:
        """The same for one graph."""
        return _WorkingSet(view, self.spare_bytes)


class _Apart:
    """Kernels with some nodes that read some tensors and write some others."""

    def __init__(self, view: View, nodes: int, reads: int, writes: int) -> None:
        self._view = view
        self._nodes = nodes
        self._reads = reads
        self._writes = writes

    def allows(self, mask: int, outputs: int) -> bool:
        """A kernel that computes one of the tensors itself does not read it."""
        if not mask & self._nodes or self._writes & ~outputs:
            return True
        return bool(self._reads & ~self._view.needs(mask))

    def touches(self, mask: int) -> bool:
        """Only where the nodes are."""
        return bool(mask & self._nodes)


@dataclass(frozen=True, slots=True)
class Apart:
    """No kernel with one of some nodes reads and writes all of some tensors.

    With one tensor that is read: whoever needs it there computes it again, so it need
    not live until then. With several: they need not live at the same time.
    """

    nodes: frozenset[str]
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def on(self, view: View) -> Ban:
        """The same for one graph."""
        reads, writes = view.tensor_mask(self.reads), view.tensor_mask(self.writes)
        return _Apart(view, view.node_mask(self.nodes), reads, writes)
