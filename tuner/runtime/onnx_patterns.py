"""Groups of primitives that ONNX Runtime has one operator for.

Models come apart into primitives; written one by one, a softmax would be five passes
over memory, and a clip behind a convolution would stop the runtime from fusing it and
from keeping channels in blocks. A group is written as one operator where nothing else
needs what it computes on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from onnx import defs

from tuner.ir.graph import Graph, Node
from tuner.ir.inference import ints, whole
from tuner.ir.types import DType
from tuner.runtime.onnx_attention import Attention, Laid, Mask, attentions
from tuner.runtime.terms import Match, Pattern, Term, matches, scalar, term

OWN_DOMAIN: Final = "com.microsoft"
"""Operators that are ONNX Runtime's own."""
_ATTENTION_OPSET: Final = 23
"""Of the standard, from which on it has an Attention."""
_SCORES_SHARE: Final = 4
"""ONNX Runtime's own MultiHeadAttention keeps no scores but copies its operands, the
standard's keeps scores and copies nothing. Measured on one core, the first is faster
from about four times as many scores as elements of operands on: 1.2 times for 32 x 32
places with heads of 8, and 0.6 times for 64 rows with heads of 32."""
_NORM: Final = "LayerNormalization"


@dataclass(frozen=True, slots=True)
class Filled:
    """A vector of equal numbers."""

    count: int
    value: float


