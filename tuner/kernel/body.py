"""Building the scalar program of one group, backwards from what it stores.

A tensor is asked for at an index map; its operator says at which maps it asks for
its own inputs. Equal questions have one answer, so a value is computed once per
index map. Rules are generators: they yield the questions and are sent the answers,
which keeps a chain of a thousand nodes off Python's stack.
"""

from __future__ import annotations

import itertools
import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tuner.ir.expr import Operand, calls, parse
from tuner.ir.inference import ints, whole
from tuner.ir.ops import OPS, Pattern
from tuner.kernel.bounds import Ranges
from tuner.kernel.errors import CannotLower
from tuner.kernel.held import ACCUMULATED, HELD, identity, literal
from tuner.kernel.index import (
    ZERO,
    AtomKind,
    Guards,
    Index,
    Map,
    Space,
    flatten,
)
from tuner.kernel.nest import (
    Apply,
    Constant,
    Load,
    Reduced,
    Reduction,
    Select,
    Store,
    Value,
)
from tuner.kernel.shapes import shape_of
from tuner.kernel.views import VIEWS, Key, Rule
from tuner.kernel.windows import average_pool, max_pool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tuner.ir.graph import Graph, Node
    from tuner.ir.types import DType

UNROLLED_ELEMENTS: Final = 16
"""Reductions of up to so many elements may be unrolled into one expression."""


class Anchor(NamedTuple):
    """How a contraction lies in the loops of a group.

    Attributes:
        node: its name.
        place: where each point of the loops has its element of the result.
        left, right: the factors of the product that is summed up.
        addends: what is added to the sum.
    """

    node: str
    place: Map
    left: Key
    right: Key
    addends: tuple[Key, ...] = ()


_RULES: Final = MappingProxyType(
    {**VIEWS, "max_pool": max_pool, "average_pool": average_pool}
)


class Frame(NamedTuple):
    """How the reductions of a group lie in its loops.

    Attributes:
        embedded: for tensors that are tied to the reductions' rows, the map at
            which each point of the loops finds its element.
        framed: names of the reduction nodes that are loops; others are unrolled.
        reduced: mask of the reduced loops.
        anchor: the contraction whose sum is over the reduced loops.
    """

    embedded: Mapping[str, Map]
    framed: frozenset[str]
    reduced: int
    anchor: Anchor | None = None


NO_FRAME: Final = Frame(MappingProxyType({}), frozenset(), 0)


