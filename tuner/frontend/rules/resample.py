"""Resizing: every element of an axis is a weighted sum of known neighbours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.frontend.rules.views import repeat
from tuner.ir.types import DType

_RESIZE_HAS_MODES: Final = 11

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """How one axis is resized."""

    extent: int
    size: int
    scale: float

    @property
    def stays(self) -> bool:
        """Whether nothing happens."""
        return self.size == self.extent and self.scale == 1


def _upsample(b: Builder, call: Call) -> Results:
    scales = call.attributes.get("scales") or b.value(call[1]).reshape(-1).tolist()
    if call.text("mode", "nearest") != "nearest":
        raise Decline("interpolates")
    counts = [int(scale) for scale in scales]
    if any(scale != count for scale, count in zip(scales, counts, strict=True)):
        raise Decline("fractional scales")
    return (repeat(b, call[0], counts, each=True),)


def _resize(b: Builder, call: Call) -> Results:
    if call.whole("antialias", 0):
        raise Decline("antialias")
    axes = _targets(b, call)
    mode = call.text("mode", "nearest")
    if mode == "nearest":
        return (_by_nearest(b, call, axes),)
    if not b.dtype(call[0]).is_float:
        raise Decline("interpolates whole numbers")
    taps = {"linear": _linear, "cubic": _cubic}[mode]
    data = call[0]
    for axis, each in enumerate(axes):
        if not each.stays:
            data = _interpolated(b, data, axis, *taps(call, each))
    return (data,)


def _by_nearest(b: Builder, call: Call, axes: Sequence[_Axis]) -> Ref:
    """An index per axis, often a plain repeat."""
    data = call[0]
    indices = [_nearest(call, axis) for axis in axes]
    counts = [axis.size // max(axis.extent, 1) for axis in axes]
    if all(
        np.array_equal(index, np.repeat(np.arange(axis.extent), count))
        for index, axis, count in zip(indices, axes, counts, strict=True)
    ):
        return repeat(b, data, counts, each=True)
    for axis, index in enumerate(indices):
        if not np.array_equal(index, np.arange(axes[axis].extent)):
            data = b.emit("gather", data, b.constant(index, DType.I64), axis=axis)
    return data


def _interpolated(
    b: Builder, data: Ref, axis: int, indices: _Floats, weights: _Floats
) -> Ref:
    """Sum over taps: gathered neighbours times weights; both (taps, size)."""
    line = [1] * b.rank(data)
    line[axis] = indices.shape[1]
    total: Ref | None = None
    for index, weight in zip(indices, weights, strict=True):
        place = b.constant(index.astype(np.int64), DType.I64)
        part = b.emit("gather", data, place, axis=axis)
        factor = b.constant(weight.reshape(line), b.dtype(data))
        part = b.emit("mul", part, factor)
        total = part if total is None else b.emit("add", total, part)
    assert total is not None
    return total


def _targets(b: Builder, call: Call) -> list[_Axis]:
    shape = b.static(call[0])
    if call.opset < _RESIZE_HAS_MODES:
        scale_ref, size_ref = call.optional(1), None
    else:
        scale_ref, size_ref = call.optional(2), call.optional(3)
    axes = call.several("axes") or tuple(range(len(shape)))
    axes = tuple(b.axis(call[0], axis) for axis in axes)
    found = [_Axis(extent=n, size=n, scale=1.0) for n in shape]
    if size_ref is not None and b.ints(size_ref):
        for axis, size in zip(axes, b.ints(size_ref), strict=True):
            extent = shape[axis]
            found[axis] = _Axis(extent=extent, size=size, scale=size / extent)
        return _in_proportion(call, found, axes)
    if scale_ref is not None:
        for axis, scale in zip(axes, b.value(scale_ref).tolist(), strict=True):
            size = math.floor(shape[axis] * scale)
            found[axis] = _Axis(extent=shape[axis], size=size, scale=scale)
    return found


def _in_proportion(call: Call, found: list[_Axis], axes: Sequence[int]) -> list[_Axis]:
    """Sizes that keep the proportions of the axes, if that is asked for."""
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return found
    choose = min if policy == "not_larger" else max
    scale = choose(found[axis].scale for axis in axes)
    for axis in axes:
        extent = found[axis].extent
        size = math.floor(scale * extent + 0.5)
        found[axis] = _Axis(extent=extent, size=size, scale=scale)
    return found


def _coordinates(call: Call, axis: _Axis) -> _Floats:
    """Where each element of the result lies in the source.

    Source: ONNX Resize, attribute coordinate_transformation_mode.
    """
    old = "asymmetric" if call.opset < _RESIZE_HAS_MODES else "half_pixel"
    mode = call.text("coordinate_transformation_mode", old)
    if mode == "pytorch_half_pixel":
        mode = "half_pixel" if axis.size > 1 else "zero"
    formula = _COORDINATES.get(mode)
    if formula is None:
        raise Decline(mode)
    return formula(np.arange(axis.size, dtype=np.float64), axis)


def _align_corners(place: _Floats, axis: _Axis) -> _Floats:
    span = axis.scale * axis.extent - 1
    return place * ((axis.extent - 1) / span) if span else place * 0


def _half_pixel_symmetric(place: _Floats, axis: _Axis) -> _Floats:
    adjustment = axis.size / (axis.scale * axis.extent)
    centre = axis.extent / 2
    offset = centre * (1 - adjustment)
    return offset + (place + 0.5) / axis.scale - 0.5


_COORDINATES: Final[Mapping[str, Callable[[_Floats, _Axis], _Floats]]] = {
    "asymmetric": lambda place, axis: place / axis.scale,
    "half_pixel": lambda place, axis: (place + 0.5) / axis.scale - 0.5,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "align_corners": _align_corners,
    "zero": lambda place, _: place * 0,
}


def _nearest(call: Call, axis: _Axis) -> Any:
    """Source index of every element of an axis."""
    if axis.stays:
        return np.arange(axis.extent)
    place = _coordinates(call, axis)
    old = "floor" if call.opset < _RESIZE_HAS_MODES else "round_prefer_floor"
    rounding = _ROUNDINGS[call.text("nearest_mode", old)]
    return np.clip(rounding(place), 0, axis.extent - 1).astype(np.int64)


_ROUNDINGS: Final[Mapping[str, Any]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda place: np.ceil(place - 0.5),
    "round_prefer_ceil": lambda place: np.floor(place + 0.5),
}


def _linear(call: Call, axis: _Axis) -> tuple[_Floats, _Floats]:
    place = _coordinates(call, axis)
    first = np.floor(place)
    behind = place - first
    return _tapped(call, axis, first, np.stack([1 - behind, behind]), 0)


def _cubic(call: Call, axis: _Axis) -> tuple[_Floats, _Floats]:
    """Weights of the cubic convolution.

    Source: R. Keys, "Cubic Convolution Interpolation for Digital Image Processing",
    IEEE ASSP 29(6), 1981, as ONNX Resize states it.
    """
    a = call.real("cubic_coeff_a", -0.75)
    place = _coordinates(call, axis)
    first = np.floor(place)
    t = place - first
    u = 1 - t
    weights = np.stack(
        [
            ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
            ((a + 2) * t - (a + 3)) * t * t + 1,
            ((a + 2) * u - (a + 3)) * u * u + 1,
            ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a,
        ]
    )
    return _tapped(call, axis, first, weights, 1)


def _tapped(
    call: Call, axis: _Axis, first: _Floats, weights: _Floats, before: int
) -> tuple[_Floats, _Floats]:
    """Indices kept inside the axis; weights of what lies outside, if asked, are 0."""
    steps = np.arange(len(weights)).reshape(-1, 1) - before
    indices = first + steps
    inside = np.clip(indices, 0, axis.extent - 1)
    if call.whole("exclude_outside", 0):
        weights = np.where(indices == inside, weights, 0)
        weights = weights / weights.sum(axis=0)
    return inside, weights


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {"Resize": _resize, "Upsample": _upsample}
)
