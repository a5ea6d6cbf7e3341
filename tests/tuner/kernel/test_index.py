"""Index arithmetic against brute force."""

from __future__ import annotations

import itertools
import math
from random import Random

import pytest

from tuner.kernel.index import (
    ZERO,
    AtomKind,
    Guard,
    Index,
    Map,
    Refine,
    Space,
    flatten,
    plus,
    refined,
    runs,
    shifted,
    strides_of,
    times,
)


def value(space: Space, index: Index, point: tuple[int, ...]) -> int:
    """An index at one point of the loops."""
    total = index.constant
    for number, coefficient in index.terms:
        atom = space.atoms[number]
        if atom.kind is AtomKind.LOOP:
            inner = point[number]
        else:
            divided = value(space, atom.operand, point)
            assert divided >= 0, "C divides towards zero"
            quotient, rest = divmod(divided, atom.divisor)
            assert quotient < atom.extent or atom.kind is AtomKind.REMAINDER
            inner = quotient if atom.kind is AtomKind.QUOTIENT else rest
        total += coefficient * inner
    return total


def points(space: Space) -> itertools.product[tuple[int, ...]]:
    """Every point of the loops, slowest loop first."""
    return itertools.product(*(range(a.extent) for a in space.atoms[: space.loops]))


def factored(rng: Random, count: int) -> tuple[int, ...]:
    """A random shape of so many elements."""
    shape = []
    while count > 1:
        factor = rng.choice([n for n in range(2, count + 1) if count % n == 0])
        shape.append(factor)
        count //= factor
        if rng.random() < 0.2:
            shape.append(1)
    return tuple(shape)


@pytest.mark.parametrize("seed", range(30))
def test_reshapes_in_sequence_keep_every_element(seed: int) -> None:
    """Any chain of reshapes is the flat position, split loops or not."""
    rng = Random(seed)
    count = rng.choice((12, 24, 36, 60, 210))
    shapes = [factored(rng, count) for _ in range(rng.randint(2, 4))]
    factors: dict[int, tuple[int, ...]] = {}
    while True:
        space = Space(shapes[0], factors)
        place: Map = space.axes
        try:
            for old, new in itertools.pairwise(shapes):
                place = space.reshape(place, old, new)
            break
        except Refine as request:
            factors = refined(factors, shapes[0], request)
    flat = flatten(place, shapes[-1])
    assert [value(space, flat, point) for point in points(space)] == list(range(count))


def test_a_split_makes_quotient_and_remainder_plain_sums() -> None:
    """Splitting heads off the last axis asks for one split, then needs no division."""
    space = Space((10, 768), {})
    with pytest.raises(Refine) as caught:
        space.reshape(space.axes, (10, 768), (10, 12, 64))
    factors = refined({}, (10, 768), caught.value)
    assert factors == {1: (12, 64)}
    space = Space((10, 768), factors)
    place = space.reshape(space.axes, (10, 768), (10, 12, 64))
    assert place == tuple(Index(0, ((atom, 1),)) for atom in range(3))
    assert len(space.atoms) == space.loops


def test_what_cannot_be_split_is_divided() -> None:
    """A shifted axis has a true quotient and remainder, each made once."""
    space = Space((7,), {})
    moved = shifted(space.axes[0], 2)
    first, second = space.divide(moved, 5), space.divide(moved, 5)
    assert first == second
    assert len(space.atoms) == space.loops + 2
    for point in points(space):
        pair = tuple(value(space, index, point) for index in first)
        assert pair == divmod(point[0] + 2, 5)


@pytest.mark.parametrize("step", [-1, -2, -3, -5])
def test_an_axis_walked_backwards_is_divided_from_zero_up(step: int) -> None:
    """Quotient and remainder of a falling index are floored, in C as in Python."""
    for divisor in (2, 3, 4, 7, 16):
        space = Space((6,), {})
        falling = shifted(times(space.axes[0], step), -5 * step)
        pair = space.divide(falling, divisor)
        for point in points(space):
            found = tuple(value(space, index, point) for index in pair)
            assert found == divmod(step * (point[0] - 5), divisor)
            bounds = [space.bounds(index) for index in pair]
            assert all(
                low <= n <= high for n, (low, high) in zip(found, bounds, strict=True)
            )


def test_runs_merge_loops_that_stay_together() -> None:
    """A contiguous index is one run; a broadcast over the last loop is a quotient."""
    space = Space((4, 5, 6), {})
    loops = range(3)
    whole = flatten(space.axes, (4, 5, 6))
    (run,) = runs(space.atoms, whole, list(loops))
    assert (run.below, run.extent, run.is_first, run.coefficient) == (1, 120, True, 1)
    rows = flatten(space.axes[:2], (4, 5))
    (run,) = runs(space.atoms, rows, list(loops))
    assert (run.below, run.extent, run.is_first) == (6, 20, True)
    columns = flatten(space.axes[2:], (6,))
    (run,) = runs(space.atoms, columns, list(loops))
    assert (run.below, run.is_first) == (1, False)


def test_sums_cancel_and_bounds_hold() -> None:
    """Terms that cancel vanish; bounds are those of the corner points."""
    space = Space((3, 4), {})
    x, y = space.axes
    assert plus(x, times(x, -1)) == ZERO
    assert space.bounds(plus(shifted(times(x, -2), 1), y)) == (-3, 4)
    assert math.prod((3, 4)) == strides_of((3, 4))[0] * 3
    assert Guard(x, 0, 3).subject == x