class Body:
    """The growing list of values of one group."""

    def __init__(
        self, graph: Graph, slots: Mapping[str, int], space: Space, frame: Frame
    ) -> None:
        self.graph = graph
        self.space = space
        self.frame = frame
        self.values: list[Value] = []
        self.reductions: list[Reduction] = []
        self.stores: list[Store] = []
        self._slots = slots
        self._answers: dict[Key, int] = {}
        self._known: dict[tuple[object, ...], int] = {}
        self._masks: list[int] = [1 << loop for loop in range(space.loops)]
        self._aligned: dict[tuple[Map, tuple[int, ...], tuple[int, ...]], Map] = {}

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Static shape of a tensor."""
        return shape_of(self.graph, tensor)

    def store(self, tensor: str, source: Key, where: Map, guards: Guards) -> None:
        """Compute a value and store it as an element of an output."""
        number = self.ask(source)
        value = self.values[number]
        index = self.space.rejoined(flatten(where, self.shape(tensor)))
        mask = self._mask(index) | self._guards_mask(guards)
        per_row = bool(self.frame.reduced) and not mask & self.frame.reduced
        if per_row and value.loops & self.frame.reduced:
            raise CannotLower(
                tensor, "a value of each position has only a row to go to"
            )
        slot = self._slots[tensor]
        self.stores.append(Store(slot, index, guards, number, per_row, value.stage))

    def dtype(self, number: int) -> DType:
        """Held dtype of a value."""
        return self.values[number].dtype

    def ask(self, key: Key) -> int:
        """The number of the value that answers a question."""
        answers, producers = self._answers, self.graph.producers
        if key in answers:
            return answers[key]
        stack = [self._asked(key)]
        while True:
            key, rule, needs, found = stack[-1]
            for need in needs[len(found) :]:
                number = answers.get(need)
                if number is None and need.tensor not in producers:
                    number = answers[need] = self._leaf(need)
                if number is None:
                    stack.append(self._asked(need))
                    break
                found.append(number)
            else:
                try:
                    stack[-1] = (key, rule, rule.send(found), [])
                except StopIteration as done:
                    number = answers[key] = cast("int", done.value)
                    stack.pop()
                    if not stack:
                        return number
                    stack[-1][-1].append(number)

    def _asked(self, key: Key) -> tuple[Key, Rule, list[Key], list[int]]:
        """A question, who answers it, what that one asks first, and answers so far."""
        rule = self._rule(key)
        return key, rule, next(rule), []

    def _rule(self, key: Key) -> Rule:
        node = self.graph.producers.get(key.tensor)
        if node is None:
            return self._given(key)
        row = OPS[node.op]
        if row.pattern is Pattern.ELEMENTWISE:
            return self._elementwise(node, key)
        if row.pattern is Pattern.REDUCTION:
            if node.name in self.frame.framed:
                return self._reduced(node, key)
            return self._unrolled(node, key)
        return self._view(node, key)

    def _view(self, node: Node, key: Key) -> Rule:
        anchor = self.frame.anchor
        if anchor is not None and node.name == anchor.node:
            return self._contracted(anchor, key)
        rule = _RULES.get(node.op)
        if rule is None:
            raise CannotLower(node.name, f"{node.op} runs in a library")
        return rule(self, node, key)

    def _given(self, key: Key) -> Rule:
        yield []
        return self._leaf(key)

    def _leaf(self, key: Key) -> int:
        """An element of what is given; nothing is asked for it."""
        kind = self.graph.types[key.tensor]
        held = HELD[kind.dtype]
        constant = self.graph.constants.get(key.tensor)
        if constant is not None:
            return self.constant(literal(constant, kind.dtype), held)
        index = self.space.rejoined(flatten(key.map, self.shape(key.tensor)))
        mask, stage = self._mask(index), self._stage(index)
        for guard in key.guards:
            mask |= self._mask(guard.subject)
            stage = max(stage, self._stage(guard.subject))
        load = Load(self._slots[key.tensor], index, key.guards)
        return self.add(load, held, mask, stage)

    def _elementwise(self, node: Node, key: Key) -> Rule:
        shape = self.shape(key.tensor)
        numbers = yield [
            Key(name, self.aligned(key.map, shape, self.shape(name)), key.guards)
            for name in node.inputs
        ]
        graph = self.graph
        held = HELD[graph.types[key.tensor].dtype]
        if node.op == "cast":
            return self.cast(numbers[0], held)
        first = node.inputs[1 if node.op == "where" else 0]
        operand = HELD[graph.types[first].dtype]
        if node.op == "div" and held.is_float:
            is_free = self._is_exact(numbers[1]) or is_smooth(graph, node)
            factor = self._factor(numbers[0], numbers[1], operand) if is_free else None
            if factor is not None:
                return self.apply("a0 * a1", (numbers[0], factor), operand, held)
        return self.apply(OPS[node.op].expression, numbers, operand, held)

    def _is_exact(self, below: int) -> bool:
        """Whether a number has an exact reciprocal: the product is the quotient."""
        what = self.values[below].what
        return isinstance(what, Constant) and abs(math.frexp(what.value)[0]) == 0.5  # noqa: PLR2004

    def _factor(self, above: int, below: int, operand: DType) -> int | None:
        """The reciprocal of a number by which many elements are divided.

        That of a constant is known, that of a value of a row is taken once a row: a
        division takes as long as sixteen products, and the quotient differs in its last
        bit at most. None where nothing is saved, or the reciprocal might be infinite or
        have lost digits where the quotient has not.
        """
        what, reduced = self.values[below].what, self.frame.reduced
        if isinstance(what, Constant):
            is_safe = _LEAST_FACTOR <= abs(what.value) <= 1 / _LEAST_FACTOR
            return self.constant(1 / what.value, operand) if is_safe else None
        is_once = not self.values[below].loops & reduced
        if not is_once or not self.values[above].loops & reduced:
            return None
        atoms = self.space.atoms[: self.space.loops]
        length = math.prod(
            atom.extent for loop, atom in enumerate(atoms) if reduced >> loop & 1
        )
        if not Ranges(self.values, self.reductions, length).has_normal_reciprocal(
            below
        ):
            return None
        return self.apply("reciprocal(a0)", (below,), operand, operand)

    def aligned(
        self, indices: Map, shape: tuple[int, ...], operand: tuple[int, ...]
    ) -> Map:
        """Map of an operand that is broadcast to `shape`."""
        if operand == shape:
            return indices
        key = (indices, shape, operand)
        found = self._aligned.get(key)
        if found is None:
            tail = indices[len(shape) - len(operand) :]
            found = tuple(
                ZERO if extent == 1 else index
                for extent, index in zip(operand, tail, strict=True)
            )
            self._aligned[key] = found
        return found

    def cast(self, number: int, held: DType) -> int:
        """Convert a value; between floats held alike nothing happens."""
        value = self.values[number]
        if value.dtype is held:
            return number
        what = Apply(Operand(0), (number,), value.dtype)
        return self.add(what, held, value.loops, value.stage)

    def apply(
        self, text: str, numbers: Sequence[int], operand: DType, held: DType
    ) -> int:
        """Apply an expression of the kernel language."""
        args = tuple(numbers)
        values = [self.values[number] for number in args]
        mask = 0
        for value in values:
            mask |= value.loops
        stage = max(value.stage for value in values)
        key = (text, args, operand, held)
        number = self._known.get(key)
        if number is None:
            what = Apply(parse(text), args, operand)
            number = self._known[key] = self._append(what, held, mask, stage)
        return number

    def add(
        self,
        what: Load | Constant | Apply | Select | Reduced,
        dtype: DType,
        mask: int,
        stage: int,
    ) -> int:
        """Append a value, or find an equal one."""
        key = (what, dtype)
        if isinstance(what, Constant):
            key = (repr(what.value), dtype)  # type: ignore[assignment]
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = self._append(what, dtype, mask, stage)
        return number

    def _append(
        self,
        what: Load | Constant | Apply | Select | Reduced,
        dtype: DType,
        mask: int,
        stage: int,
    ) -> int:
        self.values.append(Value(what, dtype, mask, stage))
        return len(self.values) - 1

    def _mask(self, index: Index) -> int:
        masks = self._masks
        for atom in self.space.atoms[len(masks) :]:
            masks.append(  # each needs the ones before it
                self.values[atom.value].loops
                if atom.kind is AtomKind.VALUE
                else _joined_mask(masks, atom.operand)
            )
        return _joined_mask(masks, index)

    def _guards_mask(self, guards: Guards) -> int:
        total = 0
        for guard in guards:
            total |= self._mask(guard.subject)
        return total

    def _stage(self, index: Index) -> int:
        stage = 0
        for number, _ in index.terms:
            if number >= self.space.loops:
                atom = self.space.atoms[number]
                inner = (
                    self.values[atom.value].stage
                    if atom.kind is AtomKind.VALUE
                    else self._stage(atom.operand)
                )
                stage = max(stage, inner)
        return stage

    def select(self, guards: Guards, chosen: int, other: int) -> int:
        """One value where guards hold, else another."""
        first, second = self.values[chosen], self.values[other]
        mask = first.loops | second.loops | self._guards_mask(guards)
        stage = max(
            first.stage, second.stage, *(self._stage(g.subject) for g in guards)
        )
        return self.add(Select(guards, chosen, other), first.dtype, mask, stage)

    def constant(self, value: float, dtype: DType) -> int:
        """A literal."""
        return self.add(Constant(value), dtype, 0, 0)

    # Reductions

    def _unrolled(self, node: Node, key: Key) -> Rule:
        source = node.inputs[0]
        shape = self.shape(source)
        axes = ints(node.attributes, "axes")
        if 0 in shape:
            yield []
            held = HELD[self.graph.types[key.tensor].dtype]
            return self.constant(identity(node.op, held), held)
        if math.prod(shape[axis] for axis in axes) > UNROLLED_ELEMENTS:
            raise CannotLower(node.name, "a long reduction over another frame")
        kept = iter(kept_axes(node, key.map, len(shape)))
        base = [ZERO if axis in axes else next(kept) for axis in range(len(shape))]
        keys = []
        for point in itertools.product(*(range(shape[axis]) for axis in axes)):
            indices = list(base)
            for axis, position in zip(axes, point, strict=True):
                indices[axis] = Index(position, ())
            keys.append(Key(source, tuple(indices), key.guards))
        numbers = yield keys
        held = HELD[self.graph.types[key.tensor].dtype]
        text = OPS[node.op].expression
        wide = ACCUMULATED[held]
        total = self.cast(numbers[0], wide)
        for number in numbers[1:]:
            total = self.apply(text, (total, self.cast(number, wide)), wide, wide)
        return self.cast(total, held)

    def _reduced(self, node: Node, key: Key) -> Rule:
        source = node.inputs[0]
        place = self.frame.embedded[source]
        rank = len(place)
        axes = ints(node.attributes, "axes")
        mine = tuple(i for axis, i in enumerate(place) if axis not in axes)
        if kept_axes(node, key.map, rank) != mine:
            raise CannotLower(node.name, "a reduced value is used in another row")
        if not self._lies_along(place, axes):
            raise CannotLower(node.name, "its rows lie across those of the loops")
        (number,) = yield [Key(source, place, ())]
        value = self.values[number]
        held = HELD[self.graph.types[key.tensor].dtype]
        wide = ACCUMULATED[held]
        reduction = Reduction(node.op, self.cast(number, wide), wide, value.stage)
        self.reductions.append(reduction)
        rows = ((1 << self.space.loops) - 1) & ~self.frame.reduced
        what = Reduced(len(self.reductions) - 1)
        return self.cast(self.add(what, wide, rows, value.stage + 1), held)

    def _lies_along(self, place: Map, axes: Sequence[int]) -> bool:
        """Whether what is reduced is the reduced loops, and what is kept the others."""
        kept = reduced = 0
        for axis, index in enumerate(place):
            if axis in axes:
                reduced |= self._mask(index)
            else:
                kept |= self._mask(index)
        return not kept & self.frame.reduced and not reduced & ~self.frame.reduced

    def _contracted(self, anchor: Anchor, key: Key) -> Rule:
        if key.map != anchor.place:
            raise CannotLower(anchor.node, "its result is used at another place")
        numbers = yield [anchor.left, anchor.right, *anchor.addends]
        held = HELD[self.graph.types[key.tensor].dtype]
        wide = ACCUMULATED[held]
        left = self.cast(self._inside(anchor.left, numbers[0]), wide)
        right = self.cast(self._inside(anchor.right, numbers[1]), wide)
        product = self.apply("a0 * a1", (left, right), wide, wide)
        self.reductions.append(Reduction("reduce_sum", product, wide, 0))
        rows = ((1 << self.space.loops) - 1) & ~self.frame.reduced
        total = self.add(Reduced(len(self.reductions) - 1), wide, rows, 1)
        for number in numbers[2:]:
            total = self.apply("a0 + a1", (total, self.cast(number, wide)), wide, wide)
        return self.cast(total, held)

    def _inside(self, key: Key, number: int) -> int:
        """A value that is zero where its guards do not hold."""
        if not key.guards or key.tensor not in self.graph.producers:
            return number  # such a load is zero outside
        zero = self.constant(0, self.dtype(number))
        return self.select(key.guards, number, zero)


_LEAST_FACTOR: Final = 2.0**-126
"""Numbers between this and its reciprocal have a normal reciprocal in 32 bits."""
_STEEP: Final = frozenset(
    ("floor", "ceil", "rint", "sign", "fmod", "floor_mod", "log", "pow")
)
"""Functions whose result may jump with the last bit of an operand.

