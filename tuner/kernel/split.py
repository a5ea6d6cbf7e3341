"""Reductions in two launches: parts of rows first, then what the parts gave.

A team of threads walks along each row, so a kernel of few long rows keeps few
multiprocessors busy, and a sum over all elements one. Here the axis that is reduced is
cut into parts. The first launch reduces each part as a row of its own, with all that is
computed in front, and writes partial results to scratch memory; the second reduces
those, and computes what comes behind. Both are made from graphs of their own, so all
that lowers, counts, schedules and renders kernels holds for them.

Two launches, and not one whose last block combines: that block has to see what others
wrote before they raised a counter. OpenCL 1.2 orders the memory of work-groups at the
end of a kernel alone (specification, 3.3.1), while launches of one queue are ordered
everywhere. There are no atomic sums either: partial results are always put together in
the same order, so equal inputs give equal bits.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tuner.ir.graph import Graph, Node
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.errors import CannotLower
from tuner.kernel.frames import Segment, is_empty, pattern_of
from tuner.kernel.held import ACCUMULATED, HELD, identity
from tuner.kernel.lower import loops as loops_of
from tuner.kernel.lower import lower
from tuner.plan import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.ir.types import DType, TensorType
    from tuner.kernel.nest import LoopNest

PARTS: Final = "parts"
"""The knob that says into how many parts rows are cut, at most; 1 is not at all."""
COMBINE: Final = "combine_"
"""What the knobs of the second launch begin with."""
KNOBS: Final = (
    "lanes",
    "persistent",
    "repeat",
    "stream",
    "threads",
    "unroll",
    "vector",
)
"""Knobs of reductions; where a kind of reduction does not have one it is 0, so that
all schedules of a space have the same."""
SCRATCH: Final = "~part"
"""What the names of partial results begin with; no tensor of a graph is called so."""

ALIGNED: Final = 64
"""Elements to whose multiples the lengths of parts are rounded up."""
LEAST_ALIGNED: Final = 1024
"""Shorter parts are not rounded: too much of the last would be missing."""

Launch = tuple["LoopNest", Schedule]


def is_split(schedule: Schedule) -> bool:
    """Whether a kernel with this schedule is two launches."""
    return schedule.as_dict.get(PARTS, 1) > 1


def is_scratch(tensor: str) -> bool:
    """Whether launches of a kernel hand a tensor to each other."""
    return tensor.startswith(SCRATCH)


def joined(parts: int, first: Schedule, second: Schedule) -> Schedule:
    """The schedule of a kernel of two launches."""
    behind = {f"{COMBINE}{knob}": second.as_dict.get(knob, 0) for knob in KNOBS}
    return Schedule.of(**{PARTS: parts}, **_filled(first), **behind)


def uncut(schedule: Schedule) -> Schedule:
    """A schedule of one launch with the knobs of split ones, beside which it stands."""
    behind = dict.fromkeys((f"{COMBINE}{knob}" for knob in KNOBS), 0)
    return Schedule.of(**{PARTS: 1}, **_filled(schedule), **behind)


def _filled(schedule: Schedule) -> dict[str, int]:
    return {**dict.fromkeys(KNOBS, 0), **schedule.as_dict}


def launches(nest: LoopNest, schedule: Schedule) -> tuple[Launch, ...]:
    """The launches of a kernel, in order, each as a kernel of its own.

    Raises:
        CannotLower: the schedule is split, and the kernel cannot be.
    """
    if not is_split(schedule):
        return ((nest, schedule),)
    knobs = schedule.as_dict
    behind = {
        knob.removeprefix(COMBINE): value
        for knob, value in knobs.items()
        if knob.startswith(COMBINE)
    }
    ahead = {
        knob: value
        for knob, value in knobs.items()
        if knob != PARTS and not knob.startswith(COMBINE)
    }
    first, second = halves(nest, knobs[PARTS])
    return (first, Schedule.of(**ahead)), (second, Schedule.of(**behind))


def halves(nest: LoopNest, parts: int) -> tuple[LoopNest, LoopNest]:
    """The loop nests of both launches, lowered once for each number of parts.

    Raises:
        CannotLower: the kernel cannot be cut like that.
    """
    known = nest.known_halves
    if parts not in known:
        if nest.graph is None:
            raise CannotLower("split", "the graph of this loop nest is not known")
        first, second = halved(nest.graph, parts)
        known[parts] = (lower(first), lower(second))
    return known[parts]


def reduced_axis(graph: Graph) -> int:
    """Extent of the axis that is cut: the longest that a kernel reduces over.

    Raises:
        CannotLower: no kernel of two launches can compute the graph.
    """
    return max(cut.extent for cut in _cuts(graph).values())


def halved(graph: Graph, parts: int) -> tuple[Graph, Graph]:
    """The graphs of both launches.

    Args:
        graph: a kernel's own.
        parts: into how many parts the longest reduced axis is cut; fewer where the
            last would be left without elements. Loops side by side have parts of equal
            length: shorter ones fewer, and the shortest none.

    Returns:
        what delivers partial results, and outputs that need no finished result; and
        what makes the other outputs of them.

    Raises:
        CannotLower: a value of each element reads a finished result, a reduction reads
            one, or a type has no number that changes nothing to fill the last part.
    """
    cuts = _cuts(graph)
    behind = _behind(graph)
    length = part_length(max(cut.extent for cut in cuts.values()), parts)
    first, second = _Half(graph), _Half(graph)
    for node in graph.nodes:
        if node.outputs[0] not in behind:
            first.keep(node)
            second.keep(node)
        elif node.name in cuts:
            partial = _partial(first, node, cuts[node.name], length)
            second.give(partial, first.types[partial])
            _combine(second, node, partial, cuts[node.name], length)
        else:
            second.keep(node)
    early = tuple(name for name in graph.outputs if name not in behind)
    late = tuple(name for name in graph.outputs if name in behind)
    return first.graph((*first.partials, *early)), second.graph(late)


def part_length(extent: int, parts: int) -> int:
    """How long each part is but the last, which is no longer.

    Long parts that do not divide the axis begin where the vectors of rows do.
    """
    length = -(-extent // parts)
    if extent % parts and length >= LEAST_ALIGNED:
        length = -(-length // ALIGNED) * ALIGNED
    return length


def _is_reduction(node: Node) -> bool:
    return OPS[node.op].pattern is Pattern.REDUCTION


class _Cut(NamedTuple):
    """How the rows of a reduction lie, and which axis of them is cut."""

    pattern: tuple[Segment, ...]
    axis: int

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape of what is reduced, with neighbouring axes merged."""
        return tuple(segment.extent for segment in self.pattern)

    @property
    def extent(self) -> int:
        """Of the axis that is cut."""
        return self.pattern[self.axis].extent


