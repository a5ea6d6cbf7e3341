"""Numbers as people read them."""

from __future__ import annotations

import math

import pytest

from service.dashboard import formats


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (1.234, "1.23 s"),
        (0.00642, "6.42 ms"),
        (258e-6, "258 µs"),
        (7.2e-9, "7.20 ns"),
        (2e-12, "2.00 ps"),
        (0, "0 s"),
        (None, "\N{EN DASH}"),
        (math.inf, "\N{EN DASH}"),
    ],
)
def test_durations_take_the_unit_that_fits(seconds: float | None, shown: str) -> None:
    """Three digits and a unit, whatever the magnitude; a dash where there is none."""
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (20 * 2**20, "20.0 MiB")],
)
def test_sizes_are_binary(count: int, shown: str) -> None:
    """1536 bytes are 1.50 KiB."""
    assert formats.size(count) == shown


@pytest.mark.parametrize(
    ("fraction", "shown"),
    [(0.0, "0 %"), (0.0123, "1.23 %"), (0.123, "12.3 %"), (1.5, "150 %")],
)
def test_percentages_keep_three_digits(fraction: float, shown: str) -> None:
    """An exact zero has no decimals, so that a proof is told from a small gap."""
    assert formats.percent(fraction) == shown


def test_clock_counts_minutes() -> None:
    """Seconds alone below a minute, minutes and seconds from there on."""
    assert formats.clock(41.6) == "42 s"
    assert formats.clock(95) == "1 min 35 s"
    assert formats.clock(59.7) == "1 min 00 s"
    assert formats.clock(24_660) == "6 h 51 min"
    assert formats.clock(-1) == "0 s"


def test_one_of_a_thing_is_not_many() -> None:
    """The noun follows its number, and thousands are set apart."""
    assert formats.many(1, "kernel") == "1 kernel"
    assert formats.many(0, "kernel") == "0 kernels"
    assert formats.many(1560, "kernel") == "1\u202f560 kernels"
