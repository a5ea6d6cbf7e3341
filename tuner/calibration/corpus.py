"""Kernels that judge the cost model; calibration sees none of them.

Each row is one kernel of a real model at two or three sizes, so that every family of
generated kernels, every access pattern and both ends of the size range are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.calibration.draft import Draft
from tuner.ir.graph import Graph, extract, make_region
from tuner.ir.types import DType
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower

Shape = tuple[int, ...]
Make = Callable[[Draft, Shape], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A kernel's own graph at one size."""

    name: str
    shape: Shape
    graph: Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionPair:
    """A graph in one kernel, and the same in two.

    Attributes:
        parts: the two kernels' own graphs, in launch order.
    """

    name: str
    whole: Graph
    parts: tuple[Graph, Graph]


def _relu_add(d: Draft, s: Shape) -> Sequence[str]:
    return [d.op("relu", d.op("add", d.input(*s), d.input(*s)))]


def _bias_gelu(d: Draft, s: Shape) -> Sequence[str]:
    biased = d.op("add", d.input(*s), d.input(s[-1]))
    half = d.op("mul", biased, d.number(0.5))
    scaled = d.op("mul", biased, d.number(0.7071))
    return [d.op("mul", half, d.op("add", d.op("erf", scaled), d.number(1.0)))]


def _swiglu(d: Draft, s: Shape) -> Sequence[str]:
    gate = d.input(*s)
    return [d.op("mul", d.op("mul", gate, d.op("sigmoid", gate)), d.input(*s))]


def _adam(d: Draft, s: Shape) -> Sequence[str]:
    weight, grad, first, second = (d.input(*s) for _ in range(4))
    mean = d.op(
        "add", d.op("mul", first, d.number(0.9)), d.op("mul", grad, d.number(0.1))
    )
    square = d.op("mul", d.op("mul", grad, grad), d.number(0.001))
    spread = d.op("add", d.op("mul", second, d.number(0.999)), square)
    root = d.op("add", d.op("sqrt", d.op("abs", spread)), d.number(1e-3))
    step = d.op("mul", d.op("div", mean, root), d.number(0.01))
    return [d.op("sub", weight, step), mean, spread]


def _scale_shift(d: Draft, s: Shape) -> Sequence[str]:
    scaled = d.op("mul", d.input(*s), d.input(s[1], 1, 1))
    return [
        d.op("relu", d.op("add", d.op("add", scaled, d.input(s[1], 1, 1)), d.input(*s)))
    ]


def _transpose_add(d: Draft, s: Shape) -> Sequence[str]:
    turned = d.op(
        "transpose", d.input(*s), perm=(*range(len(s) - 2), len(s) - 1, len(s) - 2)
    )
    return [d.op("tanh", d.op("add", turned, d.input(*d.shape(turned))))]


def _heads(d: Draft, s: Shape) -> Sequence[str]:
    turned = d.op("transpose", d.input(*s), perm=(0, 2, 1, 3))
    return [d.op("mul", turned, d.number(0.125))]


def _slice_mul(d: Draft, s: Shape) -> Sequence[str]:
    x = d.input(*s)
    half = s[-1] // 2
    sizes, steps = (*s[:-1], half), (1,) * len(s)
    zero = (0,) * (len(s) - 1)
    left = d.op("slice", x, starts=(*zero, 0), steps=steps, sizes=sizes)
    right = d.op("slice", x, starts=(*zero, half), steps=steps, sizes=sizes)
    return [d.op("mul", left, d.op("sigmoid", right))]


def _rotary(d: Draft, s: Shape) -> Sequence[str]:
    x = d.input(*s)
    half = s[-1] // 2
    sizes, steps, zero = (*s[:-1], half), (1,) * len(s), (0,) * (len(s) - 1)
    left = d.op("slice", x, starts=(*zero, 0), steps=steps, sizes=sizes)
    right = d.op("slice", x, starts=(*zero, half), steps=steps, sizes=sizes)
    turned = d.op("concat", d.op("neg", right), left, axis=len(s) - 1)
    cosine, sine = d.input(*s[-2:]), d.input(*s[-2:])
    return [d.op("add", d.op("mul", x, cosine), d.op("mul", turned, sine))]


