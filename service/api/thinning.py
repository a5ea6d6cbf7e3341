"""A long curve in few points that looks the same."""

from __future__ import annotations

from collections.abc import Sequence


def places(values: Sequence[float], limit: int) -> tuple[int, ...]:
    """Where a curve is kept: of each stretch its ends and its extremes, in order.

    What a person sees of a line in as many pixels is exactly that, so that nothing
    visible is lost (the M4 aggregation of U. Jugel et al., VLDB 7(10), 2014).

    Args:
        values: heights of the curve, from left to right.
        limit: at most so many places, or four.
    """
    if len(values) <= limit:
        return tuple(range(len(values)))
    stretches = max(1, limit // 4)
    width = len(values) / stretches
    kept: set[int] = set()
    for stretch in range(stretches):
        indices = range(int(stretch * width), int((stretch + 1) * width))
        kept |= {indices[0], indices[-1]}
        kept.add(min(indices, key=values.__getitem__))
        kept.add(max(indices, key=values.__getitem__))
    return tuple(sorted(kept))
