"""Attention in a graph of primitives, told by what is computed.

softmax(scale Q K^T + mask) V, whatever lies between: scales on the scores or on either
operand, a mask that is added or selects, the guard that exporters put behind a softmax
against rows that are masked out whole, heads that share keys and values, and any
reshapes, transposes and expansions. Operands are named in the order in which they lie
in memory, so that no copy is made where the library reads that order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tuner.ir.graph import Graph, Node
from tuner.ir.inference import ints, whole
from tuner.ir.types import DType
from tuner.runtime.strided import Axes, Factors, contiguous, flat, regrouped, through
from tuner.runtime.terms import Match, matches, scalar, term

_VIEWS: Final = frozenset({"reshape", "transpose", "expand"})
_SCALES: Final = frozenset({"mul", "div"})
_MATRIX: Final = 2
"""Axes of a matrix: what lies before is batch."""
_RANK: Final = 4
"""Axes of a stack of scores: batch, heads, rows, keys."""
_ORDERS: Final = ("bsnh", "bnsh", *map("".join, itertools.permutations("bnsh")))
_HIDING: Final = -1e30
"""A score this low, put in place of others, hides them as minus infinity does."""
_SOFTMAX: Final = term(
    "div",
    term("exp", term("sub", "x", term("reduce_max", "x")), name="e"),
    term("reduce_sum", "e"),
)
_GUARD: Final = term("where", term("isnan", "p"), 0.0, "p")


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """An operand or the result: rows of several heads, in the order of a tensor.

    Attributes:
        tensor: its name.
        order: how batch (b), heads (n), rows (s) and depth (h) lie in it, the outermost
            first.
        extents: by those letters. Every run of the queries' heads shares one of these.
    """

    tensor: str
    order: str
    extents: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """What is added to the scores, or selects those that count.

    Attributes:
        tensor: its name.
        shape: its own, of four axes: batch, heads, rows, keys.
        stack: batch and heads of the scores.
        hides: where the mask is bool: what stands in place of scores where it is false.
    """

    tensor: str
    shape: tuple[int, ...]
    stack: tuple[int, int]
    hides: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """A group of nodes that is attention.

    Attributes:
        nodes: names of the group's nodes; what they make is read by them alone, but
            for the result.
        query, key, value: operands.
        result: what is made.
        scale: of the scores.
        mask: if there is one.
        is_guarded: whether rows that are masked out whole become zeros.
    """

    nodes: frozenset[str]
    query: Laid
    key: Laid
    value: Laid
    result: Laid
    scale: float
    mask: Mask | None
    is_guarded: bool


@dataclass(frozen=True, slots=True)
class _Way:
    """The nodes passed on the way back from a tensor, and what they did to it."""

    tensor: str
    nodes: tuple[Node, ...] = ()
    scale: float = 1.0
    mask: Mask | None = None

    def past(self, node: Node, tensor: str, scale: float = 1.0) -> _Way:
        return replace(
            self,
            tensor=tensor,
            nodes=(*self.nodes, node),
            scale=self.scale * scale,
        )


def attentions(graph: Graph) -> Iterator[Attention]:
    """The groups of a graph that are attention."""
    for node in graph.nodes:
        is_single = graph.types[node.outputs[0]].dtype is DType.F32
        if node.op == "matmul" and is_single:
            found = _attention(graph, node)
            if found is not None:
                yield found


def _attention(graph: Graph, last: Node) -> Attention | None:
    """The attention whose second product a node is."""
    soft, is_guarded = _softmax(graph, _past_reshapes(graph, _Way(last.inputs[0])))
    if soft is None or 0 in _shape(graph, soft.tensor):
        return None
    for scores in _scores(graph, soft):
        if scores.mask is None and is_guarded:
            continue
        for stack in _stacks(graph, soft.tensor, scores):
            found = _assembled(graph, last, scores, stack)
            if found is not None:
                return replace(found, is_guarded=is_guarded)
    return None


def _stacks(graph: Graph, soft: str, scores: _Way) -> Iterator[tuple[int, int]]:
    """Batch and heads of the scores: as their axes say, or as those of the queries do.

    Exporters that multiply stacks of matrices make one axis of both.
    """
    if scores.mask is not None:
        yield scores.mask.stack
        return
    batch, heads = _stack(_shape(graph, soft))
    product = scores.nodes[-1]
    if batch == 1:
        for way in reversed(_ways(graph, product, 0, is_scaled=True)):
            axes = _viewed(graph, way, product)
            factors = flat(axes[:-_MATRIX]) if axes else ()
            if len(factors) > 1 and heads % factors[0][0] == 0:
                yield factors[0][0], heads // factors[0][0]
    yield batch, heads


def _stack(shape: tuple[int, ...]) -> tuple[int, int]:
    """Batch and heads of a stack of matrices; without a batch that is one."""
    leading = shape[:-_MATRIX]
    return (
        (1, leading[0]) if len(leading) == 1 else (leading[0], math.prod(leading[1:]))
    )


def _shape(graph: Graph, tensor: str) -> tuple[int, ...]:
    return graph.types[tensor].static_shape


def _past_reshapes(graph: Graph, way: _Way) -> _Way:
    """Back over reshapes that leave the matrices as they are."""
    node = graph.producer(way.tensor)
    while node is not None and node.op == "reshape":
        before, after = _shape(graph, node.inputs[0]), _shape(graph, way.tensor)
        if len(before) < _MATRIX or before[-_MATRIX:] != after[-_MATRIX:]:
            break
        way = way.past(node, node.inputs[0])
        node = graph.producer(way.tensor)
    return way


def _softmax(graph: Graph, way: _Way) -> tuple[_Way | None, bool]:
    """Back over a softmax of rows, and a guard behind it."""
    guards = matches(graph, way.tensor, _GUARD, Match())
    guard = next(guards, None)
    if guard is not None:
        way = replace(way, tensor=guard.bound["p"], nodes=(*way.nodes, *guard.nodes))
    for match in matches(graph, way.tensor, _SOFTMAX, Match()):
        rank = len(_shape(graph, match.bound["x"]))
        reductions = [n for n in match.nodes if n.op.startswith("reduce_")]
        if rank > _MATRIX and all(
            ints(n.attributes, "axes") == (rank - 1,)
            and whole(n.attributes, "keepdims")
            for n in reductions
        ):
            nodes = (*way.nodes, *match.nodes)
            return _Way(match.bound["x"], nodes), guard is not None
    return None, False


def _scores(graph: Graph, way: _Way) -> Iterator[_Way]:
    """Every way from a softmax back over a matrix product: a mask, then scales."""
    way = _past_reshapes(graph, way)
    node = graph.producer(way.tensor)
    if node is None or graph.types[way.tensor].dtype is not DType.F32:
        return
    if node.op == "matmul":
        yield way.past(node, "")
    elif node.op in _SCALES:
        for tensor, scale in _scaled(graph, node):
            yield from _scores(graph, way.past(node, tensor, scale))
    elif node.op in ("add", "where") and not way.mask and way.scale == 1:
        for tensor, mask in _masked(graph, node):
            if _shape(graph, tensor) == _shape(graph, way.tensor):
                before = way.past(node, tensor)
                yield from _scores(graph, replace(before, mask=mask))


def _scaled(graph: Graph, node: Node) -> Iterator[tuple[str, float]]:
    """What a node multiplies by one number, and the number."""
    first, second = node.inputs
    pairs = (
        [(first, second)] if node.op == "div" else [(first, second), (second, first)]
    )
    for tensor, number in pairs:
        value = scalar(graph, number)
        if value is not None and _shape(graph, tensor) == _shape(
            graph, node.outputs[0]
        ):
            yield tensor, 1 / value if node.op == "div" else value


def _masked(graph: Graph, node: Node) -> Iterator[tuple[str, Mask]]:
    """What a node masks, and with what."""
    value: float | None = None
    if node.op == "add":
        first, second = node.inputs
        pairs = [(first, second), (second, first)]
    else:
        condition, kept, hidden = node.inputs
        value = scalar(graph, hidden)
        pairs = [(kept, condition)] if value is not None and value <= _HIDING else []
    rank = len(_shape(graph, node.outputs[0]))
    for tensor, mask in pairs:
        shape = (1,) * (rank - len(_shape(graph, mask))) + _shape(graph, mask)
        if rank in (3, 4):
            yield (
                tensor,
                Mask(
                    tensor=mask,
                    shape=(1,) * (_RANK - rank) + shape,
                    stack=_stack(_shape(graph, node.outputs[0])),
                    hides=value,
                ),
            )


def _assembled(
    graph: Graph, last: Node, scores: _Way, stack: tuple[int, int]
) -> Attention | None:
    """The attention between two products, if all of its operands can be named."""
    product = scores.nodes[-1]
    rows, keys = _shape(graph, product.outputs[0])[-_MATRIX:]
    depth = _shape(graph, product.inputs[0])[-1]
    wide = _shape(graph, last.outputs[0])[-1]
    query = _operand(graph, product, 0, (*stack, rows, depth), is_scaled=True)
    key = _operand(graph, product, 1, (*stack, keys, depth), is_scaled=True)
    value = _operand(graph, last, 1, (*stack, keys, wide))
    if query is None or key is None or value is None:
        return None
    scale = scores.scale * query.way.scale * key.way.scale
    if not 0 < scale < math.inf or key.heads != value.heads or query.heads != stack[1]:
        return None
    delivered = _delivered(graph, last, (*stack, rows, wide))
    if delivered is None:
        return None
    result, behind = delivered
    core = (*scores.nodes, last, *behind)
    nodes = _closed(graph, core, (query.way, key.way, value.way), result.tensor)
    if not nodes:
        return None
    return Attention(
        nodes=nodes,
        query=query.laid,
        key=key.laid,
        value=value.laid,
        result=result,
        scale=scale,
        mask=scores.mask,
        is_guarded=False,
    )


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand, and the way to it."""

    laid: Laid
    way: _Way

    @property
    def heads(self) -> int:
        return self.laid.extents["n"]


