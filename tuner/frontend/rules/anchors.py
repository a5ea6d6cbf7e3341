"""Contractions, windows and resizing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.rules.views import repeat
from tuner.ir.types import DType

_RESIZE_HAS_MODES: Final = 11


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


def _upsample(b: Builder, call: Call) -> Results:
    scales = call.attributes.get("scales") or b.value(call[1]).reshape(-1).tolist()
    if call.text("mode", "nearest") != "nearest":
        raise Decline("interpolates")
    counts = [int(scale) for scale in scales]
    if any(scale != count for scale, count in zip(scales, counts, strict=True)):
        raise Decline("fractional scales")
    return (repeat(b, call[0], counts, each=True),)


def _resize(b: Builder, call: Call) -> Results:
    """Resize that picks the nearest element: an index per axis, often a repeat."""
    data = call[0]
    if call.text("mode", "nearest") != "nearest" or call.whole("antialias", 0):
        raise Decline("interpolates")
    shape = b.static(data)
    scales, sizes = _targets(b, call, shape)
    indices = [
        _nearest(call, shape[axis], sizes[axis], scales[axis])
        for axis in range(len(shape))
    ]
    counts = [size // extent for size, extent in zip(sizes, shape, strict=True)]
    if all(
        np.array_equal(index, np.repeat(np.arange(extent), count))
        for index, extent, count in zip(indices, shape, counts, strict=True)
    ):
        return (repeat(b, data, counts, each=True),)
    for axis, index in enumerate(indices):
        if not np.array_equal(index, np.arange(shape[axis])):
            data = b.emit("gather", data, b.constant(index, DType.I64), axis=axis)
    return (data,)


def _targets(
    b: Builder, call: Call, shape: Sequence[int]
) -> tuple[list[float], list[int]]:
    if call.opset < _RESIZE_HAS_MODES:
        scale_ref, size_ref = call.optional(1), None
    else:
        scale_ref, size_ref = call.optional(2), call.optional(3)
    axes = call.several("axes") or tuple(range(len(shape)))
    if call.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Decline("keeps the aspect ratio")
    scales, sizes = [1.0] * len(shape), list(shape)
    if size_ref is not None and b.ints(size_ref):
        for axis, size in zip(axes, b.ints(size_ref), strict=True):
            sizes[b.axis(call[0], axis)] = size
            scales[b.axis(call[0], axis)] = size / shape[axis]
    elif scale_ref is not None:
        for axis, scale in zip(axes, b.value(scale_ref).tolist(), strict=True):
            scales[b.axis(call[0], axis)] = scale
            sizes[b.axis(call[0], axis)] = math.floor(shape[axis] * scale)
    return scales, sizes


def _nearest(call: Call, extent: int, size: int, scale: float) -> Any:
    """Source index of every element of an axis (ONNX Resize, nearest)."""
    if size == extent and scale == 1:
        return np.arange(extent)
    old = "asymmetric" if call.opset < _RESIZE_HAS_MODES else "half_pixel"
    mode = call.text("coordinate_transformation_mode", old)
    place = np.arange(size, dtype=np.float64)
    if mode == "asymmetric":
        place = place / scale
    elif mode == "half_pixel" or (mode == "pytorch_half_pixel" and size > 1):
        place = (place + 0.5) / scale - 0.5
    elif mode == "pytorch_half_pixel":
        place = place * 0
    elif mode == "align_corners":
        place = place * ((extent - 1) / (size - 1)) if size > 1 else place * 0
    else:
        raise Decline(mode)
    old = "floor" if call.opset < _RESIZE_HAS_MODES else "round_prefer_floor"
    rounding = _ROUNDINGS[call.text("nearest_mode", old)]
    return np.clip(rounding(place), 0, extent - 1).astype(np.int64)


_ROUNDINGS: Final[Mapping[str, Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda place: np.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: np.floor(place + 0.5),
}

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "AveragePool": _pool("average_pool"),
        "Conv": _conv,
        "Gemm": _gemm,
        "MatMul": _matmul,
        "MaxPool": _pool("max_pool"),
        "Resize": _resize,
        "Upsample": _upsample,
    }
)
