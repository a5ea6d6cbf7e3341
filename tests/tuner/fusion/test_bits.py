"""Bits of masks are found alike whatever is remembered, and little is remembered."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from tuner.fusion import view
from tuner.fusion.view import bits

SAMPLE = 128
"""Masks that are measured; a memo holds 128 times as many."""


def _dense(rng: random.Random, length: int) -> int:
    """Three of four bits."""
    return rng.getrandbits(length) | rng.getrandbits(length) | 1 << (length - 1)


def _sparse(rng: random.Random, length: int) -> int:
    """Up to 64 bits."""
    places = rng.sample(range(length - 1), 63)
    return sum(1 << place for place in places) | 1 << (length - 1)


@pytest.mark.parametrize("make", [_dense, _sparse])
@pytest.mark.parametrize("length", [256, 257, 2048, 2049])
def test_bits_are_found_whatever_is_remembered(
    make: Callable[[random.Random, int], int], length: int
) -> None:
    """The first and the second look at a mask name the same bits, lowest first."""
    mask = make(random.Random(length), length)
    right = [i for i in range(length) if mask >> i & 1]
    assert list(bits(mask)) == right
    assert list(bits(mask)) == right


@pytest.mark.parametrize("make", [_dense, _sparse])
@pytest.mark.parametrize("length", [256, 2048])
def test_a_full_memo_of_masks_stays_small(
    make: Callable[[random.Random, int], int], length: int
) -> None:
    """The memo outlives a plan, so at its fullest it may take 64 MiB, not a GiB."""
    rng = random.Random(7)
    view._known_bits.cache_clear()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(SAMPLE):
            list(bits(make(rng, length)))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    most = view._known_bits.cache_info().maxsize
    assert most is not None
    assert (after - before) * most / SAMPLE <= 64 << 20
