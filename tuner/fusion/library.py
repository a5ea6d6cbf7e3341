"""What one library call can run: an anchor with the epilogue that its library fuses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from tuner.fusion.view import View, bits
from tuner.ir.graph import Node
from tuner.ir.inference import ints
from tuner.ir.ops import Pattern

ANCHORS: Final = frozenset({Pattern.CONTRACTION, Pattern.WINDOW})
_BIAS_OPS: Final = frozenset({"add", "sub"})
_GELU_OPS: Final = frozenset({"mul", "div", "add", "erf", "tanh", "pow"})
_GELU_NODES: Final = 10
KEPT_SINCE: Final[Mapping[str, int]] = MappingProxyType(
    {
        "ArgMax": 13,
        "ArgMin": 13,
        "Compress": 11,
        "CumSum": 14,
        "Einsum": 12,
        "GatherElements": 13,
        "GatherND": 13,
        "NonZero": 13,
        "OneHot": 11,
        "ScatterElements": 18,
        "ScatterND": 18,
        "TopK": 11,
        "Trilu": 14,
    }
)
"""Operators of the standard that mean the same from an opset on to that in which
library calls are written, so that they may stand in one call with others."""


def library_fault(
    view: View,
    mask: int,
    *,
    reference: bool,
    session: bool,
    max_anchors: int,
    anchors: int,
) -> str:
    """The first rule that a region with anchors breaks, or "".

    Args:
        view: the graph.
        mask: nodes of the region.
        reference: judge by the rules of the fusion patterns.
        session: the library runs any small graph; else cuBLAS and cuDNN.
        max_anchors: anchors that one session may hold.
        anchors: how many the region holds.
    """
    if session and not reference and mask == view.everything:
        return ""  # the whole graph is one session
    found = [i for i in bits(mask) if view.patterns[i] in ANCHORS]
    if anchors > 1 and (reference or not session or anchors > max_anchors):
        names = ", ".join(view.nodes[i].name for i in found)
        return f"{anchors} anchors in one kernel: {names}"
    if anchors > 1:
        return _chain_fault(view, mask, found)
    epilogue = Epilogue(view, mask, found[0], whole=reference)
    return epilogue.fault(reference=reference, session=session)


def _chain_fault(view: View, mask: int, anchors: list[int]) -> str:
    """Several anchors: everything else lies behind the same one, whichever it is.

    Not behind any of them: chains that share nothing gain nothing by sharing a session,
    and their sets would be most of those that a planner has to look at.
    """
    others = [i for i in bits(mask) if i not in anchors]
    if not any(all(view.above[i] >> one & 1 for i in others) for one in anchors):
        return "there is no anchor that everything else lies behind"
    return ""


class Epilogue:
    """The nodes around one anchor.

    Attributes:
        after: nodes that depend on it.
        before: nodes that it depends on.
        beside: the others.
    """

    def __init__(self, view: View, mask: int, anchor: int, *, whole: bool) -> None:
        """Sort the nodes of a region.

        Args:
            view: the graph.
            mask: nodes of the region.
            anchor: which node.
            whole: whether the user's node that the anchor is a part of counts as one.
        """
        self.view = view
        self.whole = whole
        self.mask = mask
        self.anchor = anchor
        self.after = self._reach(mask & ~(1 << anchor))
        self.before = self._feed()
        self.beside = mask & ~(self.after | self.before | 1 << anchor)

    def _reach(self, rest: int) -> int:
        """Nodes that depend on the anchor through the region alone."""
        found = 1 << self.anchor
        for i in bits(rest):
            if self.view.before[i] & found:
                found |= 1 << i
        return found & ~(1 << self.anchor)

    def _feed(self) -> int:
        """Nodes that the anchor depends on through the region alone."""
        found = 1 << self.anchor
        for i in reversed(list(bits(self.mask))):
            if self.view.after[i] & found and not self.after >> i & 1:
                found |= 1 << i
        own = self.view.nodes[self.anchor].composite
        if self.whole and own:
            found &= ~self.view.composites[own]
        return found & ~(1 << self.anchor)

    def fault(self, *, reference: bool, session: bool) -> str:
        """The first rule that a library call breaks, or ""."""
        found = self.surroundings_fault()
        if found:
            return found
        if self.before and (reference or not self._transposes_only(session)):
            return f"{self._name(self.anchor)}: has a prologue ({self._first_before()})"
        if not reference and not session:
            return self._fused_fault()
        return ""

    def surroundings_fault(self) -> str:
        """The first rule that any kernel of one anchor breaks, or ""."""
        return self._shape_fault() or self._beside_fault()

    def _shape_fault(self) -> str:
        view = self.view
        types = view.graph.types
        result = types[view.nodes[self.anchor].outputs[0]].elements
        for i in bits(self.after):
            if view.patterns[i] is Pattern.REDUCTION:
                return f"{self._name(i)}: a reduction cannot join an anchor"
            if view.patterns[i] is not Pattern.ELEMENTWISE:
                return f"{self._name(i)}: only pointwise nodes may follow an anchor"
            if types[view.nodes[i].outputs[0]].elements != result:
                return f"{self._name(i)}: does not keep the shape of the anchor"
        return ""

    def _beside_fault(self) -> str:
        """Other operands of the epilogue may be computed in the same kernel."""
        view = self.view
        for i in bits(self.beside):
            if view.patterns[i] is Pattern.REDUCTION:
                return f"{self._name(i)}: a reduction cannot join an anchor"
            if not self._leads_behind(i):
                return f"{self._name(i)}: does not feed the epilogue"
        return ""

    def _leads_behind(self, i: int) -> bool:
        reached = 1 << i
        for s in bits(self.mask & self.view.below[i]):
            if self.view.before[s] & reached:
                reached |= 1 << s
        own = self.view.nodes[self.anchor].composite
        inner = self.view.composites.get(own, 0) if self.whole else 0
        return bool(reached & (self.after | inner))

    def _transposes_only(self, session: bool) -> bool:
        """Matrix libraries read a transposed operand in place."""
        view = self.view
        for i in bits(self.before):
            node = view.nodes[i]
            inside = view.after[i] & self.mask
            if node.op != "transpose" or inside != 1 << self.anchor:
                return False
            if view.nodes[self.anchor].op != "matmul":
                return False
            if not session and not swaps_last_two(ints(node.attributes, "perm")):
                return False
        return True

    def _fused_fault(self) -> str:
        """What cuBLAS and cuDNN fuse: a bias or residual, then one activation.

        Source: cublasLtEpilogue_t (BIAS, RELU, and GELU by tanh), cuDNN's run-time
        fusion behind a product (`CUDNN_POINTWISE_GELU_FWD` by erf) and
        ConvolutionBiasActivationForward (bias, residual z, ReLU); windows fuse nothing.
        """
        view = self.view
        if view.patterns[self.anchor] is Pattern.WINDOW or self.beside:
            return f"{self._name(self.anchor)}: the library fuses nothing here"
        if self._leaks():
            return f"{self._name(self.anchor)}: the library writes one result"
        rest = self._without_addends()
        if rest and not self._is_activation(rest):
            names = ", ".join(self._name(i) for i in bits(rest))
            return f"{names}: not an epilogue that the library fuses"
        return ""

    def _leaks(self) -> bool:
        """Whether another node reads a value from the middle of the epilogue."""
        view = self.view
        group = self.after | 1 << self.anchor
        return sum(1 for i in bits(group) if not view.after[i] & group) > 1

    def _without_addends(self) -> int:
        """The epilogue behind the bias and residual additions."""
        view = self.view
        rest, at = self.after, self.anchor
        for _ in range(2):
            readers = view.after[at] & rest
            if readers.bit_count() != 1:
                break
            (i,) = bits(readers)
            if view.nodes[i].op not in _BIAS_OPS or view.after[at] & self.mask & ~(
                1 << i
            ):
                break
            rest &= ~(1 << i)
            at = i
        return rest

    def _is_activation(self, rest: int) -> bool:
        view = self.view
        ops = [view.nodes[i].op for i in bits(rest)]
        if ops == ["relu"]:
            return True
        if len(ops) > _GELU_NODES or not {"erf", "tanh"}.intersection(ops):
            return False
        scalars = all(
            math.prod(view.graph.types[name].static_shape) == 1
            for i in bits(rest)
            for name in view.given[i]
        )
        inside = rest | self.after | 1 << self.anchor
        closed = all(not view.before[i] & ~inside for i in bits(rest))
        return scalars and closed and _GELU_OPS.issuperset(ops)

    def _first_before(self) -> str:
        return ", ".join(self._name(i) for i in bits(self.before))

    def _name(self, i: int) -> str:
        return self.view.nodes[i].name


def is_kept(node: Node) -> bool:
    """Whether an opaque node may stand in one library call with others."""
    given = node.attributes
    since = KEPT_SINCE.get(str(given.get("op_type")))
    opset = given.get("opset")
    if since is None or given.get("domain") not in ("", "ai.onnx"):
        return False
    return isinstance(opset, int) and opset >= since


def swaps_last_two(perm: tuple[int, ...]) -> bool:
    """Whether a permutation transposes matrices and leaves their stack alone."""
    rank = len(perm)
    swapped = (*range(rank - 2), rank - 1, rank - 2)
    return rank > 1 and perm == swapped