def _cuts(graph: Graph) -> dict[str, _Cut]:
    """The cut of every reduction, by its name."""
    reductions = [node for node in graph.nodes if _is_reduction(node)]
    if not reductions or any(is_empty(node, graph) for node in reductions):
        raise CannotLower("split", "there are no elements to reduce")
    patterns = {node.name: pattern_of(node, graph) for node in reductions}
    loops = loops_of(graph) if len({*patterns.values()}) > 1 else ()
    for loop in loops:
        if len({patterns[node.name] for node in loop if node.name in patterns}) > 1:
            raise CannotLower("split", "reductions over different rows")
    if not all(any(s.reduced for s in pattern) for pattern in patterns.values()):
        raise CannotLower("split", "rows of one element have no parts")
    _check_behind(graph)
    return {name: _Cut(p, _longest(p)) for name, p in patterns.items()}


def _longest(pattern: Sequence[Segment]) -> int:
    reduced = [at for at, segment in enumerate(pattern) if segment.reduced]
    return max(reduced, key=lambda at: pattern[at].extent)


def _behind(graph: Graph) -> set[str]:
    """Tensors that depend on a reduced value."""
    found: set[str] = set()
    for node in graph.nodes:
        if _is_reduction(node) or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found


def _check_behind(graph: Graph) -> None:
    """Every value behind the reductions is one of whole rows, and none is reduced."""
    rows: dict[str, int] = {}
    for node in graph.nodes:
        out = node.outputs[0]
        near = [rows[name] for name in node.inputs if name in rows]
        if _is_reduction(node):
            if near:
                raise CannotLower(node.name, "reduces what is made of reduced values")
            rows[out] = graph.types[out].elements
        elif near:
            if graph.types[out].elements > max(near):
                raise CannotLower(
                    node.name, "elements need the finished result of a row"
                )
            rows[out] = max(near)
    if not any(name in rows for name in graph.outputs):
        raise CannotLower("split", "no result of a reduction is written")


