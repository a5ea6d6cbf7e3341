"""Products that read the same operand, merged into one kernel.

Q, K and V of an attention, gate and up of a gated layer: the grid is made of the
column tiles of all products, one product after the other. The operand that they share
comes from main memory once, and there is one launch.

A library does the same for products of equal shape in one batched call
(`cublasLtMatmul` with a batch of pointers; a bias has a batch stride of its own, so the
biases lie one after the other), and for products of any shape without epilogues in one
grouped call (`cublasGemmGroupedBatchedEx`, cuBLAS 12.5).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tuner.fusion.contraction import contraction_fault
from tuner.fusion.library import ANCHORS, Epilogue
from tuner.fusion.view import View, bits

MATRIX_RANK: Final = 2


def merged_fault(view: View, mask: int) -> str:
    """The first rule that several products in one kernel of ours break, or "".

    All read the same left operand, in the same shape, from memory; their right operands
    are matrices from memory. Each has an epilogue of its own, in which no other product
    takes part.
    """
    fault, parts = parts_of(view, mask)
    return fault or next(
        (found for part in parts if (found := contraction_fault(view, part))), ""
    )


def merged_library_fault(view: View, mask: int) -> str:
    """The first rule that several products in one library call break, or "".

    Beside the rules for kernels of ours: no product has an epilogue, or all have the
    same one, shapes and all, with weights as its operands.
    """
    fault, parts = parts_of(view, mask)
    if fault:
        return fault
    for part in parts:
        anchor = next(i for i in bits(part) if view.patterns[i] in ANCHORS)
        around = Epilogue(view, part, anchor, whole=False)
        fault = around.fault(reference=False, session=False)
        if fault:
            return fault
    if all(part & (part - 1) == 0 for part in parts):
        return ""
    return _unequal(view, parts)


def parts_of(view: View, mask: int) -> tuple[str, Sequence[int]]:
    """The products of a kernel with what belongs to each; first, why they are none."""
    anchors = [i for i in bits(mask) if view.patterns[i] in ANCHORS]
    fault = _operand_fault(view, mask, anchors)
    if fault:
        return fault, ()
    parts, covered = [], 0
    for anchor in anchors:
        part = _part(view, mask, anchor)
        others = [i for i in bits(part) if i in anchors and i != anchor]
        if others:
            names = f"{view.nodes[anchor].name} and {view.nodes[others[0]].name}"
            return f"{names}: one epilogue cannot take two products", ()
        parts.append(part)
        covered |= part
    alone = mask & ~covered
    if alone:
        return f"{view.nodes[next(bits(alone))].name}: belongs to no product", ()
    return "", parts


def _operand_fault(view: View, mask: int, anchors: Sequence[int]) -> str:
    """Whether some nodes are products of one tensor with matrices from memory."""
    nodes = [view.nodes[i] for i in anchors]
    names = ", ".join(node.name for node in nodes)
    if any(node.op != "matmul" for node in nodes):
        return f"{len(nodes)} anchors in one kernel: {names}"
    types = view.graph.types
    if len({(view.home[n.inputs[0]], types[n.inputs[0]].shape) for n in nodes}) > 1:
        return f"{len(nodes)} anchors in one kernel, of different tensors: {names}"
    if view.tensor_mask([view.home[nodes[0].inputs[0]]]) & view.makes(mask):
        return f"{names}: what merged products read must be in memory"
    for node in nodes:
        right = node.inputs[1]
        if len(types[right].shape) != MATRIX_RANK or view.home[right] in view.place:
            return f"{node.name}: is merged only where it multiplies by weights"
    return ""


def _part(view: View, mask: int, anchor: int) -> int:
    """An anchor, what depends on it, and what that needs, within a mask."""
    part = 1 << anchor
    for i in bits(mask):
        if view.before[i] & part:
            part |= 1 << i
    return view.trimmed(mask, view.makes(part))


def _unequal(view: View, parts: Sequence[int]) -> str:
    """Whether epilogues differ, or take more than weights."""
    first, *others = (view.structure(part, 0) for part in parts)
    for part, structure in zip(parts[1:], others, strict=True):
        if structure != first:
            name = view.nodes[next(bits(part))].name
            return f"{name}: one library call runs the same epilogue for all products"
    fixed = {*view.graph.weights, *view.graph.constants}
    for part in parts:
        for i in bits(part):
            if view.patterns[i] in ANCHORS:
                continue
            if not fixed.issuperset(view.given[i]) or view.before[i] & ~part:
                return f"{view.nodes[i].name}: takes more than weights"
    return ""
