"""Small facts about shapes that several rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tuner.ir.graph import Attribute
from tuner.ir.inference import broadcast
from tuner.ir.types import Dim, TensorType
from tuner.rewrite.rule import Make, Value, View


def attributes(**values: Attribute) -> Mapping[str, Attribute]:
    """Attributes of a node to make."""
    return MappingProxyType(values)


def reshaped(value: Value, shape: Sequence[Dim]) -> Make:
    """A value in another shape."""
    return Make("reshape", (value,), attributes(shape=tuple(shape)))


def fitted(view: View, tensor: str, wanted: TensorType) -> Value | None:
    """A tensor, broadcast to a type where it has not got it; None if it cannot."""
    given = view.type(tensor)
    if given == wanted:
        return tensor
    if given.dtype is not wanted.dtype:
        return None
    if joined(given.shape, wanted.shape) != wanted.shape:
        return None
    if without_units(given.shape) == without_units(wanted.shape):
        return reshaped(tensor, wanted.shape)
    return Make("expand", (tensor,), attributes(shape=wanted.shape))


def joined(*shapes: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Common shape of operands; None where they do not broadcast."""
    try:
        return broadcast(shapes)
    except ValueError:
        return None


def without_units(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """The extents that are not one."""
    return tuple(extent for extent in shape if extent != 1)


def merged_groups(
    before: Sequence[Dim], after: Sequence[Dim]
) -> tuple[tuple[int, ...], ...] | None:
    """For each axis after a reshape the axes that were merged into it.

    Returns:
        None where the reshape splits an axis, or where symbols hide what it does.
    """
    groups: list[tuple[int, ...]] = []
    start = 0
    for extent in after:
        end = start + 1
        found: Dim = before[start] if start < len(before) else 1
        while end < len(before) and (found != extent or before[end] == 1):
            step = before[end]
            if not isinstance(found, int) or not isinstance(step, int):
                break
            found *= step
            end += 1
        if found != extent or start >= len(before):
            return None
        groups.append(tuple(range(start, end)))
        start = end
    return tuple(groups) if start == len(before) else None
