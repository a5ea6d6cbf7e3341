"""Buckets of sizes, on functions whose breakpoints are known."""

from __future__ import annotations

import random
from collections.abc import Hashable

import pytest

from tuner.fusion.buckets import MOST_BUCKETS, Pieces, Point, piecewise


class _Affine:
    """Partitions whose times are affine in the sizes: the cheapest one wins."""

    def __init__(self, rows: list[tuple[float, ...]]) -> None:
        self.rows = rows
        self.asked: set[Point] = set()

    def seconds(self, row: int, point: Point) -> float:
        first, *slopes = self.rows[row]
        return first + sum(s * p for s, p in zip(slopes, point, strict=True))

    def best(self, point: Point) -> Hashable:
        self.asked.add(point)
        return min(range(len(self.rows)), key=lambda row: self.seconds(row, point))

    def loss(self, partition: Hashable, point: Point) -> float:
        assert isinstance(partition, int)
        assert point in self.asked, "a loss is only asked for where the best is known"
        least = min(self.seconds(row, point) for row in range(len(self.rows)))
        return self.seconds(partition, point) / least - 1


def _covers(pieces: Pieces, low: Point, high: Point, seed: int) -> list[Point]:
    """Random points of the box, each of which lies in just one bucket."""
    rng = random.Random(seed)
    pairs = list(zip(low, high, strict=True))
    points = [tuple(rng.randint(a, b) for a, b in pairs) for _ in range(300)]
    for point in (low, high, *points):
        assert sum(bucket.holds(point) for bucket in pieces.buckets) == 1
    return points


def test_the_breakpoint_of_two_lines_is_exact() -> None:
    """100 + n against 2 n: the second is best up to 100, within no margin at all."""
    oracle = _Affine([(100.0, 1.0), (0.0, 2.0)])
    pieces = piecewise((1,), (512,), oracle, margin=0.0)
    assert pieces.complete
    assert [(b.low, b.high, b.partition) for b in pieces.buckets[:1]] == [
        ((1,), (pieces.buckets[0].high[0],), 1)
    ]
    assert pieces.buckets[0].high[0] in (99, 100)
    assert pieces.breakpoints(0) == (pieces.buckets[0].high[0] + 1,)
    assert pieces.solved < 30


def test_one_partition_is_one_bucket() -> None:
    """Where nothing changes, the box stays whole, and few points are solved."""
    oracle = _Affine([(1.0, 1.0, 1.0), (2.0, 1.0, 1.0)])
    pieces = piecewise((1, 1), (64, 4096), oracle)
    (bucket,) = pieces.buckets
    assert (bucket.low, bucket.high, bucket.loss) == ((1, 1), (64, 4096), 0.0)
    assert pieces.breakpoints(0) == pieces.breakpoints(1) == ()
    assert pieces.solved <= 7


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_no_point_of_a_bucket_loses_more_than_it_says(
    seed: int, dimensions: int
) -> None:
    """Random lines and planes: buckets cover the box, and losses are as stated.

    Probed points keep the margin; at random other points the loss is a few margins
    at most, since times are smooth.
    """
    rng = random.Random(seed)
    rows = [
        (rng.uniform(1, 500), *(rng.uniform(0.1, 4) for _ in range(dimensions)))
        for _ in range(6)
    ]
    low, high = (1,) * dimensions, (8, 512, 100)[:dimensions]
    oracle = _Affine(rows)
    pieces = piecewise(low, high, oracle, margin=0.02)
    assert len(pieces.buckets) <= MOST_BUCKETS
    if pieces.complete:
        assert all(bucket.loss <= pieces.margin for bucket in pieces.buckets)
    for point in _covers(pieces, low, high, seed):
        bucket = pieces.find(point)
        assert bucket is not None
        oracle.best(point)
        stated = max(bucket.loss, pieces.margin)
        assert oracle.loss(bucket.partition, point) <= 3 * stated


def test_a_partition_that_cannot_be_elsewhere_has_its_own_bucket() -> None:
    """An infinite loss is a breakpoint like any other."""

    class Steps:
        def best(self, point: Point) -> Hashable:
            return point[0] >= 37

        def loss(self, partition: Hashable, point: Point) -> float:
            return 0.0 if partition == (point[0] >= 37) else float("inf")

    pieces = piecewise((1,), (1000,), Steps())
    assert pieces.breakpoints(0) == (37,)
    assert pieces.find((36,)) is not pieces.find((37,))
    assert pieces.find((1001,)) is None


def test_a_box_out_of_time_has_the_partition_that_serves_most_of_it() -> None:
    """At a size of one the graph is another one, and no partition can be everywhere."""

    class _Broken(_Affine):
        def best(self, point: Point) -> Hashable:
            self.asked.add(point)
            return 0 if min(point) == 1 else 1

        def loss(self, partition: Hashable, point: Point) -> float:
            return 0.0 if partition == self.best(point) else float("inf")

    (box,) = piecewise((1, 1), (8, 512), _Broken([(1.0, 1.0, 1.0)]), most=1).buckets
    assert box.partition == 1
    assert min(box.at) > 1
    assert box.loss == float("inf")


def test_there_are_never_more_buckets_than_asked_for() -> None:
    """With too few buckets the answer says that it is not complete."""

    class Each:
        def best(self, point: Point) -> Hashable:
            return point

        def loss(self, partition: Hashable, point: Point) -> float:
            return 0.0 if partition == point else 1.0

    pieces = piecewise((1,), (1000,), Each())
    assert len(pieces.buckets) == MOST_BUCKETS
    assert not pieces.complete
    _covers(pieces, (1,), (1000,), 0)


def test_out_of_time_gives_what_there_is() -> None:
    """Every bucket has a solved point, and what is missing is said."""
    rng = random.Random(5)
    rows = [(rng.uniform(1, 500), rng.uniform(0.1, 4)) for _ in range(8)]
    for most in range(1, 12):
        oracle = _Affine(rows)
        pieces = piecewise(
            (1,),
            (4096,),
            oracle,
            margin=0.0,
            out_of_time=lambda o=oracle, m=most: len(o.asked) >= m,
        )
        assert all(bucket.points for bucket in pieces.buckets)
        _covers(pieces, (1,), (4096,), most)


def test_neighbours_with_one_partition_are_one_bucket() -> None:
    """A strip that another partition cuts out leaves no seam elsewhere."""

    class Corner:
        def best(self, point: Point) -> Hashable:
            return point[0] > 50 and point[1] > 50

        def loss(self, partition: Hashable, point: Point) -> float:
            return 0.0 if partition == self.best(point) else 1.0

    pieces = piecewise((1, 1), (100, 100), Corner())
    assert pieces.complete
    _covers(pieces, (1, 1), (100, 100), 1)
    assert len(pieces.buckets) == 3
    assert pieces.breakpoints(0) in ((), (51,))
    assert pieces.breakpoints(1) in ((), (51,))
