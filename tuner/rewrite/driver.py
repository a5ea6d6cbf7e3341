"""The rules in their order, and the driver that applies them until none fires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS
from tuner.ir.verify import verify
from tuner.rewrite import constants, layout, pieces, pushes, scale
from tuner.rewrite.draft import Draft
from tuner.rewrite.hoist import Rewritten, hoist
from tuner.rewrite.rule import Rule, Value, View

_SWEEPS: Final = 64
"""More than any model has needed; rules only ever remove or simplify work."""


def _common(node: Node, view: View) -> Value | None:
    """The same work on the same tensors is done once."""
    return None if node.op == "opaque" else view.twin(node)


COMMON: Final = Rule(name="common-subexpression", ops=frozenset(), rewrite=_common)

RULES: Final[tuple[Rule, ...]] = (
    constants.FOLD,
    COMMON,
    constants.IDLE,
    constants.DECIDED,
    constants.CLAMP,
    constants.RELU,
    constants.POWER,
    constants.CAST,
    constants.UNDONE,
    constants.REPEATED,
    layout.RESHAPE,
    layout.TRANSPOSE,
    layout.TRANSPOSE_ACROSS_UNITS,
    layout.TRANSPOSE_ACROSS_MERGE,
    layout.SPLIT_BEHIND_TRANSPOSE,
    pushes.TRANSPOSE_AROUND_WORK,
    pushes.RESHAPE_AROUND_WORK,
    pushes.REDUCED_TRANSPOSE,
    layout.EXPAND,
    layout.EXPANDED_OPERAND,
    layout.EXPANDED_BATCH,
    layout.LEADING_UNITS,
    pieces.SLICE,
    pieces.SLICE_OF_CONCAT,
    pieces.SLICE_BEFORE_RESHAPE,
    pieces.SLICE_BEFORE_TRANSPOSE,
    pieces.CONCAT,
    pieces.WIDE_CONCAT,
    pieces.PAD,
    pieces.GATHER,
    layout.IDLE_REDUCTION,
    scale.SCALED_CONV,
    scale.SHIFTED_CONV,
    scale.SCALED_MATMUL,
    scale.SCALED_SUM,
    scale.SUMMED_SHIFTS,
    scale.SCALED_VIEW,
)
"""Every rewrite, in the order in which it is tried at a node."""


def simplify(graph: Graph, *, training: bool) -> Rewritten:
    """Simplify a graph and split off what can be computed once.

    The result depends neither on names nor on the order of the nodes handed in.

    Args:
        graph: a verified graph.
        training: keep every bit of every result, and take weights for values that
            change between runs.
    """
    simpler, fresh = rewrite(graph, [r for r in RULES if r.exact or not training])
    split = hoist(simpler, fresh=fresh, live_weights=training)
    verify(split.prepare)
    verify(split.graph)
    return split


def rewrite(graph: Graph, rules: Sequence[Rule]) -> tuple[Graph, frozenset[str]]:
    """Apply rules to a fixed point.

    Returns:
        The rewritten graph, and the tensors in it that the user does not know.
    """
    draft = Draft(graph)
    table = {op: [r for r in rules if not r.ops or op in r.ops] for op in OPS}
    for _ in range(_SWEEPS):
        fired = _sweep(draft, table, draft.order())
        if not fired:
            break
        while near := draft.take_touched():
            nodes = [node for node in draft.order() if node.name in near]
            if not _sweep(draft, table, nodes):
                break
    return draft.finish(), frozenset(draft.fresh)


def _sweep(
    draft: Draft, table: Mapping[str, Sequence[Rule]], nodes: Sequence[Node]
) -> bool:
    fired = False
    for seen in nodes:
        node: Node | None = draft.maker(seen.outputs[0])
        while node is not None and node.name == seen.name:
            if not _fire(draft, node, table[node.op]):
                break
            fired = True
            node = draft.maker(seen.outputs[0])
    return fired


def _fire(draft: Draft, node: Node, rules: Sequence[Rule]) -> bool:
    for rule in rules:
        value = rule.rewrite(node, draft)
        if value is not None:
            draft.rewrite(node, value, rule.name)
            return True
    return False
