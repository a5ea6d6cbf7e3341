"""Groups of primitives that ONNX Runtime has one operator for.

Models come apart into primitives; written one by one, a softmax would be five passes
over memory, and a clip behind a convolution would stop the runtime from fusing it and
from keeping channels in blocks. A group is written as one operator where nothing else
needs what it computes on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from onnx import defs

from tuner.ir.graph import Graph, Node
from tuner.ir.inference import ints, whole
from tuner.ir.types import DType
from tuner.runtime.onnx_attention import attentions
from tuner.runtime.onnx_attention_calls import ATTENTION_OPSET, attention_calls
from tuner.runtime.onnx_calls import Call, Filled, Operand, Shaped, Spelling
from tuner.runtime.terms import Match, Pattern, Term, matches, scalar, term

_NORM: Final = "LayerNormalization"


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
        meaning(node)[1] >= ATTENTION_OPSET or not differs(node, ATTENTION_OPSET)
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
