"""The calls that compute an attention, in the order in which least is copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tuner.ir.graph import Graph
from tuner.runtime.onnx_attention import Attention, Laid, Mask
from tuner.runtime.onnx_calls import OWN_DOMAIN, Call, Extents, Made, Operand, Shaped

ATTENTION_OPSET: Final = 23
"""Of the standard, from which on it has an Attention."""
_SCORES_SHARE: Final = 4
"""ONNX Runtime's own MultiHeadAttention keeps no scores but copies its operands, the
standard's keeps scores and copies nothing. Measured on one core, the first is faster
from about four times as many scores as elements of operands on: 1.2 times for 32 x 32
places with heads of 8, and 0.6 times for 64 rows with heads of 32."""


def attention_calls(graph: Graph, attention: Attention) -> tuple[Call, ...]:
    """The calls that compute an attention.

    Of three axes (batch, rows, heads and depth together) the operator makes no copy of
    what projections deliver, of four none of stacks of matrices; operands and result
    are brought into the order in which least is copied.
    """
    calls: list[Call] = []
    result, mask = attention.result, attention.mask
    order = _order(attention)
    operands = [
        _in_order(calls, laid, order)
        for laid in (attention.query, attention.key, attention.value)
    ]
    if mask is None:
        calls.append(_heart(attention, operands, order))
    else:
        rows, keys = attention.query.extents["s"], attention.key.extents["s"]
        added = _added(calls, mask)
        operands.append(_spread(calls, added, mask.shape, (rows, keys)))
        calls.append(_heart(attention, operands, order))
        if attention.is_guarded:
            made = replace(result, order=order)
            calls.extend(_guard(mask.shape, added, made, len(calls)))
    if order != result.order:
        calls.extend(_turned(result, order, len(calls)))
    shape = graph.types[result.tensor].static_shape
    calls.append(
        Call(
            op_type="Reshape",
            inputs=(Made(len(calls) - 1), Extents(shape)),
            results=(result.tensor,),
        )
    )
    return tuple(calls)


def _order(attention: Attention) -> str:
    """The order of axes in which the operator runs, so that least is copied."""
    laid = (attention.query, attention.key, attention.value, attention.result)

    def copied(order: str) -> int:
        return sum(math.prod(o.extents.values()) for o in laid if o.order != order)

    return min("bsnh", "bnsh", key=copied)


def _turned(result: Laid, order: str, start: int) -> tuple[Call, Call]:
    """What the call before makes, from the order that it has into the result's."""
    shape = Extents(tuple(result.extents[letter] for letter in order))
    perm = [order.index(letter) for letter in result.order]
    return (
        Call(op_type="Reshape", inputs=(Made(start - 1), shape)),
        Call(op_type="Transpose", inputs=(Made(start),), attributes={"perm": perm}),
    )


def _heart(attention: Attention, operands: list[Operand], order: str) -> Call:
    """The operator of an attention, of the two that the library has the faster."""
    query, key = attention.query.extents, attention.key.extents
    attributes: dict[str, Any] = {"scale": attention.scale}
    is_joined = order == "bsnh"
    if is_joined and len(operands) == 3 and _keeps_no_scores(query, key):  # noqa: PLR2004
        return Call(
            op_type="MultiHeadAttention",
            domain=OWN_DOMAIN,
            inputs=tuple(operands),
            attributes={**attributes, "num_heads": query["n"]},
        )
    if is_joined:
        attributes |= {"q_num_heads": query["n"], "kv_num_heads": key["n"]}
    return Call(
        op_type="Attention",
        inputs=tuple(operands),
        attributes=attributes,
        since=ATTENTION_OPSET,
    )


def _keeps_no_scores(query: Mapping[str, int], key: Mapping[str, int]) -> bool:
    """Whether scores are so many that it pays to copy operands; see `_SCORES_SHARE`."""
    scores = query["s"] * key["s"]
    operands = (query["s"] + 2 * key["s"]) * query["h"]
    return query["n"] == key["n"] and scores > _SCORES_SHARE * operands


def _in_order(calls: list[Call], laid: Laid, order: str) -> Operand:
    """An operand in the order asked for; with heads and depth as one axis in `bsnh`."""
    extents = laid.extents
    joined = [[letter] for letter in order]
    if order == "bsnh":
        joined = [["b"], ["s"], ["n", "h"]]
    shape = tuple(math.prod(extents[c] for c in letters) for letters in joined)
    if laid.order == order:
        return Shaped(laid.tensor, shape)
    calls.append(
        Call(
            op_type="Transpose",
            inputs=(
                Shaped(laid.tensor, tuple(extents[letter] for letter in laid.order)),
            ),
            attributes={"perm": [laid.order.index(letter) for letter in order]},
        )
    )
    if order == "bsnh":
        calls.append(
            Call(op_type="Reshape", inputs=(Made(len(calls) - 1), Extents(shape)))
        )
    return Made(len(calls) - 1)


def _added(calls: list[Call], mask: Mask) -> Operand:
    """What is added to the scores: itself, or minus so much where nothing is selected.

    A score is lost in a number so large, whose own unit is greater.
    """
    seen = Shaped(mask.tensor, mask.shape)
    if mask.hides is None:
        return seen
    calls.append(Call(op_type="Where", inputs=(seen, 0.0, mask.hides)))
    return Made(len(calls) - 1)


def _spread(
    calls: list[Call], added: Operand, shape: tuple[int, ...], last: tuple[int, int]
) -> Operand:
    """A mask that has every row and key."""
    if shape[2:] == last:
        return added
    full = (*shape[:2], *last)
    calls.append(Call(op_type="Expand", inputs=(added, Extents(full))))
    return Made(len(calls) - 1)


def _guard(
    shape: tuple[int, ...], added: Operand, result: Laid, start: int
) -> tuple[Call, ...]:
    """Zeros for rows of a result whose scores all become minus infinity.

    Args:
        shape: of the mask.
        added: to the scores.
        result: as the call before the first of these makes it.
        start: number of the first of these calls.
    """
    batch, heads, rows, _ = shape
    calls: list[Call] = []

    def call(op_type: str, *inputs: Operand, **attributes: Any) -> Made:
        calls.append(Call(op_type=op_type, inputs=inputs, attributes=attributes))
        return Made(start + len(calls) - 1)

    most = call("ReduceMax", added, Extents((3,)), keepdims=1)
    hidden = call("IsInf", most, detect_positive=0)
    made: Operand = Made(start - 1)
    if result.order == "bsnh" and heads == 1:
        hidden = call("Reshape", hidden, Extents((batch, rows, 1)))
    elif result.order == "bsnh":
        hidden = call("Transpose", hidden, perm=[0, 2, 1, 3])
        made = call("Reshape", made, Extents(tuple(result.extents[c] for c in "bsnh")))
    call("Where", hidden, 0.0, made)
    return tuple(calls)
