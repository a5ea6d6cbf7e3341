"""Random small graphs: element-wise chains, views, broadcasts, reductions."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING

from tests.tuner.kernel.builder import Builder
from tuner.ir.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.ir.graph import Graph

_UNARY = ("tanh", "neg", "abs", "relu", "sigmoid", "erf")
_WHOLE_UNARY = ("neg", "abs", "relu", "sign")
_BINARY = ("add", "sub", "mul", "maximum", "minimum")
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 48, 64, 100, 128)
_MOST = 40_000


def random_graph(
    seed: int,
    *,
    dtype: DType = DType.F32,
    reduces: bool = True,
    extents: Sequence[int] = _EXTENTS,
) -> Graph:
    """A random graph with one or more outputs."""
    return _Random(Random(seed), dtype, reduces=reduces, extents=extents).make()


class _Random:
    def __init__(
        self, rng: Random, dtype: DType, *, reduces: bool, extents: Sequence[int]
    ) -> None:
        self.rng = rng
        self.extents = extents
        self.dtype = dtype
        self.reduces = reduces
        self.b = Builder()
        self.pool: list[str] = []

    def make(self) -> Graph:
        rng, b = self.rng, self.b
        shape = self._shape(rng.randint(1, 4))
        self.pool.append(b.input(*shape, dtype=self.dtype))
        for _ in range(rng.randint(1, 12)):
            self._grow()
        made = [n.outputs[0] for n in b.nodes]
        read = {name for n in b.nodes for name in n.inputs}
        outputs = [name for name in made if name not in read]
        extra = [name for name in made if name in read]
        if extra and rng.random() < 0.3:
            outputs.append(rng.choice(extra))
        alias = {n.outputs[0] for n in b.nodes if n.op == "reshape"}
        final = [name if name not in alias else b.op("neg", name) for name in outputs]
        return b.graph(*final)

    def _shape(self, rank: int) -> tuple[int, ...]:
        while True:
            shape = tuple(self.rng.choice(self.extents) for _ in range(rank))
            if math.prod(shape) <= _MOST:
                return shape

    def _grow(self) -> None:
        steps = [self._unary, self._binary, self._binary, self._view, self._view]
        if self.reduces:
            steps += [self._reduce]
        result = self.rng.choice(steps)(self._recent())
        if math.prod(self.b.shape(result)) <= 4 * _MOST:
            self.pool.append(result)

    def _recent(self) -> str:
        return self.rng.choice(self.pool[-3:])

    def _unary(self, x: str) -> str:
        ops = _UNARY if self.dtype.is_float else _WHOLE_UNARY
        return self.b.op(self.rng.choice(ops), x)

    def _binary(self, x: str) -> str:
        op = self.rng.choice(_BINARY)
        return self.b.op(op, *self.rng.sample([x, self._partner(x)], 2))

    def _partner(self, x: str) -> str:
        """Something that broadcasts with x: another value, a literal, an input."""
        rng, b = self.rng, self.b
        shape = b.shape(x)
        kind = rng.random()
        if kind < 0.5:
            fitting = [y for y in self.pool if _broadcasts(b.shape(y), shape)]
            return rng.choice([x, *fitting])
        if kind < 0.6:
            values = (0.5, -1.25, 3.0) if self.dtype.is_float else (1, 2, 3)
            return b.constant(rng.choice(values), self.dtype)
        cut = rng.randint(0, len(shape))
        partner = [n if rng.random() < 0.7 else 1 for n in shape[cut:]]
        return b.input(*partner, dtype=self.dtype)

    def _reduce(self, x: str) -> str:
        rng, b = self.rng, self.b
        rank = len(b.shape(x))
        if not rank:
            return self._unary(x)
        first = rng.randint(0, rank - 1)
        axes = tuple(range(first, rng.randint(first, rank - 1) + 1))
        op = rng.choice(("reduce_sum", "reduce_max", "reduce_min"))
        keep = rng.randint(0, 1)
        result = b.op(op, x, axes=axes, keepdims=keep)
        if keep and rng.random() < 0.8:
            self.pool.append(result)
            return b.op(rng.choice(("sub", "mul", "add")), x, result)
        return result

    def _view(self, x: str) -> str:
        views = (
            self._reshape,
            self._transpose,
            self._slice,
            self._expand,
            self._concat,
            self._pad,
            self._gather,
        )
        return self.rng.choice(views)(x)

    def _reshape(self, x: str) -> str:
        rng = self.rng
        rest = math.prod(self.b.shape(x))
        shape: list[int] = []
        while rest > 1 and len(shape) < 4:
            divisors = [n for n in range(2, min(rest, 129) + 1) if rest % n == 0]
            if not divisors or rng.random() < 0.3:
                break
            shape.append(rng.choice(divisors))
            rest //= shape[-1]
        shape.insert(rng.randint(0, len(shape)), rest)
        return self.b.op("reshape", x, shape=tuple(shape))

    def _transpose(self, x: str) -> str:
        rank = len(self.b.shape(x))
        return self.b.op("transpose", x, perm=tuple(self.rng.sample(range(rank), rank)))

    def _slice(self, x: str) -> str:
        rng = self.rng
        starts, steps, sizes = [], [], []
        for n in self.b.shape(x):
            step = rng.choice((1, 1, 1, 2, -1)) if n > 1 else 1
            size = rng.randint(1, max(1, n // abs(step)))
            room = n - 1 - (size - 1) * abs(step)
            start = rng.randint(0, room)
            starts.append(start if step > 0 else n - 1 - start)
            steps.append(step)
            sizes.append(size)
        return self.b.op(
            "slice", x, starts=tuple(starts), steps=tuple(steps), sizes=tuple(sizes)
        )

    def _expand(self, x: str) -> str:
        rng = self.rng
        shape = [n if n > 1 else rng.choice((1, 3, 8)) for n in self.b.shape(x)]
        if rng.random() < 0.4:
            shape.insert(0, rng.choice((2, 3)))
        return self.b.op("expand", x, shape=tuple(shape))

    def _concat(self, x: str) -> str:
        rng, b = self.rng, self.b
        shape = b.shape(x)
        if not shape:
            return self._unary(x)
        axis = rng.randrange(len(shape))
        parts = [x]
        for _ in range(rng.randint(1, 2)):
            other = list(shape)
            other[axis] = rng.choice((1, 2, 5, shape[axis]))
            same = [y for y in self.pool if b.shape(y) == tuple(other)]
            parts.append(
                rng.choice(same) if same else b.input(*other, dtype=self.dtype)
            )
        rng.shuffle(parts)
        return b.op("concat", *parts, axis=axis)

    def _pad(self, x: str) -> str:
        rank = len(self.b.shape(x))
        before = tuple(self.rng.choice((0, 0, 1, 3)) for _ in range(rank))
        after = tuple(self.rng.choice((0, 0, 1, 2)) for _ in range(rank))
        return self.b.op("pad", x, before=before, after=after, value=2.0)

    def _gather(self, x: str) -> str:
        rng, b = self.rng, self.b
        shape = b.shape(x)
        if not shape or max(shape) < 6:
            return self._unary(x)
        axis = max(range(len(shape)), key=shape.__getitem__)
        index = b.input(rng.choice((1, 4, 9)), dtype=rng.choice((DType.I64, DType.I32)))
        return b.op("gather", x, index, axis=axis)


def _broadcasts(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    pairs = zip(reversed(left), reversed(right), strict=False)
    joined = math.prod(max(a, b) for a, b in pairs)
    longer = max(left, right, key=len)
    rest = math.prod(longer[: len(longer) - min(len(left), len(right))])
    if joined * rest > _MOST:
        return False
    return all(
        a == b or 1 in (a, b)
        for a, b in zip(reversed(left), reversed(right), strict=False)
    )