A logarithm next to one, and a power of a high degree, have more digits wrong than
their operand.
"""


def is_smooth(graph: Graph, node: Node) -> bool:
    """Whether nothing that is computed from a node's result jumps with its last bit."""
    reached = set(node.outputs)
    if not graph.types[node.outputs[0]].dtype.is_float:
        return False
    for other in graph.nodes:
        if reached.isdisjoint(other.inputs):
            continue
        if any(not graph.types[name].dtype.is_float for name in other.outputs):
            return False
        if _is_steep(graph, other, reached):
            return False
        reached.update(other.outputs)
    return True


def _is_steep(graph: Graph, node: Node, reached: set[str]) -> bool:
    """Whether a node's result may jump with the last bit of what was reached.

    That of a quotient does next to a divisor of zero. A sigmoid's divisor is above one,
    and a sum of powers is as exact as its terms.
    """
    if node.op == "reciprocal":
        return True
    if node.op == "div" and node.inputs[1] in reached:
        return not _is_sum_of_powers(graph, node.inputs[1])
    text = OPS[node.op].expression
    return bool(text) and not _STEEP.isdisjoint(
        call.function for call in calls(parse(text))
    )


def _is_sum_of_powers(graph: Graph, tensor: str) -> bool:
    total = graph.producers.get(tensor)
    if total is None or total.op != "reduce_sum":
        return False
    power = graph.producers.get(total.inputs[0])
    return power is not None and power.op == "exp"


def _joined_mask(masks: Sequence[int], index: Index) -> int:
    total = 0
    for atom, _ in index.terms:
        total |= masks[atom]
    return total


def kept_axes(node: Node, indices: Map, rank: int) -> Map:
    """The indices of a reduction's result along the axes that it keeps."""
    if not whole(node.attributes, "keepdims"):
        return indices
    axes = ints(node.attributes, "axes")
    return tuple(indices[axis] for axis in range(rank) if axis not in axes)
