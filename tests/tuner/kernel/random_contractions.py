"""Random small graphs around one contraction."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from tests.tuner.kernel.builder import Builder, conv
from tuner.ir.types import DType

if TYPE_CHECKING:
    from tuner.ir.graph import Graph

EXTENTS: Final = (1, 2, 3, 5, 8, 13, 16, 17, 24, 31, 40, 67)
FLOATS: Final = (DType.F32, DType.F32, DType.F32, DType.F64, DType.F16, DType.BF16)
UNARY: Final = ("relu", "tanh", "sigmoid", "neg", "abs")


def random_contraction(seed: int) -> Graph:
    """A prologue on one operand, a matmul or a convolution, and an epilogue."""
    rng = Random(seed)
    b = Builder()
    dtype = rng.choice(FLOATS)
    make = _matmul if rng.random() < 0.6 else _conv
    result = make(b, rng, dtype)
    return b.graph(*_epilogue(b, rng, result))


def _matmul(b: Builder, rng: Random, dtype: DType) -> str:
    m, n, k = (rng.choice(EXTENTS) for _ in range(3))
    batch = [rng.choice((1, 2, 3)) for _ in range(rng.choice((0, 0, 1, 2)))]
    left = [1 if rng.random() < 0.3 else extent for extent in batch]
    right = [
        extent if mine == 1 else rng.choice((1, extent))
        for extent, mine in zip(batch, left, strict=True)
    ]
    row = [] if rng.random() < 0.1 and not batch else [m]
    column = [] if rng.random() < 0.1 and not batch else [n]
    operands = [[*left, *row, k], [*right[rng.randrange(len(right) + 1) :], k, *column]]
    changed = rng.choice((0, 1, None, None))
    names = [
        _prologue(b, rng, shape, dtype)
        if place == changed
        else b.input(*shape, dtype=dtype)
        for place, shape in enumerate(operands)
    ]
    return b.op("matmul", *names)


def _conv(b: Builder, rng: Random, dtype: DType) -> str:
    rank = rng.choice((1, 2, 2, 2, 3))
    group = rng.choice((1, 1, 1, 2, 4))
    inner = rng.choice((1, 2, 3, 5))
    outputs = group * rng.choice((1, 2, 5, 8, 11))
    kernel = [rng.choice((1, 2, 3)) for _ in range(rank)]
    data = [rng.randint(7, 12) for _ in range(rank)]
    shape = [rng.choice((1, 2)), group * inner, *data]
    x = b.input(*shape, dtype=dtype)
    if rng.random() < 0.3:
        x = b.op(rng.choice(("tanh", "sigmoid")), x)
    operands = [x, b.input(outputs, inner, *kernel, dtype=dtype)]
    if rng.random() < 0.5:
        operands.append(b.input(outputs, dtype=dtype))
    return conv(
        b,
        *operands,
        strides=rng.choice((1, 1, 2)),
        pads=rng.choice((0, 1, 2)),
        dilations=rng.choice((1, 1, 2)),
        group=group,
    )


def _prologue(b: Builder, rng: Random, shape: list[int], dtype: DType) -> str:
    """A tensor of a shape that is computed, or read in another order."""
    kind = rng.choice(("unary", "transpose", "reshape", "slice", "sum"))
    rank = len(shape)
    if kind == "transpose":
        perm = rng.sample(range(rank), rank)
        order = sorted(range(rank), key=perm.__getitem__)
        x = b.input(*(shape[axis] for axis in order), dtype=dtype)
        return b.op("transpose", x, perm=tuple(perm))
    if kind == "reshape":
        flat = b.input(*reversed(shape), dtype=dtype)
        return b.op("reshape", flat, shape=tuple(shape))
    if kind == "slice":
        x = b.input(*(extent + 2 for extent in shape), dtype=dtype)
        starts, steps = (1,) * rank, (1,) * rank
        return b.op("slice", x, starts=starts, steps=steps, sizes=tuple(shape))
    x = b.input(*shape, dtype=dtype)
    if kind == "sum":
        return b.op("add", x, b.input(shape[-1], dtype=dtype))
    return b.op(rng.choice(UNARY), x)


def _epilogue(b: Builder, rng: Random, result: str) -> list[str]:
    dtype = b.types[result].dtype
    outputs = [result] if rng.random() < 0.3 else []
    for _ in range(rng.randrange(4)):
        shape = b.shape(result)
        kind = rng.choice(("unary", "bias", "residual", "scale", "view"))
        if kind == "unary":
            result = b.op(rng.choice(UNARY), result)
        elif kind == "bias":
            result = b.op("add", result, b.input(*shape[-1:], dtype=dtype))
        elif kind == "residual":
            other = b.op("tanh", b.input(*shape, dtype=dtype))
            result = b.op("add", result, other)
        elif kind == "scale":
            result = b.op("mul", result, b.constant(0.37, dtype))
        else:
            result = b.op("reshape", result, shape=(1, *shape))
        if rng.random() < 0.2:
            outputs.append(result)
    if rng.random() < 0.2:
        result = b.op("cast", result, to="f32")
    return list(dict.fromkeys([*outputs, result]))
