"""Sums of exponentials over long rows in one walk.

The greatest element of a row is wanted before the first exponential. A long row is out
of the smallest cache by then, and memory rests while the second walk computes. Here
both passes go over a block of the row, which that cache holds, before either goes on.
The sum so far is scaled when a greater element is found, lane by lane, and the lanes'
sums are brought to the greatest of all at the end.

Log-sum-exp over rows of 32,768, 64 MiB, on two cores: 3.14 ms, in two walks 3.41.

Source: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.ir.expr import Call, Operand
from tuner.kernel.nest import Apply, Group, Kind, Reduced

if TYPE_CHECKING:
    from tuner.ir.expr import Expr
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import Value

CHAINS: Final = 8
"""Greatest elements of a block that are looked for side by side. A comparison waits for
the one before, eight cycles where NaN counts, in which a core could read four vectors
(cross-entropy over rows of 32,768: 2.96 ms of each core, 3.66 with one; the sum of the
exponentials gains nothing)."""
ONLINE_STEPS: Final = 128
"""Steps of the lanes in a block: 8 KiB of elements of four bytes, in two walks."""
_EXP: Final = Call("exp", (Operand(0),))
_SUB: Final = Call("sub", (Operand(0), Operand(1)))


class Online(NamedTuple):
    """Two reductions that one walk fills.

    Attributes:
        top: number of the maximum.
        total: of the sum of exponentials of differences from it.
        known: the value that holds the maximum.
    """

    top: int
    total: int
    known: int


def online(group: Group, mapping: Mapping) -> Online | None:
    """The first two passes of a group as one walk; None where that cannot be."""
    if group.kind is not Kind.ROW or group.serial or mapping.vector > 1:
        return None
    steps = group.inner_points // mapping.lanes
    if mapping.is_persistent or steps < 2 * ONLINE_STEPS or len(group.plan) < 2:  # noqa: PLR2004
        return None
    first, second = group.plan[:2]
    if any(each.stores or len(each.reductions) != 1 for each in (first, second)):
        return None
    found = Online(first.reductions[0], second.reductions[0], _known(group))
    return found if _is_sum_of_exponentials(group, found) else None


def _known(group: Group) -> int:
    """The value that holds the result of the first pass; -1 if there is none."""
    top = Reduced(group.plan[0].reductions[0])
    return next((n for n, v in enumerate(group.values) if v.what == top), -1)


def _is_sum_of_exponentials(group: Group, found: Online) -> bool:
    top, total = group.reductions[found.top], group.reductions[found.total]
    if (top.op, total.op) != ("reduce_max", "reduce_sum") or not total.dtype.is_float:
        return False
    below = _argument(group.values[total.source], _EXP, 0)
    if below is None:
        return False
    difference = group.values[below]
    ends = (_argument(difference, _SUB, 0), _argument(difference, _SUB, 1))
    return ends == (top.source, found.known) and _needed_late(group) == {found.known}


def _needed_late(group: Group) -> set[int]:
    """What the second pass needs of the first beside what it computes again."""
    values, walked = group.values, group.walked_mask
    needs = {need for n in group.plan[1].values for need in group.needs(n)}
    return {n for n in needs if values[n].stage and not values[n].loops & walked}


def _argument(value: Value, expression: Expr, place: int) -> int | None:
    what = value.what
    if isinstance(what, Apply) and what.expression == expression:
        return what.args[place]
    return None