def _operand(
    graph: Graph,
    product: Node,
    place: int,
    extents: tuple[int, ...],
    *,
    is_scaled: bool = False,
) -> _Operand | None:
    """The tensor furthest back that an operand of a product is a view of.

    Args:
        graph: the graph.
        product: a matrix product.
        place: which operand.
        extents: batch, heads, rows and depth of the operand.
        is_scaled: whether factors may lie on the way: those of the scores.
    """
    ways = _ways(graph, product, place, is_scaled=is_scaled)
    is_turned = is_scaled and place == 1
    for way in reversed(ways):
        axes = _viewed(graph, way, product)
        laid = axes and _laid(way.tensor, axes, extents, is_turned=is_turned)
        if laid:
            return _Operand(laid, way)
    return None


def _ways(graph: Graph, product: Node, place: int, *, is_scaled: bool) -> list[_Way]:
    """Every way back from an operand over views and factors, the shortest first."""
    ways = [_Way(product.inputs[place])]
    node = graph.producer(ways[-1].tensor)
    while node is not None:
        before = _before(graph, node, is_scaled=is_scaled)
        if before is None:
            break
        ways.append(ways[-1].past(node, *before))
        node = graph.producer(ways[-1].tensor)
    return ways


def _before(graph: Graph, node: Node, *, is_scaled: bool) -> tuple[str, float] | None:
    """What a node is a view of, or a multiple, and by which factor."""
    if node.op in _VIEWS:
        return node.inputs[0], 1.0
    if is_scaled and node.op in _SCALES:
        return next(_scaled(graph, node), None)
    return None


