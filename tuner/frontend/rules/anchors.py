"""Contractions and windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule


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


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "AveragePool": _pool("average_pool"),
        "Conv": _conv,
        "Gemm": _gemm,
        "MatMul": _matmul,
        "MaxPool": _pool("max_pool"),
    }
)
