"""Groups of primitives that ONNX Runtime has one operator for.

Models come apart into primitives; written one by one, a softmax would be five passes
over memory, and a clip behind a convolution would stop the runtime from fusing it and
from keeping channels in blocks. A group is written as one operator where nothing else
needs what it computes on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tuner.ir.graph import Graph, Node
from tuner.ir.inference import ints, whole
from tuner.ir.types import DType

_SWAPS: Final = frozenset({"add", "mul", "minimum", "maximum"})
_SAME: Final = 1e-6
"""Relative difference between a literal and the number that it stands for."""


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


Operand = str | float | Filled | Shaped
"""A tensor under its own shape, a scalar constant, or one of the two above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """One operator in place of a group of nodes.

    Attributes:
        nodes: names of the group's nodes; the last one makes the result.
        op_type: ONNX name.
        inputs: its operands.
        attributes: of the ONNX operator.
    """

    nodes: frozenset[str]
    op_type: str
    inputs: tuple[Operand, ...]
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class _Term:
    """A primitive whose operands match; `name` binds its result."""

    op: str
    args: tuple[_Pattern, ...]
    name: str = ""


_Pattern = str | float | _Term
"""A name stands for one tensor throughout, `#name` for one scalar constant."""


def _t(op: str, *args: _Pattern, name: str = "") -> _Term:
    return _Term(op, args, name)


@dataclass(frozen=True, slots=True)
class _Match:
    """What names stand for, and the nodes that were matched."""

    bound: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def with_name(self, name: str, tensor: str) -> _Match:
        if not name:
            return self
        return _Match({**self.bound, name: tensor}, self.nodes)


def _matches(
    graph: Graph, tensor: str, pattern: _Pattern, so_far: _Match
) -> Iterator[_Match]:
    """Every way in which a tensor is what a pattern says."""
    if isinstance(pattern, str):
        yield from _matches_name(graph, tensor, pattern, so_far)
        return
    if isinstance(pattern, float):
        value = scalar(graph, tensor)
        if value is not None and math.isclose(value, pattern, rel_tol=_SAME):
            yield so_far
        return
    node = graph.producer(tensor)
    if node is None or node.op != pattern.op:
        return
    begun = _Match(so_far.bound, (*so_far.nodes, node)).with_name(pattern.name, tensor)
    orders = [node.inputs]
    if node.op in _SWAPS:
        orders.append(node.inputs[::-1])
    for operands in orders:
        found: Iterator[_Match] = iter((begun,))
        for operand, inner in zip(operands, pattern.args, strict=True):
            found = _each(graph, operand, inner, found)
        yield from found


def _each(
    graph: Graph, tensor: str, pattern: _Pattern, given: Iterator[_Match]
) -> Iterator[_Match]:
    for one in given:
        yield from _matches(graph, tensor, pattern, one)


def _matches_name(
    graph: Graph, tensor: str, name: str, so_far: _Match
) -> Iterator[_Match]:
    known = so_far.bound.get(name)
    if name.startswith("#"):
        value = scalar(graph, tensor)
        same = known is None or value == scalar(graph, known)
        if value is not None and same:
            yield so_far.with_name(name, tensor)
    elif known is None or known == tensor:
        yield so_far.with_name(name, tensor)


def scalar(graph: Graph, tensor: str) -> float | None:
    """The value of a constant of one element."""
    array = graph.constants.get(tensor)
    if array is None or array.size != 1 or not graph.types[tensor].dtype.is_float:
        return None
    return float(array.reshape(()))


def _mean(of: _Pattern, name: str = "") -> _Term:
    return _t("div", _t("reduce_sum", of), "#count", name=name)


_APART: Final = _t("sub", "x", _mean("x", name="m"), name="d")
_SPREADS: Final = (
    _mean(_t("mul", "d", "d")),
    _mean(_t("pow", "d", 2.0)),
    _t("sub", _mean(_t("mul", "x", "x")), _t("mul", "m", "m")),
)
_SQUARES: Final = (_mean(_t("mul", "x", "x")), _mean(_t("pow", "x", 2.0)))


def _over_roots(top: _Pattern, spreads: tuple[_Term, ...]) -> Iterator[_Term]:
    for spread in spreads:
        root = _t("sqrt", _t("add", spread, "#epsilon"))
        yield _t("div", top, root)
        yield _t("mul", top, _t("reciprocal", root))


_NORMAL: Final = tuple(_over_roots(_APART, _SPREADS))
_SIMPLE: Final = tuple(_over_roots("x", _SQUARES))
_SOFTMAX: Final = _t(
    "div",
    _t("exp", _t("sub", "x", _t("reduce_max", "x")), name="e"),
    _t("reduce_sum", "e"),
)
_LOG_SOFTMAX: Final = _t(
    "sub",
    _t("sub", "x", _t("reduce_max", "x"), name="d"),
    _t("log", _t("reduce_sum", _t("exp", "d"))),
)
_ERF: Final = _t("add", _t("erf", _t("div", "x", math.sqrt(2))), 1.0)
_ERF_MUL: Final = _t("add", _t("erf", _t("mul", "x", math.sqrt(0.5))), 1.0)
_CUBES: Final = (_t("pow", "x", 3.0), _t("mul", "x", _t("mul", "x", "x")))
_TANHS: Final = tuple(
    _t(
        "add",
        _t(
            "tanh",
            _t(
                "mul", _t("add", "x", _t("mul", cube, 0.044715)), math.sqrt(2 / math.pi)
            ),
        ),
        1.0,
    )
    for cube in _CUBES
)


