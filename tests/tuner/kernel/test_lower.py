"""What a graph becomes: groups, passes, and what cannot be lowered."""

from __future__ import annotations

import pytest

from tests.tuner.kernel.builder import (
    Builder,
    add_layer_norm,
    bias_gelu,
    group_norm_silu,
    softmax,
)
from tuner.kernel.errors import CannotLower
from tuner.kernel.families import family_of
from tuner.kernel.index import AtomKind
from tuner.kernel.lower import lower
from tuner.kernel.nest import Kind, Load, Select
from tuner.plan import Family


def test_families_are_those_of_the_hardest_node() -> None:
    """A reduction makes a reduction; a matmul does not have one beside it."""
    b = Builder()
    x = b.input(8, 8)
    total = b.op("reduce_sum", x, axes=(1,), keepdims=1)
    assert family_of(b.graph(b.op("exp", x))) is Family.REDUCTION
    assert family_of(b.graph(total)) is Family.REDUCTION
    b.op("matmul", x, x)
    assert family_of(b.graph(total)) is Family.CONTRACTION
    with pytest.raises(CannotLower, match="follows 0 contractions"):
        lower(b.graph(total))


def test_a_bias_is_read_without_a_division() -> None:
    """Loops are cut where the bias begins again: inner positions are its index."""
    (group,) = lower(bias_gelu(64, 3072)).groups
    assert (group.outer_points, group.inner_points) == (64, 3072)


def test_a_chain_of_equal_shapes_is_one_flat_loop() -> None:
    """Axes that stay together in every access are walked as one."""
    b = Builder()
    x = b.op("add", b.input(2, 3, 4, 5), b.input(2, 3, 4, 5))
    (group,) = lower(b.graph(b.op("exp", x))).groups
    assert (group.outer, group.inner_points) == ((), 120)


def test_layer_norm_has_three_passes_and_stores_the_sum_in_the_first() -> None:
    """Values of an earlier pass are kept or computed again, as the schedule says."""
    (group,) = lower(add_layer_norm(8, 768)).groups
    assert group.kind is Kind.ROW
    first, second, third = group.plan
    assert [len(each.stores) for each in group.plan] == [1, 0, 1]
    assert not first.kept
    assert len(second.kept) == len(third.kept) == 1
    assert len(second.fresh) < len(second.values)


def test_columns_are_owned_by_threads() -> None:
    """A softmax over the outer axis walks down columns; rows are neighbours."""
    (group,) = lower(softmax(256, 100, axis=0)).groups
    assert group.kind is Kind.COLUMN
    assert (group.inner_points, group.serial_points) == (100, 256)


def test_short_rows_are_walked_by_one_thread_each() -> None:
    """Teams would idle on rows of a few elements."""
    (group,) = lower(softmax(1000, 8)).groups
    assert group.kind is Kind.COLUMN


def test_values_per_channel_are_read_once_per_run() -> None:
    """A group norm's row is walked channel by channel."""
    (group,) = lower(group_norm_silu(2, 32, 16, 8)).groups
    assert group.kind is Kind.ROW
    assert (group.serial_points, group.inner_points) == (4, 256)
    assert all(atom.kind is AtomKind.LOOP for atom in group.atoms)


def test_a_value_is_computed_once_however_many_read_it() -> None:
    """Equal expressions at equal places are one value."""
    b = Builder()
    x = b.input(16)
    e, f = b.op("exp", x), b.op("exp", x)
    (group,) = lower(b.graph(b.op("add", e, f), b.op("mul", e, e))).groups
    assert len(group.values) == 4
    assert sum(isinstance(v.what, Load) for v in group.values) == 1


def test_outputs_of_other_shapes_stand_side_by_side() -> None:
    """Horizontal fusion: each shape has blocks of its own."""
    b = Builder()
    outputs = [b.op("exp", b.input(*shape)) for shape in ((4, 8), (32,), (9,))]
    nest = lower(b.graph(*outputs))
    assert len(nest.groups) == 2  # the first two are walked together
    assert sum(len(group.stores) for group in nest.groups) == 3


def test_independent_work_stands_beside_a_reduction() -> None:
    """Pointwise outputs that no row explains have blocks of their own."""
    b = Builder()
    total = b.op("reduce_sum", b.input(40, 50), axes=(1,), keepdims=0)
    other = b.op("exp", b.input(7, 9))
    nest = lower(b.graph(total, other))
    assert [group.kind for group in nest.groups] == [Kind.ROW, Kind.POINTWISE]