def _viewed(graph: Graph, way: _Way, product: Node) -> Axes | None:
    """How the end of a way is seen from a product, with the batch of the product."""
    axes: Axes | None = contiguous(_shape(graph, way.tensor))
    for node in reversed(way.nodes):
        if axes is not None and node.op in _VIEWS:
            axes = through(graph, node, axes)
    if axes is None or len(axes) < _MATRIX:
        return None
    batch = _shape(graph, product.outputs[0])[:-_MATRIX]
    own = _shape(graph, way.nodes[0].outputs[0] if way.nodes else way.tensor)
    more = len(batch) - (len(own) - _MATRIX)
    shape, padded = (1,) * more + own, ((),) * more + axes
    spread = (
        axis if old == new else ((new, 0),)
        for old, new, axis in zip(shape, batch, padded, strict=False)
    )
    return (*spread, *axes[-_MATRIX:])


def _laid(
    tensor: str, axes: Axes, extents: tuple[int, ...], *, is_turned: bool
) -> Laid | None:
    """The order in which a tensor holds batch, heads, rows and depth, if it does."""
    stack = regrouped(axes[:-_MATRIX], extents[:_MATRIX])
    if stack is None:
        return None
    batch, heads = stack
    count = extents[1]
    if heads and heads[-1][1] == 0:
        count //= heads[-1][0]
        heads = heads[:-1]
    rows, depth = axes[-_MATRIX:][::-1] if is_turned else axes[-_MATRIX:]
    found = dict(zip("bnsh", (batch, heads, rows, depth), strict=True))
    sizes = {"b": extents[0], "n": count, "s": extents[2], "h": extents[3]}
    for order in _ORDERS:
        if _lies(found, sizes, order):
            return Laid(tensor=tensor, order=order, extents=sizes)
    return None


