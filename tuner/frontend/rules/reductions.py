"""Reductions, and normalisations that the standard has no body for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tuner.frontend.builder import Builder, Decline, Ref
from tuner.frontend.call import Call, Results, Rule
from tuner.ir.types import DType

_SOFTMAX_HAS_BODY: Final = 13
_BATCH_HAS_MODE: Final = 14
_REDUCTIONS_HAVE_BODIES: Final = 18


def _axes(b: Builder, call: Call) -> tuple[int, ...] | None:
    """Sorted axes to reduce; None when nothing is to be reduced."""
    axes = call.several("axes")
    given = call.optional(1)
    if axes is None and given is not None:
        axes = b.ints(given)
    if not axes:
        if call.whole("noop_with_empty_axes", 0):
            return None
        return tuple(range(b.rank(call[0])))
    return tuple(sorted({b.axis(call[0], axis) for axis in axes}))


def reduce_(b: Builder, row: str, ref: Ref, axes: Sequence[int], *, keep: bool) -> Ref:
    """A reduction; nothing when there are no axes."""
    if not axes:
        return ref
    return b.emit(row, ref, axes=tuple(axes), keepdims=int(keep))


def mean(b: Builder, ref: Ref, axes: Sequence[int], *, keep: bool) -> Ref:
    """The sum divided by the number of elements."""
    count = math.prod(b.sizes.of(b.shape(ref)[axis]) for axis in axes)
    if not isinstance(count, int):
        raise Decline("the mean over a symbolic number of elements")
    total = reduce_(b, "reduce_sum", ref, axes, keep=keep)
    return b.emit("div", total, b.scalar(count, ref))


def _plain(row: str) -> Rule:
    def rule(b: Builder, call: Call) -> Results:
        axes = _axes(b, call)
        if axes is None:
            return (call[0],)
        keep = bool(call.whole("keepdims", 1))
        return (reduce_(b, row, call[0], axes, keep=keep),)

    return rule


def _mean(b: Builder, call: Call) -> Results:
    axes = _axes(b, call)
    if axes is None:
        return (call[0],)
    return (mean(b, call[0], axes, keep=bool(call.whole("keepdims", 1))),)


def _composed(before: str, after: str) -> Rule:
    """Reductions whose body the standard has since opset 18 only."""

    def rule(b: Builder, call: Call) -> Results:
        if call.opset >= _REDUCTIONS_HAVE_BODIES:
            raise Decline("the standard has a body")
        data, axes = call[0], _axes(b, call) or ()
        if before == "square":
            data = b.emit("mul", data, data)
        elif before:
            data = b.emit(before, data)
        keep = bool(call.whole("keepdims", 1))
        result = reduce_(b, "reduce_sum", data, axes, keep=keep)
        return (b.emit(after, result) if after else result,)

    return rule


def _log_sum_exp(b: Builder, call: Call) -> Results:
    if call.opset >= _REDUCTIONS_HAVE_BODIES:
        raise Decline("the standard has a body")
    data, axes = call[0], _axes(b, call) or ()
    keep = bool(call.whole("keepdims", 1))
    peak = reduce_(b, "reduce_max", data, axes, keep=True)
    powers = b.emit("exp", b.emit("sub", data, peak))
    total = b.emit("log", reduce_(b, "reduce_sum", powers, axes, keep=True))
    result = b.emit("add", total, peak)
    if keep:
        return (result,)
    shape = [d for axis, d in enumerate(b.shape(data)) if axis not in axes]
    return (b.reshape(result, shape),)


def _global(row: str) -> Rule:
    def rule(b: Builder, call: Call) -> Results:
        axes = tuple(range(2, b.rank(call[0])))
        if row == "mean":
            return (mean(b, call[0], axes, keep=True),)
        return (reduce_(b, row, call[0], axes, keep=True),)

    return rule


def _softmax(b: Builder, call: Call) -> Results:
    """Softmax and LogSoftmax before opset 13: over all axes from `axis` on."""
    if call.opset >= _SOFTMAX_HAS_BODY:
        raise Decline("the standard has a body")
    data = call[0]
    rank = b.rank(data)
    axis = call.whole("axis", 1)
    axes = tuple(range(axis % max(rank, 1) if axis < 0 else axis, rank))
    peak = reduce_(b, "reduce_max", data, axes, keep=True)
    shifted = b.emit("sub", data, peak)
    powers = b.emit("exp", shifted)
    total = reduce_(b, "reduce_sum", powers, axes, keep=True)
    if call.op == "Softmax":
        return (b.emit("div", powers, total),)
    return (b.emit("sub", shifted, b.emit("log", total)),)


def along_channels(b: Builder, ref: Ref, rank: int) -> Ref:
    """A vector of channel values, shaped to meet (batch, channel, ...) data."""
    return b.reshape(ref, (*b.shape(ref), *[1] * max(rank - 2, 0)))


def _variance(b: Builder, data: Ref, middle: Ref, axes: Sequence[int]) -> Ref:
    apart = b.emit("sub", data, middle)
    return mean(b, b.emit("mul", apart, apart), axes, keep=True)


def _instance_normalization(b: Builder, call: Call) -> Results:
    data, rank = call[0], b.rank(call[0])
    axes = tuple(range(2, rank))
    middle = mean(b, data, axes, keep=True)
    apart = b.emit("sub", data, middle)
    spread = mean(b, b.emit("mul", apart, apart), axes, keep=True)
    epsilon = b.scalar(call.real("epsilon", 1e-5), data)
    deviation = b.emit("sqrt", b.emit("add", spread, epsilon))
    normal = b.emit("div", apart, deviation)
    scale, shift = (along_channels(b, call[i], rank) for i in (1, 2))
    return (b.emit("add", b.emit("mul", normal, scale), shift),)


def _batch_normalization(b: Builder, call: Call) -> Results:
    training = call.opset >= _BATCH_HAS_MODE and call.whole("training_mode", 0)
    if call.opset < _BATCH_HAS_MODE and any(call.outputs[1:]):
        raise Decline("training mode of an old opset")
    return _batch_training(b, call) if training else _batch_inference(b, call)


def _batch_inference(b: Builder, call: Call) -> Results:
    """Scale and shift per channel, so that both can be folded into weights."""
    data, rank = call[0], b.rank(call[0])
    scale, shift, middle, spread = (call[i] for i in range(1, 5))
    factor = b.cast(_factor(b, call, scale, spread), b.dtype(data))
    moved = b.emit("mul", b.cast(middle, b.dtype(data)), factor)
    offset = b.emit("sub", b.cast(shift, b.dtype(data)), moved)
    scaled = b.emit("mul", data, along_channels(b, factor, rank))
    return (b.emit("add", scaled, along_channels(b, offset, rank)),)


def _factor(b: Builder, call: Call, scale: Ref, spread: Ref) -> Ref:
    epsilon = b.scalar(call.real("epsilon", 1e-5), spread)
    deviation = b.emit("sqrt", b.emit("add", spread, epsilon))
    return b.emit("div", b.cast(scale, b.dtype(spread)), deviation)


def _batch_training(b: Builder, call: Call) -> Results:
    """Live statistics: mean and variance of the batch, and the running ones."""
    data, rank = call[0], b.rank(call[0])
    if b.dtype(data) in (DType.F16, DType.BF16) or rank == 1:
        raise Decline("16-bit statistics")
    axes = (0, *range(2, rank))
    middle = mean(b, data, axes, keep=True)
    apart = b.emit("sub", data, middle)
    spread = mean(b, b.emit("mul", apart, apart), axes, keep=True)
    epsilon = b.scalar(call.real("epsilon", 1e-5), spread)
    deviation = b.emit("sqrt", b.emit("add", spread, epsilon))
    scale, shift = (along_channels(b, call[i], rank) for i in (1, 2))
    normal = b.emit("div", apart, deviation)
    result = b.emit("add", b.emit("mul", normal, scale), shift)
    momentum = call.real("momentum", 0.9)
    running = [
        _blend(b, call[given], batch, momentum) if call.asks(output) else None
        for output, given, batch in ((1, 3, middle), (2, 4, spread))
    ]
    return (result, *running)


def _blend(b: Builder, old: Ref, new: Ref, momentum: float) -> Ref:
    flat = b.cast(b.reshape(new, b.shape(old)), b.dtype(old))
    kept = b.emit("mul", old, b.scalar(momentum, old))
    added = b.emit("mul", flat, b.scalar(1 - momentum, old))
    return b.emit("add", kept, added)


def _lp_normalization(b: Builder, call: Call) -> Results:
    data = call[0]
    axes = (b.axis(data, call.whole("axis", -1)),)
    if call.whole("p", 2) == 1:
        norm = reduce_(b, "reduce_sum", b.emit("abs", data), axes, keep=True)
    else:
        square = b.emit("mul", data, data)
        norm = b.emit("sqrt", reduce_(b, "reduce_sum", square, axes, keep=True))
    is_zero = b.emit("equal", norm, b.scalar(0, norm))
    safe = b.emit("where", is_zero, b.scalar(1, norm), norm)
    return (b.emit("div", data, safe),)


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        "BatchNormalization": _batch_normalization,
        "GlobalAveragePool": _global("mean"),
        "GlobalMaxPool": _global("reduce_max"),
        "InstanceNormalization": _instance_normalization,
        "LogSoftmax": _softmax,
        "LpNormalization": _lp_normalization,
        "ReduceL1": _composed("abs", ""),
        "ReduceL2": _composed("square", "sqrt"),
        "ReduceLogSum": _composed("", "log"),
        "ReduceLogSumExp": _log_sum_exp,
        "ReduceMax": _plain("reduce_max"),
        "ReduceMean": _mean,
        "ReduceMin": _plain("reduce_min"),
        "ReduceProd": _plain("reduce_prod"),
        "ReduceSum": _plain("reduce_sum"),
        "ReduceSumSquare": _composed("square", ""),
        "Softmax": _softmax,
    }
)
