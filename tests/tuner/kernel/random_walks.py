"""Random kernels that take the walks which small random graphs do not reach.

Each function draws a graph and the schedules under which it is walked in that way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Final, NamedTuple

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.online import ONLINE_STEPS
from tuner.kernel.schedule import default, is_legal, space
from tuner.kernel.split import halves, joined, reduced_axis
from tuner.plan import Schedule

CPU: Final = find("cpu")
GPU: Final = find("a100-80")
FLOATS: Final = (DType.F32, DType.F32, DType.F16, DType.BF16, DType.F64)
WHOLES: Final = (DType.I8, DType.U8, DType.I32, DType.I64)
LARGE_BYTES: Final = 1 << 22
"""Tensors from here on are asked for ahead, and staged."""
LONG_ROW: Final = 2 * 16 * ONLINE_STEPS
PRIMES: Final = (1, 2, 3, 5, 7, 13, 17, 31, 61, 127, 257, 509, 1021)


class Drawn(NamedTuple):
    """A kernel, and schedules to run it under."""

    graph: Graph
    schedules: tuple[Schedule, ...]


Draw = Callable[[int], Drawn]


def long_rows(seed: int) -> Drawn:
    """Softmax, log-sum-exp or cross-entropy of rows that are walked block by block."""
    draw, b = Random(seed), Builder()
    dtype = draw.choice(FLOATS)
    rows, columns = draw.randint(1, 4), LONG_ROW + draw.choice((0, 1, 16, 999, 2500))
    x = b.input(rows, columns, dtype=dtype)
    if draw.random() < 0.5:
        x = b.op("mul", x, b.constant(draw.choice((0.125, 3.0)), dtype))
    if draw.random() < 0.5:
        x = b.op("add", x, b.input(columns, dtype=dtype))
    top = b.op("reduce_max", x, axes=(1,), keepdims=1)
    below = b.op("sub", x, top)
    power = b.op("exp", below)
    total = b.op("reduce_sum", power, axes=(1,), keepdims=1)
    outputs = [_behind(b, draw, (below, power, total, top))]
    if draw.random() < 0.3:
        outputs.append(top)
    graph = b.graph(*outputs)
    return Drawn(graph, tuple(_row_schedule(draw) for _ in range(2)))


def _behind(b: Builder, draw: Random, values: tuple[str, str, str, str]) -> str:
    below, power, total, top = values
    kind = draw.choice(("softmax", "log_softmax", "log_sum"))
    if kind == "softmax":
        return b.op("div", power, total)
    log = b.op("log", total)
    return b.op("sub", below, log) if kind == "log_softmax" else b.op("add", log, top)


def _row_schedule(draw: Random) -> Schedule:
    lanes = draw.choice((16, 16, 64))
    return Schedule.of(
        threads=lanes * draw.choice((1, 1, 2, 4)),
        lanes=lanes,
        vector=1,
        repeat=draw.choice((1, 2, 3, 8)),
        persistent=draw.choice((0, 0, 1)),
        unroll=draw.choice((1, 4)),
    )


def rows_asked_ahead(seed: int) -> Drawn:
    """Norms over rows of a tensor that no cache of a core keeps."""
    draw, b = Random(seed), Builder()
    dtype = draw.choice((DType.F32, DType.F32, DType.F64))
    columns = draw.choice((33, 257, 1021, 1024, 4096, 5003))
    rows = LARGE_BYTES // dtype.bytes // columns + draw.randint(1, 40)
    x = b.input(rows, columns, dtype=dtype)
    if draw.random() < 0.5:
        x = b.op("add", x, b.input(rows, columns, dtype=dtype))
    shift = b.op(draw.choice(("reduce_max", "reduce_min")), x, axes=(1,), keepdims=1)
    away = b.op("sub", x, shift)
    size = b.op("reduce_sum", b.op("mul", away, away), axes=(1,), keepdims=1)
    root = b.op("sqrt", b.op("add", size, b.constant(1e-3, dtype)))
    graph = b.graph(b.op("div", away, root))
    return Drawn(graph, (default(lower(graph), CPU), _row_schedule(draw)))


def staged_operands(seed: int) -> Drawn:
    """Operands that lie across, whose lines meet in the smallest cache."""
    draw, b = Random(seed), Builder()
    dtype = draw.choice((DType.F32, DType.F32, DType.F64, DType.F16, DType.I32))
    width = 4096 // dtype.bytes * draw.choice((1, 1, 2))
    height = LARGE_BYTES // dtype.bytes // width + draw.choice((0, 1, 13, 100))
    batch = draw.choice((1, 1, 2))
    names = []
    for _ in range(draw.choice((1, 1, 2))):
        x = b.input(batch, height, width, dtype=dtype)
        names.append(b.op("transpose", x, perm=(0, 2, 1)))
    if draw.random() < 0.7:
        names.append(b.input(*b.shape(names[0])[draw.randint(0, 1) :], dtype=dtype))
    result = names[0]
    for other in names[1:]:
        result = b.op(draw.choice(("add", "maximum", "sub")), result, other)
    graph = b.graph(b.op("neg", result))
    nest = lower(graph)
    other = draw.choice([s for s in space(nest, CPU) if s["threads"] <= 64])
    return Drawn(graph, (default(nest, CPU), other))


def reductions_in_parts(seed: int) -> Drawn:
    """A reduction in two launches, the first under any schedule of its space."""
    draw = Random(seed)
    graph = _reduction(draw)
    nest = lower(graph)
    found = []
    for _ in range(2):
        parts = min(draw.choice((2, 3, 7, 16, 61)), reduced_axis(graph))
        try:
            first, second = halves(nest, parts)
        except CannotLower:
            continue
        device = draw.choice((CPU, GPU))
        ahead = draw.choice(space(first, device))
        found.append(joined(parts, ahead, default(second, device)))
    return Drawn(graph, tuple(found))


def _reduction(draw: Random) -> Graph:
    b = Builder()
    dtype = draw.choice((*FLOATS, *WHOLES))
    shape = [draw.choice(PRIMES) for _ in range(3)]
    while shape[0] * shape[1] * shape[2] > 1 << 18:
        shape[draw.randrange(3)] = draw.choice(PRIMES[:6])
    axes = tuple(sorted(draw.sample(range(3), draw.randint(1, 3))))
    shape[axes[-1]] = max(shape[axes[-1]], draw.choice((64, 127, 4099)))
    x = b.input(*shape, dtype=dtype)
    y = b.op(draw.choice(("add", "maximum", "sub")), x, b.input(shape[2], dtype=dtype))
    ops = draw.sample(("reduce_sum", "reduce_max", "reduce_min"), draw.randint(1, 2))
    keep = draw.randint(0, 1)
    made = [b.op(op, y, axes=axes, keepdims=keep) for op in ops]
    return b.graph(b.op("sub", made[0], made[-1]), made[0])


def joined_loops(seed: int) -> Drawn:
    """Joins of boxes, loops side by side, and what both of them read."""
    draw, b = Random(seed), Builder()
    dtype = draw.choice((*FLOATS, *WHOLES))
    rows, width = draw.choice((1, 3, 17, 64)), draw.choice((16, 32, 48, 100))
    x = b.input(rows, 2 * width, dtype=dtype)
    whole = {"starts": (0, 0), "steps": (1, 1), "sizes": (rows, width)}
    left = b.op("slice", x, **whole)
    right = b.op("slice", x, **{**whole, "starts": (0, width)})
    scale = b.input(width, dtype=dtype)
    pieces = [b.op("mul", right, scale), b.op("sub", left, scale), left, right]
    pieces = pieces[: draw.randint(2, 4)]
    draw.shuffle(pieces)
    outputs = [b.op("concat", *pieces, axis=draw.randint(0, 1))]
    if draw.random() < 0.5:
        other = b.input(draw.choice((1, 31, 640)), 5, dtype=dtype)
        outputs.append(b.op("abs", other))
    if draw.random() < 0.4:
        outputs.append(b.op("reduce_sum", x, axes=(1,), keepdims=0))
    graph = b.graph(*outputs)
    nest = lower(graph)
    both = (draw.choice(space(nest, CPU)), draw.choice(space(nest, GPU)))
    return Drawn(graph, both)


def empty_and_single(seed: int) -> Drawn:
    """Extents of zero, one and primes, in chains of views and reductions."""
    draw, b = Random(seed), Builder()
    dtype = draw.choice((*FLOATS, *WHOLES))
    shape = [draw.choice((0, 1, 1, 2, 3, 7, 31)) for _ in range(draw.randint(1, 4))]
    x = b.input(*shape, dtype=dtype)
    rank = len(shape)
    y = b.op("add", x, b.input(*shape[draw.randint(0, rank) :], dtype=dtype))
    if draw.random() < 0.5:
        y = b.op("transpose", y, perm=tuple(draw.sample(range(rank), rank)))
    if draw.random() < 0.4:
        around = tuple(draw.choice((0, 0, 1, 2)) for _ in range(rank))
        y = b.op("pad", y, before=around, after=around[::-1], value=1.0)
    if draw.random() < 0.4:
        y = b.op("concat", y, y, axis=draw.randrange(rank))
    outputs = [b.op("neg", y)]
    if draw.random() < 0.7:
        axes = tuple(sorted(draw.sample(range(rank), draw.randint(1, rank))))
        ops = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")
        total = b.op(draw.choice(ops), y, axes=axes, keepdims=1)
        outputs.append(b.op("sub", y, total) if draw.random() < 0.5 else total)
    graph = b.graph(*outputs)
    nest = lower(graph)
    device = draw.choice((CPU, GPU))
    legal = [s for s in space(nest, device) if is_legal(nest, s, device)]
    return Drawn(graph, (default(nest, CPU), draw.choice(legal)))


WALKS: Final[Mapping[str, Draw]] = MappingProxyType(
    {
        "long rows": long_rows,
        "rows asked ahead": rows_asked_ahead,
        "staged operands": staged_operands,
        "reductions in parts": reductions_in_parts,
        "joined loops": joined_loops,
        "empty and single": empty_and_single,
    }
)
