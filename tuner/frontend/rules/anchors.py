"""Contractions and windows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.rules.movement import cut, pad


def _matmul(b: Builder, call: Call) -> Results:
    return (b.emit("matmul", call[0], call[1]),)


def _gemm(b: Builder, call: Call) -> Results:
    left, right, bias = call[0], call[1], call.optional(2)
    if call.whole("transA", 0):
        left = b.emit("transpose", left, perm=(1, 0))
    if call.whole("transB", 0):
        right = b.emit("transpose", right, perm=(1, 0))
    result = _times(b, b.emit("matmul", left, right), call.real("alpha", 1.0))
    if bias is None:
        return (result,)
    return (b.emit("add", result, _times(b, bias, call.real("beta", 1.0))),)


def _times(b: Builder, ref: Ref, factor: float) -> Ref:
    if factor == 1:
        return ref
    return b.emit("mul", ref, b.scalar(factor, ref))


def _spans(
    call: Call, extents: Sequence[int], kernel: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """Strides, dilations and pads, with `auto_pad` worked out."""
    rank = len(kernel)
    strides = call.several("strides") or (1,) * rank
    dilations = call.several("dilations") or (1,) * rank
    pads = call.several("pads") or (0,) * (2 * rank)
    mode = call.text("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * rank)
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max(
                (-(-extent // strides[axis]) - 1) * strides[axis]
                + dilations[axis] * (kernel[axis] - 1)
                + 1
                - extent,
                0,
            )
            for axis, extent in enumerate(extents)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        pads = (*small, *large) if mode == "SAME_UPPER" else (*large, *small)
    return {"strides": strides, "dilations": dilations, "pads": pads}


def _spatial(b: Builder, ref: Ref) -> tuple[int, ...]:
    spatial = b.shape(ref)[2:]
    if not all(isinstance(dim, int) for dim in spatial):
        raise Decline(f"symbolic spatial extents {spatial}")
    return tuple(int(dim) for dim in spatial)


def _conv(b: Builder, call: Call) -> Results:
    data, weights = call[0], call[1]
    group = call.whole("group", 1)
    channels, inner = b.shape(data)[1], b.static(weights)[1]
    if isinstance(channels, int) and channels != inner * group:
        raise InvalidModel(
            b.where, f"{channels} channels meet weights for {inner * group}"
        )
    spans = _spans(call, _spatial(b, data), b.static(weights)[2:])
    return (b.emit("conv", *call.given(), group=group, **spans),)


def _pool(row: str) -> Rule:
    def rule(b: Builder, call: Call) -> Results:
        call.only(1)
        kernel = call.several("kernel_shape") or ()
        spans = _spans(call, _spatial(b, call[0]), kernel)
        extra: dict[str, Any] = {"ceil": call.whole("ceil_mode", 0)}
        if call.text("auto_pad", "NOTSET") != "NOTSET":
            extra["ceil"] = 0
        if row == "average_pool":
            extra["count_pads"] = call.whole("count_include_pad", 0)
        return (b.emit(row, call[0], kernel=kernel, **spans, **extra),)

    return rule


def _lp_pool(b: Builder, call: Call) -> Results:
    """The p-norm of each window: its mean of powers, times its size, to the 1/p."""
    data, kernel = call[0], call.several("kernel_shape") or ()
    if call.whole("ceil_mode", 0) or not b.dtype(data).is_float:
        raise Decline("windows that reach beyond the padding")
    power = call.whole("p", 2)
    spans = _spans(call, _spatial(b, data), kernel)
    raised = b.emit("abs", data)
    if power != 1:
        raised = b.emit("pow", raised, b.scalar(power, data))
    pooled = b.emit(
        "average_pool", raised, kernel=kernel, **spans, ceil=0, count_pads=1
    )
    total = _times(b, pooled, math.prod(kernel))
    if power == 1:
        return (total,)
    return (b.emit("pow", total, b.scalar(1 / power, data)),)


def _local_response(b: Builder, call: Call) -> Results:
    """Divide by a power of the squares' sum over neighbouring channels."""
    data, size = call[0], call.whole("size", 1)
    channels, rank = b.static(data)[1], b.rank(data)
    before, after = [0] * rank, [0] * rank
    before[1], after[1] = (size - 1) // 2, size // 2
    padded = pad(b, b.emit("mul", data, data), before, after, 0.0)
    total = cut(b, padded, 1, 0, channels)
    for place in range(1, size):
        total = b.emit("add", total, cut(b, padded, 1, place, channels))
    scaled = _times(b, total, call.real("alpha", 1e-4) / size)
    base = b.emit("add", scaled, b.scalar(call.real("bias", 1.0), data))
    power = b.scalar(call.real("beta", 0.75), data)
    return (b.emit("div", data, b.emit("pow", base, power)),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "AveragePool": _pool("average_pool"),
        "Conv": _conv,
        "Gemm": _gemm,
        "LRN": _local_response,
        "LpPool": _lp_pool,
        "MatMul": _matmul,
        "MaxPool": _pool("max_pool"),
    }
)