def _pad_relu(d: Draft, s: Shape) -> Sequence[str]:
    before = (0,) * (len(s) - 2) + (1, 1)
    return [
        d.op("pad", d.op("relu", d.input(*s)), before=before, after=before, value=0.0)
    ]


def _embedding(d: Draft, s: Shape) -> Sequence[str]:
    rows = d.op("gather", d.input(*s), d.input(s[0] // 2, dtype=DType.I64), axis=0)
    return [d.op("add", rows, d.input(s[-1]))]


def _narrow(d: Draft, s: Shape) -> Sequence[str]:
    wide = d.op("cast", d.input(*s, dtype=DType.F16), to=DType.F32)
    return [d.op("cast", d.op("tanh", d.op("mul", wide, d.number(1.5))), to=DType.F16)]


def _polynomial(d: Draft, s: Shape) -> Sequence[str]:
    x = d.input(*s)
    value = d.op("mul", x, d.number(0.5))
    for step in range(24):
        value = d.op("add", d.op("mul", value, x), d.number(1.0 / (step + 2)))
    return [value]


def _outer(d: Draft, s: Shape) -> Sequence[str]:
    return [d.op("exp", d.op("mul", d.input(s[0], 1), d.input(1, s[1])))]


def _row_sum(d: Draft, s: Shape) -> Sequence[str]:
    return [_reduce(d, "sum", d.op("mul", d.input(*s), d.input(*s)))]


def _reduce(d: Draft, kind: str, x: str, *axes: int) -> str:
    chosen = axes or (len(d.shape(x)) - 1,)
    return d.op(f"reduce_{kind}", x, axes=chosen, keepdims=1)


def _softmax(d: Draft, s: Shape) -> Sequence[str]:
    x = d.op("mul", d.input(*s), d.number(0.125))
    power = d.op("exp", d.op("sub", x, _reduce(d, "max", x)))
    return [d.op("div", power, _reduce(d, "sum", power))]


def _masked_softmax(d: Draft, s: Shape) -> Sequence[str]:
    x = d.op("add", d.input(*s), d.input(s[-1]))
    power = d.op("exp", d.op("sub", x, _reduce(d, "max", x)))
    return [d.op("div", power, _reduce(d, "sum", power))]


def _centred(d: Draft, x: str, *axes: int) -> str:
    """A tensor with mean 0 and deviation 1 along some axes."""
    count = 1
    for axis in axes or (len(d.shape(x)) - 1,):
        count *= d.shape(x)[axis]
    share = d.number(1.0 / count)
    away = d.op("sub", x, d.op("mul", _reduce(d, "sum", x, *axes), share))
    spread = d.op("mul", _reduce(d, "sum", d.op("mul", away, away), *axes), share)
    root = d.op("sqrt", d.op("add", spread, d.number(1e-5)))
    return d.op("div", away, root)


def _layer_norm(d: Draft, s: Shape) -> Sequence[str]:
    x = d.op("add", d.input(*s), d.input(*s))
    scaled = d.op("mul", _centred(d, x), d.input(s[-1]))
    return [d.op("add", scaled, d.input(s[-1]))]


def _rms_norm(d: Draft, s: Shape) -> Sequence[str]:
    x = d.op("add", d.input(*s), d.input(*s))
    mean = d.op("mul", _reduce(d, "sum", d.op("mul", x, x)), d.number(1.0 / s[-1]))
    scale = d.op("reciprocal", d.op("sqrt", d.op("add", mean, d.number(1e-5))))
    return [x, d.op("mul", d.op("mul", x, scale), d.input(s[-1]))]


def _group_norm(d: Draft, s: Shape) -> Sequence[str]:
    normed = _centred(d, d.input(*s), 2, 3)
    return [d.op("mul", normed, d.op("sigmoid", normed))]


def _column_sum(d: Draft, s: Shape) -> Sequence[str]:
    return [_reduce(d, "sum", d.op("mul", d.input(*s), d.input(*s)), 0)]


def _column_norm(d: Draft, s: Shape) -> Sequence[str]:
    x = d.op("exp", d.input(*s))
    return [d.op("div", x, _reduce(d, "sum", x, 0))]


def _channel_mean(d: Draft, s: Shape) -> Sequence[str]:
    total = _reduce(d, "sum", d.op("relu", d.input(*s)), 0, 2, 3)
    return [d.op("mul", total, d.number(1e-3))]


def _transposed_sum(d: Draft, s: Shape) -> Sequence[str]:
    turned = d.op("transpose", d.op("tanh", d.input(*s)), perm=(1, 0))
    return [_reduce(d, "sum", d.op("exp", turned))]


def _recomputed(d: Draft, s: Shape) -> Sequence[str]:
    """A column of costly values that every row of a sum would compute again."""
    column = d.input(1, s[1])
    for _ in range(6):
        column = d.op("tanh", d.op("exp", d.op("neg", column)))
    return [_reduce(d, "sum", d.op("mul", d.input(*s), column))]


def _gelu(d: Draft, x: str) -> str:
    half = d.op("mul", x, d.number(0.5))
    scaled = d.op("mul", x, d.number(0.7071))
    return d.op("mul", half, d.op("add", d.op("erf", scaled), d.number(1.0)))


def _linear_gelu(d: Draft, s: Shape) -> Sequence[str]:
    """Rows, terms, columns."""
    rows, terms, columns = s
    made = d.op("matmul", d.input(rows, terms), d.input(terms, columns))
    return [_gelu(d, d.op("add", made, d.input(columns)))]


def _linear_residual(d: Draft, s: Shape) -> Sequence[str]:
    """Rows, terms, columns; the left operand is computed on the way in."""
    rows, terms, columns = s
    left = d.op("relu", d.input(rows, terms))
    made = d.op("matmul", left, d.input(terms, columns))
    return [d.op("add", made, d.input(rows, columns))]


def _scores(d: Draft, s: Shape) -> Sequence[str]:
    """Heads, queries, width: products of rows with rows, scaled and masked."""
    heads, length, width = s
    turned = d.op("transpose", d.input(heads, length, width), perm=(0, 2, 1))
    made = d.op("matmul", d.input(heads, length, width), turned)
    return [d.op("add", d.op("mul", made, d.number(0.125)), d.input(length))]


def _convolved(d: Draft, x: str, weights: str, *, pads: int, group: int = 1) -> str:
    return d.op(
        "conv",
        x,
        weights,
        strides=(1, 1),
        pads=(pads,) * 4,
        dilations=(1, 1),
        group=group,
    )


def _conv_relu(d: Draft, s: Shape) -> Sequence[str]:
    """Channels read and made, side of the image."""
    channels, made, side = s
    x, weights = d.input(1, channels, side, side), d.input(made, channels, 3, 3)
    biased = d.op("add", _convolved(d, x, weights, pads=1), d.input(made, 1, 1))
    return [d.op("relu", biased)]


def _conv_residual(d: Draft, s: Shape) -> Sequence[str]:
    """Channels read and made, side of the image; one by one."""
    channels, made, side = s
    x, weights = d.input(1, channels, side, side), d.input(made, channels, 1, 1)
    mixed = _convolved(d, x, weights, pads=0)
    return [d.op("relu", d.op("add", mixed, d.input(1, made, side, side)))]


def _depthwise(d: Draft, s: Shape) -> Sequence[str]:
    """Channels, side of the image."""
    channels, side = s
    x, weights = d.input(1, channels, side, side), d.input(channels, 1, 3, 3)
    mixed = _convolved(d, x, weights, pads=1, group=channels)
    return [d.op("mul", mixed, d.op("sigmoid", mixed))]


def _pooled(d: Draft, op: str, x: str, size: int, **more: int) -> str:
    return d.op(
        op,
        x,
        kernel=(size, size),
        strides=(2, 2),
        pads=((size - 1) // 2,) * 4,
        dilations=(1, 1),
        ceil=0,
        **more,
    )


def _max_pool(d: Draft, s: Shape) -> Sequence[str]:
    biased = d.op("add", d.input(*s), d.input(s[1], 1, 1))
    return [_pooled(d, "max_pool", d.op("relu", biased), 3)]


def _average_pool(d: Draft, s: Shape) -> Sequence[str]:
    pooled = _pooled(d, "average_pool", d.input(*s), 2, count_pads=0)
    return [d.op("mul", pooled, d.op("sigmoid", pooled))]


_ROWS: Final[tuple[tuple[str, Make, tuple[Shape, ...]], ...]] = (
    ("add_relu", _relu_add, ((64, 96), (1024, 768), (4096, 1536))),
    ("bias_gelu", _bias_gelu, ((128, 384), (1024, 3072))),
    ("swiglu", _swiglu, ((96, 512), (1024, 4096))),
    ("adam", _adam, ((256, 256), (1536, 1024))),
    ("scale_shift", _scale_shift, ((2, 32, 28, 28), (8, 256, 56, 56))),
    ("transpose_add", _transpose_add, ((192, 160), (1024, 1536), (3072, 2048))),
    ("heads", _heads, ((2, 64, 8, 32), (4, 512, 12, 64))),
    ("slice_mul", _slice_mul, ((64, 256), (1024, 4096))),
    ("rotary", _rotary, ((4, 64, 32), (16, 512, 64))),
    ("pad_relu", _pad_relu, ((2, 16, 30, 30), (4, 128, 56, 56))),
    ("embedding", _embedding, ((1000, 96), (8000, 768))),
    ("narrow", _narrow, ((128, 500), (2048, 2048))),
    ("polynomial", _polynomial, ((64, 1000), (1024, 2000))),
    ("outer", _outer, ((96, 200), (2048, 1024))),
    ("row_sum", _row_sum, ((64, 300), (1024, 1000), (512, 16384))),
    ("softmax", _softmax, ((96, 80), (3072, 128), (1024, 1024))),
    ("masked_softmax", _masked_softmax, ((192, 64), (12288, 128))),
    ("layer_norm", _layer_norm, ((64, 192), (1024, 768), (4096, 1024))),
    ("rms_norm", _rms_norm, ((32, 512), (1024, 2048))),
    ("group_norm", _group_norm, ((2, 8, 16, 16), (2, 320, 64, 64))),
    ("column_sum", _column_sum, ((200, 64), (2048, 1024))),
    ("column_norm", _column_norm, ((64, 128), (1000, 1024))),
    ("channel_mean", _channel_mean, ((4, 24, 14, 14), (8, 128, 56, 56))),
    ("transposed_sum", _transposed_sum, ((128, 96), (2048, 1024))),
    ("recomputed", _recomputed, ((64, 100), (2048, 512))),
    ("linear_gelu", _linear_gelu, ((64, 96, 160), (256, 384, 512))),
    ("linear_residual", _linear_residual, ((48, 128, 96), (200, 500, 300))),
    ("scores", _scores, ((2, 64, 32), (12, 128, 64))),
    ("conv_relu", _conv_relu, ((16, 24, 14), (32, 64, 28))),
    ("conv_residual", _conv_residual, ((24, 48, 14), (64, 128, 28))),
    ("depthwise", _depthwise, ((32, 14), (144, 56))),
    ("max_pool", _max_pool, ((1, 16, 28, 28), (4, 64, 112, 112))),
    ("average_pool", _average_pool, ((1, 24, 14, 14), (4, 96, 56, 56))),
)  # fmt: skip


def samples() -> tuple[Sample, ...]:
    """Every kernel at every size; all of them can be generated."""
    found = []
    for name, make, shapes in _ROWS:
        for shape in shapes:
            draft = Draft()
            outputs = make(draft, shape)
            graph = draft.graph(*outputs)
            found.append(Sample(name=name, shape=shape, graph=graph))
    return tuple(found)


def fusion_pairs() -> Iterator[FusionPair]:
    """Every kernel of the corpus, cut in two at each place where both halves run."""
    for sample in samples():
        yield from _cuts(sample)


def _cuts(sample: Sample) -> Iterator[FusionPair]:
    graph = sample.graph
    for place in range(1, len(graph.nodes)):
        names = [node.name for node in graph.nodes]
        parts = tuple(
            extract(graph, make_region(graph, half))
            for half in (names[:place], names[place:])
        )
        if all(_runs(part) for part in parts):
            yield FusionPair(
                name=f"{sample.name}{list(sample.shape)}/{place}",
                whole=graph,
                parts=(parts[0], parts[1]),
            )


def _runs(graph: Graph) -> bool:
    try:
        lower(graph)
    except CannotLower:
        return False
    return True
