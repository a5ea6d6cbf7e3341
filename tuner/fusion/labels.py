"""Which row each element of a tensor belongs to, without writing every element down.

A label is a row number for each element. Nearly always it is an affine function of the
element's index, and that is what `Affine` holds. Where it is not (concatenation,
padding, odd reshapes), an array holds it, and -1 marks elements without a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Affine:
    """Row number `offset + sum(stride * index)`; every element has a row."""

    offset: int
    shape: Shape
    strides: Shape

    def __post_init__(self) -> None:
        """Give axes of one element no stride, so that equal labels compare equal."""
        kept = tuple(
            0 if n == 1 else s for n, s in zip(self.shape, self.strides, strict=True)
        )
        object.__setattr__(self, "strides", kept)


Label = Affine | IntArray


def array_of(label: Label) -> IntArray:
    """The label, element by element."""
    if isinstance(label, np.ndarray):
        return label
    total = np.full(label.shape, label.offset, dtype=np.int64)
    for axis, (extent, stride) in enumerate(
        zip(label.shape, label.strides, strict=True)
    ):
        if stride:
            steps = np.arange(extent) * stride
            total += steps.reshape([-1] + [1] * (len(label.shape) - axis - 1))
    return total


def counting(shape: Shape) -> Affine:
    """0, 1, 2, ... in memory order."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return Affine(offset=0, shape=shape, strides=tuple(reversed(strides)))


def merged(label: Affine) -> tuple[tuple[int, int], ...]:
    """(extent, stride) pairs with neighbours joined wherever they run on.

    Two affine labels are the same function of the position in memory exactly when
    their offsets and merged pairs are equal: a boundary that stays is a point where
    the function is not linear, and that does not depend on the shape.
    """
    found: list[tuple[int, int]] = []
    for extent, stride in zip(label.shape, label.strides, strict=True):
        if extent == 1:
            continue
        if found and found[-1][1] == stride * extent:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(found)


def reshape(label: Label, shape: Shape) -> Label:
    """The same elements in another shape."""
    if isinstance(label, np.ndarray):
        return label.reshape(shape)
    if 0 in shape:
        return Affine(offset=label.offset, shape=shape, strides=(0,) * len(shape))
    strides = _split(merged(label), shape)
    if strides is None:
        return array_of(label).reshape(shape)
    return Affine(offset=label.offset, shape=shape, strides=strides)


def _split(pairs: Sequence[tuple[int, int]], shape: Shape) -> Shape | None:
    """Strides of a new shape, or None where an extent straddles a boundary."""
    strides: list[int] = []
    rest = list(pairs)
    for extent in reversed(shape):
        if extent == 1:
            strides.append(0)
            continue
        if not rest or rest[-1][0] % extent:
            return None
        left, stride = rest.pop()
        strides.append(stride)
        if left > extent:
            rest.append((left // extent, stride * extent))
    return tuple(reversed(strides))


def spread(label: Label, shape: Shape) -> Label:
    """Broadcast to a shape, by NumPy's rules."""
    if isinstance(label, np.ndarray):
        return np.broadcast_to(label, shape)
    lead = len(shape) - len(label.shape)
    strides = (0,) * lead + label.strides
    return Affine(offset=label.offset, shape=shape, strides=strides)


def permuted(label: Label, perm: Sequence[int]) -> Label:
    """Axes in another order."""
    if isinstance(label, np.ndarray):
        return label.transpose(perm)
    return Affine(
        offset=label.offset,
        shape=tuple(label.shape[axis] for axis in perm),
        strides=tuple(label.strides[axis] for axis in perm),
    )


def cut(
    label: Label, starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]
) -> Label:
    """Every `step`-th element from `start`, `size` of them, along each axis."""
    if isinstance(label, np.ndarray):
        grid = [
            start + step * np.arange(size)
            for start, step, size in zip(starts, steps, sizes, strict=True)
        ]
        return label[np.ix_(*grid)] if grid else label
    moved = zip(starts, label.strides, strict=True)
    return Affine(
        offset=label.offset + sum(start * stride for start, stride in moved),
        shape=tuple(sizes),
        strides=tuple(
            step * stride for step, stride in zip(steps, label.strides, strict=True)
        ),
    )


def join(first: Label | None, second: Label) -> Label | None:
    """Labels of a value made of two others; None where rows are mixed."""
    if first is None:
        return second
    if isinstance(first, Affine) and isinstance(second, Affine):
        return first if first == second else None
    a, b = array_of(first), array_of(second)
    if np.any((a >= 0) & (b >= 0) & (a != b)):
        return None
    return np.maximum(a, b)


def grouped(label: Label | None, axes: Sequence[int], shape: Shape) -> Label | None:
    """Row number of every reduced group, in the kept shape; None where rows mix.

    Args:
        label: of the reduced tensor; None when nothing in it has a row yet.
        axes: reduced axes.
        shape: of the reduced tensor.
    """
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    if label is None:
        return counting(kept)
    if isinstance(label, Affine):
        if any(label.strides[axis] for axis in axes):
            return None
        return Affine(offset=label.offset, shape=kept, strides=label.strides)
    high = np.asarray(label.max(axis=tuple(axes), keepdims=True))
    low = np.where(label < 0, high, label).min(axis=tuple(axes), keepdims=True)
    if not np.array_equal(low, high):
        return None
    own = np.arange(math.prod(kept)).reshape(kept)
    return np.where(high < 0, own, high)


def same_order(label: Label, expected: Affine) -> bool:
    """Whether a label, where it is set, equals another in memory order."""
    if math.prod(label.shape) != math.prod(expected.shape):
        return False
    if isinstance(label, Affine):
        return label.offset == expected.offset and merged(label) == merged(expected)
    flat = label.ravel()
    wanted = array_of(expected).ravel()
    return bool(np.all((flat == wanted) | (flat < 0)))