@dataclass(frozen=True, slots=True)
class Shaped:
    """A tensor, read under a shape."""

    tensor: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Extents:
    """A vector of whole numbers: a shape, or axes."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """The first result of an earlier call of the same group."""

    call: int


Operand = str | float | Filled | Shaped | Extents | Made | None
"""A tensor under its own shape, a scalar constant, one of the above, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator of the library.

    Attributes:
        op_type: ONNX name.
        domain: of the name; that of the standard when empty.
        inputs: its operands.
        attributes: of the ONNX operator.
        results: tensors of the graph that it makes, in the operator's order, an empty
            name for one that the graph has no tensor for.
        since: opset of the standard that has the operator; older ones if 0.
    """

    op_type: str
    inputs: tuple[Operand, ...]
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    results: tuple[str, ...] = ("",)
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Few operators of the library in place of a group of nodes.

    Attributes:
        nodes: names of the group's nodes.
        op_type: ONNX name of the operator that computes.
        calls: that operator, and what brings its operands and result into form.
    """

    nodes: frozenset[str]
    op_type: str
    calls: tuple[Call, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """The tensors of the graph that the group makes."""
        return tuple(name for call in self.calls for name in call.results if name)


def _mean(of: Pattern, name: str = "") -> Term:
    return term("div", term("reduce_sum", of), "#count", name=name)


_APART: Final = term("sub", "x", _mean("x", name="m"), name="d")
_SPREADS: Final = (
    _mean(term("mul", "d", "d")),
    _mean(term("pow", "d", 2.0)),
    term("sub", _mean(term("mul", "x", "x")), term("mul", "m", "m")),
)
_SQUARES: Final = (_mean(term("mul", "x", "x")), _mean(term("pow", "x", 2.0)))


def _over_roots(top: Pattern, spreads: tuple[Term, ...]) -> Iterator[Term]:
    for spread in spreads:
        root = term("sqrt", term("add", spread, "#epsilon"), name="r")
        yield term("div", top, root)
        yield term("mul", top, term("reciprocal", root, name="i"))


_NORMAL: Final = tuple(_over_roots(_APART, _SPREADS))
_SIMPLE: Final = tuple(_over_roots("x", _SQUARES))
_SOFTMAX: Final = term(
    "div",
    term("exp", term("sub", "x", term("reduce_max", "x")), name="e"),
    term("reduce_sum", "e"),
)
_LOG_SOFTMAX: Final = term(
    "sub",
    term("sub", "x", term("reduce_max", "x"), name="d"),
    term("log", term("reduce_sum", term("exp", "d"))),
)
_ERF: Final = term("add", term("erf", term("div", "x", math.sqrt(2))), 1.0)
_ERF_MUL: Final = term("add", term("erf", term("mul", "x", math.sqrt(0.5))), 1.0)
_CUBES: Final = (term("pow", "x", 3.0), term("mul", "x", term("mul", "x", "x")))
_TANHS: Final = tuple(
    term(
        "add",
        term(
            "tanh",
            term(
                "mul",
                term("add", "x", term("mul", cube, 0.044715)),
                math.sqrt(2 / math.pi),
            ),
        ),
        1.0,
    )
    for cube in _CUBES
)


def _halves(gate: Term) -> tuple[Term, ...]:
    """Half of x times a gate, in any order."""
    return (
        term("mul", "x", term("mul", gate, 0.5)),
        term("mul", term("mul", "x", 0.5), gate),
        term("mul", term("mul", "x", gate), 0.5),
    )


Build = Callable[[Graph, Match], "tuple[str, tuple[Any, ...], dict[str, Any]] | None"]


def _reductions(graph: Graph, match: Match) -> tuple[int, ...] | None:
    """The axes that all reductions of a group share; None if they differ."""
    found = set()
    for node in match.nodes:
        if node.op.startswith("reduce_"):
            if not whole(node.attributes, "keepdims"):
                return None
            found.add(ints(node.attributes, "axes"))
    if len(found) != 1:
        return None
    axes: tuple[int, ...] = found.pop()
    count = match.bound.get("#count")
    shape = graph.types[match.bound["x"]].static_shape
    extent = math.prod(shape[axis] for axis in axes)
    return axes if count is None or scalar(graph, count) == extent else None


def _soft(op_type: str) -> Build:
    def build(graph: Graph, match: Match) -> Any:
        axes = _reductions(graph, match)
        if axes is None or len(axes) != 1:
            return None
        return op_type, (match.bound["x"],), {"axis": axes[0]}

    return build


def _normal(graph: Graph, match: Match) -> Any:
    """A layer norm with its weights, or an instance norm without."""
    axes = _reductions(graph, match)
    if axes is None:
        return None
    bound, epsilon = match.bound, scalar(graph, match.bound["#epsilon"])
    shape = graph.types[bound["x"]].static_shape
    if "w" not in bound:
        if axes != tuple(range(2, len(shape))):
            return None
        vectors = (Filled(shape[1], 1.0), Filled(shape[1], 0.0))
        return "InstanceNormalization", (bound["x"], *vectors), {"epsilon": epsilon}
    names = [bound[name] for name in ("w", "b") if name in bound]
    weights = _along_rows(graph, match, axes, names)
    if not weights:
        return None
    attributes = {"axis": -len(axes), "epsilon": epsilon}
    return _NORM, (bound["x"], *weights), attributes


def _simple(graph: Graph, match: Match) -> Any:
    axes = _reductions(graph, match)
    bound = match.bound
    weights = _along_rows(graph, match, axes, [bound["w"]]) if axes else ()
    if axes is None or not weights:
        return None
    epsilon = scalar(graph, bound["#epsilon"])
    attributes = {"axis": -len(axes), "epsilon": epsilon}
    return "SimplifiedLayerNormalization", (bound["x"], *weights), attributes


def _along_rows(
    graph: Graph, match: Match, axes: tuple[int, ...], names: list[str]
) -> tuple[Operand, ...]:
    """Weights that lie along the axes reduced, which are the last; else nothing."""
    whole_shape = graph.types[match.bound["x"]].static_shape
    rank, row = len(whole_shape), whole_shape[-len(axes) :]
    if axes != tuple(range(rank - len(axes), rank)):
        return ()
    shapes = [graph.types[name].static_shape for name in names]
    if any((1,) * (len(shape) - len(row)) + row != shape for shape in shapes):
        return ()
    return tuple(
        name if shape == row else Shaped(name, row)
        for name, shape in zip(names, shapes, strict=True)
    )


def _average(graph: Graph, match: Match) -> Any:
    """The mean over all places, which runs on channels in blocks."""
    axes, x = _reductions(graph, match), match.bound["x"]
    rank = len(graph.types[x].static_shape)
    if axes is None or rank < 3 or axes != tuple(range(2, rank)):  # noqa: PLR2004
        return None
    return "GlobalAveragePool", (x,), {}


def _gelu(approximate: str) -> Build:
    def build(graph: Graph, match: Match) -> Any:  # noqa: ARG001
        return "Gelu", (match.bound["x"],), {"approximate": approximate}

    return build


def _clip(graph: Graph, match: Match) -> Any:
    low = match.bound.get("#low")
    least = 0.0 if low is None else scalar(graph, low)
    most = scalar(graph, match.bound["#high"])
    assert least is not None
    assert most is not None
    return ("Clip", (match.bound["x"], least, most), {}) if least <= most else None


def _table() -> Iterator[tuple[Term, Build]]:
    yield _SOFTMAX, _soft("Softmax")
    yield _LOG_SOFTMAX, _soft("LogSoftmax")
    for core in _NORMAL:
        yield term("add", term("mul", core, "w"), "b"), _normal
        yield term("mul", core, "w"), _normal
        yield core, _normal
    for core in _SIMPLE:
        yield term("mul", core, "w"), _simple
    for gate in (_ERF, _ERF_MUL):
        for row in _halves(gate):
            yield row, _gelu("none")
    for gate in _TANHS:
        for row in _halves(gate):
            yield row, _gelu("tanh")
    yield _mean("x"), _average
    yield term("minimum", term("relu", "x"), "#high"), _clip
    yield term("minimum", term("maximum", "x", "#low"), "#high"), _clip


def _by_root() -> Mapping[str, tuple[tuple[Term, Build], ...]]:
    found: dict[str, list[tuple[Term, Build]]] = {}
    for row, build in _table():
        found.setdefault(row.op, []).append((row, build))
    return {op: tuple(rows) for op, rows in found.items()}


_ROWS: Final = MappingProxyType(_by_root())


def spellings(graph: Graph) -> Mapping[str, Spelling]:
    """Groups of nodes that are written as one operator, by the name of the last node.

    No node lies in two groups. What a group computes on the way is read by nobody
    else and delivered to nobody.
    """
    found: dict[str, Spelling] = {}
    taken: set[str] = set()
    for attention in attentions(graph):
        last = graph.producers[attention.result.tensor]
        if not attention.nodes & taken and _has_attention(graph):
            calls = attention_calls(graph, attention)
            found[last.name] = Spelling(
                nodes=attention.nodes, op_type="Attention", calls=calls
            )
            taken |= attention.nodes
    for node in reversed(graph.nodes):
        if node.op not in _ROWS or node.name in taken:
            continue
        spelling = _spelled(graph, node, taken)
        if spelling is not None:
            found[node.name] = spelling
            taken |= spelling.nodes
    return found


def _has_attention(graph: Graph) -> bool:
    """Whether no node asks for a standard that has no Attention yet."""
    opaque = [node for node in graph.nodes if node.op == "opaque"]
    return all(
        meaning(node)[1] >= _ATTENTION_OPSET or not differs(node, _ATTENTION_OPSET)
        for node in opaque
        if not meaning(node)[0]
    )


def meaning(opaque: Node) -> tuple[str, int]:
    """Domain, empty for the standard, and opset in which an opaque node is meant."""
    domain = str(opaque.attributes["domain"])
    opset = whole(opaque.attributes, "opset")
    return "" if domain == "ai.onnx" else domain, opset


def differs(opaque: Node, opset: int) -> bool:
    """Whether the standard's operator is another in an opset than in its own."""
    op_type = str(opaque.attributes["op_type"])
    try:
        theirs = defs.get_schema(op_type, meaning(opaque)[1]).since_version
        ours = defs.get_schema(op_type, opset).since_version
    except defs.SchemaError:
        return True
    return bool(theirs != ours)


def _spelled(graph: Graph, node: Node, taken: set[str]) -> Spelling | None:
    for row, build in _ROWS[node.op]:
        for match in matches(graph, node.outputs[0], row, Match()):
            if any(
                graph.types[n.outputs[0]].dtype is not DType.F32 for n in match.nodes
            ):
                continue
            made = build(graph, match)
            if made is None:
                continue
            op_type, inputs, attributes = made
            statistics = _statistics(graph, match) if op_type == _NORM else {}
            names = frozenset(one.name for one in (*match.nodes, *statistics.values()))
            leaks = _leaks(graph, node, names)
            if names & taken or not leaks <= statistics.keys():
                continue
            if leaks and _feeds_itself(graph, names):
                continue
            results = (node.outputs[0], *(n if n in leaks else "" for n in statistics))
            call = Call(
                op_type=op_type,
                inputs=tuple(inputs),
                attributes=MappingProxyType(attributes),
                results=results if leaks else results[:1],
            )
            return Spelling(nodes=names, op_type=op_type, calls=(call,))
    return None


def _statistics(graph: Graph, match: Match) -> dict[str, Node]:
    """What a layer norm can deliver on the way, mean first, and the node that makes it.

    The second is one over the deviation. Training keeps both for the way back; the
    reciprocal is then made from a deviation that nobody else reads.
    """
    names = {node.name for node in match.nodes}
    mean = graph.producers[match.bound["m"]]
    if "i" in match.bound:
        inverse = graph.producers[match.bound["i"]]
    else:
        root = match.bound["r"]
        readers = [n for n in graph.consumers.get(root, ()) if n.name not in names]
        if len(readers) != 1 or readers[0].op != "reciprocal":
            return {mean.outputs[0]: mean}
        (inverse,) = readers
    return {mean.outputs[0]: mean, inverse.outputs[0]: inverse}


def _leaks(graph: Graph, last: Node, names: frozenset[str]) -> set[str]:
    """What a group makes on the way that is read outside it, or delivered."""
    found = set()
    for name in names:
        out = graph.by_name[name].outputs[0]
        readers = (reader.name for reader in graph.consumers.get(out, ()))
        if name != last.name and (
            out in graph.outputs or not names.issuperset(readers)
        ):
            found.add(out)
    return found


def _feeds_itself(graph: Graph, names: frozenset[str]) -> bool:
    """Whether a group reads what depends on it, so that it cannot be one operator."""
    waiting = [
        operand
        for name in names
        for operand in graph.by_name[name].inputs
        if not _is_made_by(graph, operand, names)
    ]
    seen = set(waiting)
    while waiting:
        maker = graph.producer(waiting.pop())
        if maker is None:
            continue
        if maker.name in names:
            return True
        fresh = set(maker.inputs) - seen
        seen |= fresh
        waiting.extend(fresh)
    return False


def _is_made_by(graph: Graph, tensor: str, names: frozenset[str]) -> bool:
    maker = graph.producer(tensor)
    return maker is not None and maker.name in names


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
        since=_ATTENTION_OPSET,
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