def _halves(gate: _Term) -> tuple[_Term, ...]:
    """Half of x times a gate, in any order."""
    return (
        _t("mul", "x", _t("mul", gate, 0.5)),
        _t("mul", _t("mul", "x", 0.5), gate),
        _t("mul", _t("mul", "x", gate), 0.5),
    )


Build = Callable[[Graph, _Match], "tuple[str, tuple[Any, ...], dict[str, Any]] | None"]


def _reductions(graph: Graph, match: _Match) -> tuple[int, ...] | None:
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
    def build(graph: Graph, match: _Match) -> Any:
        axes = _reductions(graph, match)
        if axes is None or len(axes) != 1:
            return None
        return op_type, (match.bound["x"],), {"axis": axes[0]}

    return build


def _normal(graph: Graph, match: _Match) -> Any:
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
    return "LayerNormalization", (bound["x"], *weights), attributes


def _simple(graph: Graph, match: _Match) -> Any:
    axes = _reductions(graph, match)
    bound = match.bound
    weights = _along_rows(graph, match, axes, [bound["w"]]) if axes else ()
    if axes is None or not weights:
        return None
    epsilon = scalar(graph, bound["#epsilon"])
    attributes = {"axis": -len(axes), "epsilon": epsilon}
    return "SimplifiedLayerNormalization", (bound["x"], *weights), attributes


def _along_rows(
    graph: Graph, match: _Match, axes: tuple[int, ...], names: list[str]
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


def _average(graph: Graph, match: _Match) -> Any:
    """The mean over all places, which runs on channels in blocks."""
    axes, x = _reductions(graph, match), match.bound["x"]
    rank = len(graph.types[x].static_shape)
    if axes is None or rank < 3 or axes != tuple(range(2, rank)):  # noqa: PLR2004
        return None
    return "GlobalAveragePool", (x,), {}


def _gelu(approximate: str) -> Build:
    def build(graph: Graph, match: _Match) -> Any:  # noqa: ARG001
        return "Gelu", (match.bound["x"],), {"approximate": approximate}

    return build


def _clip(graph: Graph, match: _Match) -> Any:
    low = match.bound.get("#low")
    least = 0.0 if low is None else scalar(graph, low)
    most = scalar(graph, match.bound["#high"])
    assert least is not None
    assert most is not None
    return ("Clip", (match.bound["x"], least, most), {}) if least <= most else None


def _table() -> Iterator[tuple[_Term, Build]]:
    yield _SOFTMAX, _soft("Softmax")
    yield _LOG_SOFTMAX, _soft("LogSoftmax")
    for core in _NORMAL:
        yield _t("add", _t("mul", core, "w"), "b"), _normal
        yield _t("mul", core, "w"), _normal
        yield core, _normal
    for core in _SIMPLE:
        yield _t("mul", core, "w"), _simple
    for gate in (_ERF, _ERF_MUL):
        for term in _halves(gate):
            yield term, _gelu("none")
    for gate in _TANHS:
        for term in _halves(gate):
            yield term, _gelu("tanh")
    yield _mean("x"), _average
    yield _t("minimum", _t("relu", "x"), "#high"), _clip
    yield _t("minimum", _t("maximum", "x", "#low"), "#high"), _clip


def _by_root() -> Mapping[str, tuple[tuple[_Term, Build], ...]]:
    found: dict[str, list[tuple[_Term, Build]]] = {}
    for term, build in _table():
        found.setdefault(term.op, []).append((term, build))
    return {op: tuple(rows) for op, rows in found.items()}


_ROWS: Final = MappingProxyType(_by_root())


def spellings(graph: Graph) -> Mapping[str, Spelling]:
    """Groups of nodes that are written as one operator, by the name of the last node.

    No node lies in two groups. What a group computes on the way is read by nobody
    else and delivered to nobody.
    """
    found: dict[str, Spelling] = {}
    taken: set[str] = set()
    for node in reversed(graph.nodes):
        if node.op not in _ROWS or node.name in taken:
            continue
        spelling = _spelled(graph, node, taken)
        if spelling is not None:
            found[node.name] = spelling
            taken |= spelling.nodes
    return found


def _spelled(graph: Graph, node: Node, taken: set[str]) -> Spelling | None:
    for term, build in _ROWS[node.op]:
        for match in _matches(graph, node.outputs[0], term, _Match()):
            names = frozenset(one.name for one in match.nodes)
            if names & taken or not _is_closed(graph, node, match, names):
                continue
            made = build(graph, match)
            if made is not None:
                op_type, inputs, attributes = made
                return Spelling(
                    nodes=names,
                    op_type=op_type,
                    inputs=tuple(inputs),
                    attributes=MappingProxyType(attributes),
                )
    return None


def _is_closed(graph: Graph, last: Node, match: _Match, names: frozenset[str]) -> bool:
    """Whether a group is of f32, and only its last result leaves it."""
    for node in match.nodes:
        out = node.outputs[0]
        if graph.types[out].dtype is not DType.F32:
            return False
        if node is last:
            continue
        readers = (reader.name for reader in graph.consumers.get(out, ()))
        if out in graph.outputs or not names.issuperset(readers):
            return False
    return True
