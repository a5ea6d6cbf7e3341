"""What one generated kernel can run around a contraction or a window."""

from __future__ import annotations

from tuner.fusion.library import ANCHORS, Epilogue
from tuner.fusion.view import View, bits, homes
from tuner.ir.graph import Graph
from tuner.ir.ops import Pattern
from tuner.plan import Family

MATRIX_RANK = 2
_MOVABLE = frozenset({Pattern.ELEMENTWISE, Pattern.INJECTIVE})


def contraction_fault(view: View, mask: int) -> str:
    """The first rule that a region with one anchor breaks, or "".

    One contraction; in front of one of its operands element-wise and layout nodes;
    behind it element-wise nodes that keep its number of elements; their other operands
    may be computed by element-wise and layout nodes. In front of a window nothing: its
    elements would be computed once for every window that they lie in.
    """
    anchors = [i for i in bits(mask) if view.patterns[i] in ANCHORS]
    names = ", ".join(view.nodes[i].name for i in anchors)
    around = _around(view, mask)
    if view.patterns[anchors[0]] is Pattern.WINDOW and around.before:
        return f"{names}: what a window reads must be in memory"
    return around.surroundings_fault() or _prologue_fault(view, around)


def own_family(view: View, mask: int) -> Family:
    """Which of our families runs a region with one anchor."""
    anchor = next(i for i in bits(mask) if view.patterns[i] in ANCHORS)
    is_window = view.patterns[anchor] is Pattern.WINDOW
    return Family.WINDOW if is_window else Family.CONTRACTION


def written_fault(view: View, mask: int, outputs: int) -> str:
    """Why a kernel of a legal region cannot write these tensors, or ""."""
    behind = 0
    for anchor in bits(mask):
        if view.patterns[anchor] in ANCHORS:
            around = Epilogue(view, mask, anchor, whole=False)
            behind |= view.makes(around.after | 1 << anchor)
    for j in bits(outputs & ~behind):
        name = view.nodes[view.maker[j]].name
        return f"{name}: computed beside a contraction, but not to be written"
    return ""


def parallel_contractions(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Products with weights that read the same tensor, by node, in graph order.

    Q, K and V of an attention; gate and up of a gated layer: `tuner.fusion.merged` says
    when one kernel runs them.
    """
    home = homes(graph)
    fixed = {*graph.weights, *graph.constants}
    found: dict[tuple[str, int], list[str]] = {}
    for node in graph.nodes:
        if node.op != "matmul" or home[node.inputs[1]] not in fixed:
            continue
        shape = graph.types[node.inputs[1]].shape
        if len(shape) == MATRIX_RANK and isinstance(shape[0], int):
            key = (home[node.inputs[0]], shape[0])
            found.setdefault(key, []).append(node.name)
    return tuple(tuple(names) for names in found.values() if len(names) > 1)


def has_prologue(view: View, mask: int) -> bool:
    """Whether a legal region computes an operand of a contraction."""
    return bool(_around(view, mask).before)


def _around(view: View, mask: int) -> Epilogue:
    anchor = next(i for i in bits(mask) if view.patterns[i] in ANCHORS)
    return Epilogue(view, mask, anchor, whole=False)


def _prologue_fault(view: View, around: Epilogue) -> str:
    anchor = view.nodes[around.anchor]
    for i in bits(around.before):
        if view.patterns[i] not in _MOVABLE:
            return f"{view.nodes[i].name}: cannot be computed for each tile again"
    operands = [name for name in anchor.inputs if _feeding(view, name) & around.before]
    if len(operands) > 1:
        return f"{anchor.name}: a prologue on {len(operands)} operands"
    return ""


def _feeding(view: View, tensor: str) -> int:
    """All nodes that a tensor depends on."""
    node = view.graph.producer(view.home[tensor])
    if node is None:
        return 0
    i = view.index[node.name]
    return view.above[i] | 1 << i