def _partial(half: _Half, node: Node, cut: _Cut, length: int) -> str:
    """Nodes that reduce every part of the rows of one reduction."""
    dtype = half.types[node.inputs[0]].dtype
    wide = ACCUMULATED[HELD[dtype]]
    extents, axis = cut.extents, cut.axis
    name = node.inputs[0]
    if wide is not dtype:
        name = half.op("cast", name, to=wide.value)
    name = half.op("reshape", name, shape=extents)
    reduced = [at for at, segment in enumerate(cut.pattern) if segment.reduced]
    if cut.extent > length:
        count = -(-cut.extent // length)
        missing = count * length - cut.extent
        if missing:
            after = tuple(missing * (at == axis) for at in range(len(extents)))
            before = (0,) * len(extents)
            filler = _filler(node, wide)
            name = half.op("pad", name, before=before, after=after, value=filler)
        shape = (*extents[:axis], count, length, *extents[axis + 1 :])
        name = half.op("reshape", name, shape=shape)
        reduced = [at + (at >= axis) for at in reduced]
    made = f"{SCRATCH}{len(half.partials)}"
    half.partials.append(made)
    return half.op(node.op, name, made=made, axes=tuple(reduced), keepdims=0)


def _filler(node: Node, wide: DType) -> float | int:
    """What changes nothing, in the last part of a row."""
    value = identity(node.op, wide)
    if not wide.is_float and int(float(value)) != value:
        raise CannotLower(node.name, f"{wide.value} has no filler for the last part")
    return value


def _combine(half: _Half, node: Node, partial: str, cut: _Cut, length: int) -> None:
    """Nodes that put the partial results of one reduction together."""
    made = node.outputs[0]
    kind = half.given.types[made]
    is_wide = half.types[partial].dtype is kind.dtype
    name = partial
    if cut.extent > length:
        before = sum(segment.reduced for segment in cut.pattern[: cut.axis])
        name = half.op(node.op, name, axes=(cut.axis - before,), keepdims=0)
    shape = kind.static_shape
    name = half.op("reshape", name, made=made if is_wide else "", shape=shape)
    if not is_wide:
        half.op("cast", name, made=made, to=kind.dtype.value)


class _Half:
    """The graph of one launch while it grows.

    Attributes:
        given: the graph of the kernel.
        types: of every tensor so far.
        partials: names of partial results that it makes.
    """

    def __init__(self, given: Graph) -> None:
        self.given = given
        self.types: dict[str, TensorType] = dict(given.types)
        self.partials: list[str] = []
        self._nodes: list[Node] = []
        self._inputs = [*given.inputs, *given.weights]

    def keep(self, node: Node) -> None:
        """A node as it is."""
        self._nodes.append(node)

    def give(self, name: str, kind: TensorType) -> None:
        """One more input."""
        self._inputs.append(name)
        self.types[name] = kind

    def op(self, op: str, name: str, *, made: str = "", **attributes: Any) -> str:
        """One more node, and the name of its result."""
        infer = OPS[op].infer
        assert infer is not None
        made = made or f"~{len(self._nodes)}"
        (self.types[made],) = infer([self.types[name]], attributes)
        self._nodes.append(
            Node(
                name=f"~n{len(self._nodes)}",
                op=op,
                inputs=(name,),
                outputs=(made,),
                attributes=MappingProxyType(attributes),
            )
        )
        return made

    def graph(self, outputs: tuple[str, ...]) -> Graph:
        """What is needed for the outputs."""
        needed = set(outputs)
        nodes = []
        for node in reversed(self._nodes):
            if not needed.isdisjoint(node.outputs):
                nodes.append(node)
                needed.update(node.inputs)
        constants = self.given.constants
        return Graph(
            nodes=tuple(reversed(nodes)),
            inputs=tuple(n for n in self._inputs if n in needed),
            constants={n: constants[n] for n in constants if n in needed},
            outputs=outputs,
            types={n: k for n, k in self.types.items() if n in needed},
        )