def test_a_joined_output_is_stored_piece_by_piece() -> None:
    """Two row sums in one tensor: one kernel, two stores."""
    b = Builder()
    sums = [b.op("reduce_sum", b.input(40, 50), axes=(1,), keepdims=0) for _ in "ab"]
    (group,) = lower(b.graph(b.op("concat", *sums, axis=0))).groups
    assert len(group.stores) == 2
    assert {store.index.constant for store in group.stores} == {0, 40}


def test_a_chain_of_a_thousand_nodes_does_not_exhaust_the_stack() -> None:
    """Depth of a graph is no depth of calls."""
    b = Builder()
    x = b.input(64)
    for _ in range(1000):
        x = b.op("neg", x)
    (group,) = lower(b.graph(x)).groups
    assert len(group.values) == 1001


def test_rows_must_not_be_mixed() -> None:
    """A reduced value in another row is refused, with a reason."""
    b = Builder()
    x = b.input(40, 40)
    total = b.op("reduce_sum", x, axes=(1,), keepdims=0)
    with pytest.raises(CannotLower):
        lower(b.graph(b.op("add", x, total)))


def test_two_long_frames_are_refused() -> None:
    """Row sums and column sums of one computed matrix are two kernels."""
    b = Builder()
    x = b.op("exp", b.input(40, 50))
    sums = [b.op("reduce_sum", x, axes=(axis,), keepdims=0) for axis in (0, 1)]
    with pytest.raises(CannotLower, match="frames"):
        lower(b.graph(*sums))


def test_a_short_inner_reduction_is_unrolled() -> None:
    """Pairwise distances: a sum over 8, then a minimum over all partners."""
    b = Builder()
    x, y = b.input(30, 1, 8), b.input(1, 40, 8)
    d = b.op("sub", x, y)
    distance = b.op("reduce_sum", b.op("mul", d, d), axes=(2,), keepdims=0)
    (group,) = lower(
        b.graph(b.op("reduce_min", distance, axes=(1,), keepdims=0))
    ).groups
    assert len(group.reductions) == 1
    assert sum(isinstance(v.what, Load) for v in group.values) == 16


def test_equal_parts_of_a_join_share_one_walk_without_a_question() -> None:
    """The halves of a rotary embedding are made together from what both read."""
    b = Builder()
    x, c, s = b.input(4, 32, 64), b.input(32, 32), b.input(32, 32)
    sizes, steps = (4, 32, 32), (1, 1, 1)
    low = b.op("slice", x, starts=(0, 0, 0), steps=steps, sizes=sizes)
    high = b.op("slice", x, starts=(0, 0, 32), steps=steps, sizes=sizes)
    left = b.op("sub", b.op("mul", low, c), b.op("mul", high, s))
    right = b.op("add", b.op("mul", high, c), b.op("mul", low, s))
    (group,) = lower(b.graph(b.op("concat", left, right, axis=2))).groups
    loads = [value.what for value in group.values if isinstance(value.what, Load)]
    assert (len(loads), len(group.stores)) == (4, 2)
    assert not any(load.guards for load in loads)
    assert group.outer_points * group.inner_points == 4 * 32 * 32


@pytest.mark.parametrize(
    ("widths", "axis", "walks"),
    [
        ((32, 32, 64), 1, [(32, 2), (64, 1)]),
        ((8, 56), 1, [(64, 1)]),  # less than a line of the first part lies together
        ((16,) * 9, 1, [(144, 1)]),  # too many parts
        ((1, 2), 0, [(1, 1), (2, 1)]),
    ],
)
def test_a_join_is_walked_by_parts_where_that_pays(
    widths: tuple[int, ...], axis: int, walks: list[tuple[int, int]]
) -> None:
    """Parts of equal extents are one group; short or many parts are not told apart."""
    b = Builder()
    shapes = [(48, width) if axis else (width, 48) for width in widths]
    joined = b.op("concat", *(b.input(*shape) for shape in shapes), axis=axis)
    groups = lower(b.graph(b.op("exp", joined))).groups
    points = [group.outer_points * group.inner_points for group in groups]
    found = [(n // 48, len(g.stores)) for n, g in zip(points, groups, strict=True)]
    assert found == walks
    guarded = [v for g in groups for v in g.values if isinstance(v.what, Select)]
    assert bool(guarded) == (len(walks) == 1)


def test_parts_are_found_behind_a_transposition() -> None:
    """Where a join's axis went, there the walk is cut."""
    b = Builder()
    joined = b.op("concat", b.input(24, 48), b.input(40, 48), axis=0)
    turned = b.op("transpose", joined, perm=(1, 0))
    nest = lower(b.graph(b.op("exp", turned)))
    assert len(nest.groups) == 2
    assert not any(
        isinstance(v.what, Load) and v.what.guards
        for g in nest.groups
        for v in g.values
    )
