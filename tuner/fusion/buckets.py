"""Ranges of sizes in which one partition is the best, or nearly.

The sizes of symbolic dimensions span a box of whole numbers. The box is cut into
buckets, each with one partition: where another partition is better by more than the
margin, the place at which that begins is found by bisection along one dimension, and
the bucket is cut there. The bucket with most to win, loss times size, is cut first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

Point = tuple[int, ...]

MOST_BUCKETS: Final = 64
MARGIN: Final = 0.01
"""Relative loss below which a partition counts as good as the best one."""
MANY_DIMENSIONS: Final = 3
"""Dimensions above which not every corner of a box is looked at."""
PROBES: Final = 3
"""Further points inside each box: the middle, and others spread around it."""


class Oracle(Protocol):
    """Knows the best partition of any point, and what another one would lose there."""

    def best(self, point: Point) -> Hashable:
        """Identity of the best partition at a point."""

    def loss(self, partition: Hashable, point: Point) -> float:
        """Relative loss of a partition at a point; infinite if it cannot be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A range of sizes and the partition that is used in it.

    Attributes:
        low, high: least and greatest size of each dimension, both in the bucket.
        partition: identity of the partition.
        at: a point of the bucket at which it is the best one.
        loss: greatest relative loss at the points that were solved.
        points: how many points of the bucket were solved.
    """

    low: Point
    high: Point
    partition: Hashable
    at: Point
    loss: float
    points: int

    def holds(self, point: Point) -> bool:
        """Whether a point lies in the bucket."""
        return all(
            least <= size <= most
            for least, size, most in zip(self.low, point, self.high, strict=True)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """Buckets that cover a box without overlap.

    Attributes:
        buckets: ordered by their least sizes.
        margin: loss that a bucket may have.
        complete: whether every bucket keeps the margin at all solved points.
        solved: points that were solved.
    """

    buckets: tuple[Bucket, ...]
    margin: float
    complete: bool
    solved: int

    def find(self, point: Point) -> Bucket | None:
        """The bucket of a point, if it is in the box."""
        return next((b for b in self.buckets if b.holds(point)), None)

    def breakpoints(self, axis: int) -> tuple[int, ...]:
        """Sizes along one dimension at which a bucket begins, without the first."""
        starts = sorted({bucket.low[axis] for bucket in self.buckets})
        return tuple(starts[1:])


def piecewise(
    low: Point,
    high: Point,
    oracle: Oracle,
    *,
    margin: float = MARGIN,
    most: int = MOST_BUCKETS,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Pieces:
    """Cut a box into buckets.

    Args:
        low: least size of each dimension, at least 1.
        high: greatest sizes.
        oracle: solves points.
        margin: relative loss that is as good as none.
        most: buckets at most.
        out_of_time: whether to stop with the buckets so far.
    """
    search = _Search(oracle, margin, out_of_time)
    boxes = [search.judged(low, high)]
    while len(boxes) < most and not out_of_time():
        open_boxes = [box for box in boxes if box.loss > margin]
        if not open_boxes:
            break
        worst = max(open_boxes, key=_weight)
        axis, last = search.cut(worst)
        boxes.remove(worst)
        left = (*worst.high[:axis], last, *worst.high[axis + 1 :])
        right = (*worst.low[:axis], last + 1, *worst.low[axis + 1 :])
        boxes.append(search.judged(worst.low, left))
        boxes.append(search.judged(right, worst.high))
    boxes = _merged(boxes)
    return Pieces(
        buckets=tuple(sorted(boxes, key=lambda box: box.low)),
        margin=margin,
        complete=all(box.loss <= margin for box in boxes),
        solved=len(search.known),
    )


class _Search:
    """Solved points, and the boxes that they judge."""

    def __init__(
        self, oracle: Oracle, margin: float, out_of_time: Callable[[], bool]
    ) -> None:
        self.oracle = oracle
        self.margin = margin
        self.out_of_time = out_of_time
        self.known: dict[Point, Hashable] = {}

    def _solve(self, point: Point) -> None:
        if point not in self.known:
            self.known[point] = self.oracle.best(point)

    def judged(self, low: Point, high: Point) -> Bucket:
        """A box with the partition that loses least at its points."""
        for point in _samples(low, high):
            if self.known and self.out_of_time():
                break
            self._solve(point)
        inside = [p for p in self.known if _within(low, p, high)]
        if not inside:  # out of time: one point at least speaks for every box
            self._solve(_middle(low, high))
            inside = [_middle(low, high)]
        middle = _middle(low, high)
        rivals = dict.fromkeys(self.known[p] for p in inside)
        losses = {
            rival: [self.oracle.loss(rival, p) for p in inside] for rival in rivals
        }
        best = min(rivals, key=lambda rival: _badness(losses[rival]))
        own = [p for p in inside if self.known[p] == best]
        return Bucket(
            low=low,
            high=high,
            partition=best,
            at=min(own, key=lambda p: (_distance(p, middle), p)),
            loss=max(losses[best]),
            points=len(inside),
        )

    def cut(self, box: Bucket) -> tuple[int, int]:
        """A dimension, and the last size along it before the partition loses too much.

        From a point where the partition is best to the one where it loses most, one
        dimension after the other; along the first that leads to a loss, by bisection.
        Of the ways that begin with each dimension the one whose cut halves best is
        taken, sizes counted by their ratio.
        """
        inside = [p for p in self.known if _within(box.low, p, box.high)]
        worst = max(inside, key=lambda p: (self.oracle.loss(box.partition, p), p))
        axes = range(len(worst))
        cuts = (
            self._first_loss(box.partition, box.at, worst, (*axes[n:], *axes[:n]))
            for n in axes
        )

        def imbalance(cut: tuple[int, int]) -> float:
            low, high = box.low[cut[0]], box.high[cut[0]] + 1
            return abs(math.log((cut[1] + 1) / low) - math.log(high / (cut[1] + 1)))

        return min(dict.fromkeys(cuts), key=imbalance)

    def _first_loss(
        self, partition: Hashable, here: Point, worst: Point, axes: Sequence[int]
    ) -> tuple[int, int]:
        for axis in axes:
            size = worst[axis]
            there = (*here[:axis], size, *here[axis + 1 :])
            if size != here[axis] and not self._fits(partition, there):
                return axis, self._bisected(partition, here, there, axis)
            here = there
        raise AssertionError("the last point on the way is the one that loses")

    def _fits(self, partition: Hashable, point: Point) -> bool:
        self._solve(point)
        return self.oracle.loss(partition, point) <= self.margin

    def _bisected(self, partition: Hashable, good: Point, bad: Point, axis: int) -> int:
        """The smaller of two neighbours of which one fits and one does not."""
        fits, fails = good[axis], bad[axis]
        while abs(fits - fails) > 1 and not self.out_of_time():
            middle = (fits + fails) // 2
            if self._fits(partition, (*good[:axis], middle, *good[axis + 1 :])):
                fits = middle
            else:
                fails = middle
        return min(fits, fails) if abs(fits - fails) == 1 else (fits + fails) // 2


def _merged(boxes: Sequence[Bucket]) -> list[Bucket]:
    """Boxes with one partition side by side, as one box where they make one."""
    found = sorted(boxes, key=lambda box: box.low)
    again = True
    while again:
        again = False
        for a, b in itertools.combinations(found, 2):
            both = _joined(a, b)
            if both is not None:
                found = [box for box in found if box not in (a, b)]
                found = sorted([*found, both], key=lambda box: box.low)
                again = True
                break
    return found


def _joined(a: Bucket, b: Bucket) -> Bucket | None:
    """Two boxes as one, if they have one partition and differ along one dimension."""
    apart = [
        axis
        for axis, ends in enumerate(zip(a.low, a.high, b.low, b.high, strict=True))
        if ends[:2] != ends[2:]
    ]
    if a.partition != b.partition or len(apart) != 1:
        return None
    (axis,) = apart
    first, second = sorted((a, b), key=lambda box: box.low[axis])
    if first.high[axis] + 1 != second.low[axis]:
        return None
    best = max((a, b), key=lambda box: box.points)
    return Bucket(
        low=first.low,
        high=second.high,
        partition=a.partition,
        at=best.at,
        loss=max(a.loss, b.loss),
        points=a.points + b.points,
    )


def _weight(box: Bucket) -> float:
    """How much there is to win in a box: its loss times its size, by ratios."""
    volume = math.prod(
        math.log(1 + b / a) for a, b in zip(box.low, box.high, strict=True)
    )
    return min(box.loss, _INFINITE_LOSS) * volume


def _badness(losses: Sequence[float]) -> tuple[int, float]:
    """How many points a partition cannot serve, and the most that it loses elsewhere.

    Where no partition can be everywhere, as when a size of one makes other operators
    of the model, the box has the one that can be in most of it.
    """
    finite = [loss for loss in losses if math.isfinite(loss)]
    return len(losses) - len(finite), max(finite, default=0.0)


_INFINITE_LOSS: Final = 10.0
"""What a partition that cannot be somewhere counts as there."""


def _within(low: Point, point: Point, high: Point) -> bool:
    return all(a <= p <= b for a, p, b in zip(low, point, high, strict=True))


def _middle(low: Point, high: Point) -> Point:
    """The point half way, where sizes count by their ratio."""
    return _spread(low, high, [0.5] * len(low))


def _spread(low: Point, high: Point, shares: Sequence[float]) -> Point:
    return tuple(
        min(b, max(a, round(a * (b / a) ** share)))
        for a, b, share in zip(low, high, shares, strict=True)
    )


def _distance(a: Point, b: Point) -> float:
    return sum(abs(math.log(p / q)) for p, q in zip(a, b, strict=True))


def _samples(low: Point, high: Point) -> Iterator[Point]:
    """The middle, corners, and points spread evenly (R. Kronecker's sequence).

    The middle comes first: when there is time for one point only, a corner at which
    sizes are one, and operators fall away, would speak for few others.
    """
    pairs = list(zip(low, high, strict=True))
    yield _middle(low, high)
    if len(pairs) <= MANY_DIMENSIONS:
        yield from dict.fromkeys(itertools.product(*pairs))
    else:
        yield from dict.fromkeys((low, high))
        for axis, (least, most) in enumerate(pairs):
            yield (*low[:axis], most, *low[axis + 1 :])
            yield (*high[:axis], least, *high[axis + 1 :])
    steps = [math.sqrt(prime) % 1 for prime in _PRIMES[: len(pairs)]]
    for number in range(1, PROBES):
        yield _spread(low, high, [(0.5 + number * step) % 1 for step in steps])


_PRIMES: Final = (2, 3, 5, 7, 11, 13, 17, 19)
MOST_DIMENSIONS: Final = len(_PRIMES)