def _lies(axes: Mapping[str, Factors], extents: Mapping[str, int], order: str) -> bool:
    """Whether axes are those of a tensor that holds them in some order."""
    wanted = contiguous([extents[letter] for letter in order])
    return all(
        axes[letter] == factors for letter, factors in zip(order, wanted, strict=True)
    )


def _delivered(
    graph: Graph, last: Node, extents: tuple[int, ...]
) -> tuple[Laid, tuple[Node, ...]] | None:
    """The last view behind a product that lies in one of the two usual orders."""
    tensor, nodes = last.outputs[0], tuple[Node, ...]()
    axes: Axes | None = contiguous(_shape(graph, tensor))
    split = regrouped(axes, extents) if axes is not None else None
    if split is None:
        return None
    named = dict(zip("bnsh", split, strict=True))
    sizes = dict(zip("bnsh", extents, strict=True))
    found = Laid(tensor=tensor, order="bnsh", extents=sizes), nodes
    while axes is not None:
        for order in _ORDERS[:2]:
            if flat(axes) == flat(named[letter] for letter in order):
                found = Laid(tensor=tensor, order=order, extents=sizes), nodes
                break
        readers = graph.consumers.get(tensor, ())
        is_view = len(readers) == 1 and readers[0].op in ("reshape", "transpose")
        if tensor in graph.outputs or not is_view:
            break
        axes = through(graph, readers[0], axes)
        nodes, tensor = (*nodes, readers[0]), readers[0].outputs[0]
    return found


def _closed(
    graph: Graph, core: tuple[Node, ...], ways: Collection[_Way], result: str
) -> frozenset[str]:
    """The names of a group's nodes; none if somebody looks into it.

    Views and factors of operands that others read stay outside, too: the group reads
    what lies before them.
    """
    names = {node.name for node in core}
    delivered = set(graph.outputs)

    def is_inside(node: Node) -> bool:
        readers = (reader.name for reader in graph.consumers.get(node.outputs[0], ()))
        return node.outputs[0] not in delivered and names.issuperset(readers)

    if not all(is_inside(node) for node in core if node.outputs[0] != result):
        return frozenset()
    for node in itertools.chain.from_iterable(way.nodes for way in ways):
        if is_inside(node):
            names.add(node.name)
    return frozenset(names)
