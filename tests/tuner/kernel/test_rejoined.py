"""Positions that views take apart and put together again are plain sums."""

from __future__ import annotations

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.test_side_by_side import squares
from tuner.kernel.index import Space, flatten
from tuner.kernel.lower import lower
from tuner.kernel.nest import Load
from tuner.kernel.split import halved, halves
from tuner.kernel.split_space import split_default


@pytest.mark.parametrize("middle", [(1000, 7), (8, 125, 7), (25, 40, 7), (40, 175)])
def test_a_position_taken_apart_is_put_together(middle: tuple[int, ...]) -> None:
    """Quotients and remainders by whatever extents cancel out on the way back."""
    extents = (7, 1000)
    space = Space(extents, {})
    apart = space.reshape(space.axes, extents, middle)
    assert any(atom >= space.loops for index in apart for atom, _ in index.terms)
    assert space.reshape(apart, middle, (7000,)) == (flatten(space.axes, extents),)


def test_only_a_quotient_and_its_own_remainder_are_joined() -> None:
    """A transposed position stays taken apart: its terms lie elsewhere."""
    space = Space((7, 1000), {})
    row, column = space.reshape(space.axes, (7, 1000), (1000, 7))
    turned = flatten((column, row), (7, 1000))
    assert space.rejoined(turned) == turned


def test_parts_of_a_matrix_are_read_in_order() -> None:
    """Where parts end inside of rows, their elements are still neighbours: vectors."""
    graph = squares((3000, 257))
    device = find("sm_90")
    nest = lower(graph)
    for schedule in split_default(nest, device):
        first, _ = halves(nest, schedule["parts"])
        (group,) = first.groups
        loads = [v.what for v in group.values if isinstance(v.what, Load)]
        for load in loads:
            assert all(
                atom < len(group.outer + group.inner + group.serial)
                for atom, _ in load.index.terms
            )


def test_moments_of_a_matrix_have_parts_of_any_length() -> None:
    """Two sums over the elements of one computed matrix lie over one another."""
    b = Builder()
    y = b.op("exp", b.input(41, 97))
    one = b.op("reduce_sum", y, axes=(0, 1), keepdims=0)
    two = b.op("reduce_sum", b.op("mul", y, y), axes=(0, 1), keepdims=0)
    graph = b.graph(b.op("sub", two, b.op("mul", one, one)))
    for parts in (2, 3, 7, 50):
        for half in halved(graph, parts):
            assert len(lower(half).groups) == 1
