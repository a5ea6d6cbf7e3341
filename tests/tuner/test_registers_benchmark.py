"""The registers benchmark: its figures say what they are called, its kernels differ."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.registers import (
    ARCHITECTURES,
    Judged,
    crowded,
    figures,
    spearman,
    summary,
    table,
)
from cost_model.catalog import find
from tuner.plan import Resources


def _judged(
    estimated: int,
    registers: int,
    *,
    flagged: bool = False,
    stored: int = 0,
    kind: str = "row",
    is_held_out: bool = False,
) -> Judged:
    return Judged(
        name="kernel",
        architecture="sm_80",
        schedule={"threads": 256},
        kind=kind,
        estimated=estimated,
        flagged=flagged,
        is_held_out=is_held_out,
        truth=Resources(
            registers=registers,
            spill_store_bytes=stored,
            spill_load_bytes=stored,
            shared_bytes=0,
            architecture="sm_80",
        ),
    )


FOUND = (
    _judged(20, 20),
    _judged(30, 34, kind="column"),
    _judged(40, 47, is_held_out=True),
    _judged(64, 64, flagged=True, stored=16),
    _judged(64, 64, flagged=True),
    _judged(60, 64, stored=8),
)


def test_each_figure_is_what_it_is_called() -> None:
    """Errors, and spills both ways: of those that spill, and of those flagged."""
    told = figures(FOUND)
    assert told["kernels"] == 6
    assert told["median_absolute_error"] == 2
    assert told["mean_absolute_error"] == pytest.approx((4 + 7 + 4) / 6)
    assert (told["spilled"], told["spilled_and_flagged"]) == (2, 0.5)
    assert (told["flagged"], told["flagged_and_spilled"]) == (2, 0.5)
    calm = figures(FOUND[:3])
    assert calm["spilled_and_flagged"] is None
    assert calm["flagged_and_spilled"] is None


def test_ranks_with_ties_share_their_mean() -> None:
    """Spearman's coefficient, by hand: 1, 2.5, 2.5, 4 against 1, 2, 3, 4."""
    assert spearman([1, 5, 5, 9], [10, 20, 30, 40]) == pytest.approx(4.5 / 22.5**0.5)
    assert spearman([3, 2, 1], [10, 20, 30]) == pytest.approx(-1.0)
    assert spearman([3, 3], [10, 20]) is None
    assert spearman([3], [10]) is None


def test_architectures_halves_and_kinds_have_rows_of_their_own() -> None:
    """Those that nothing belongs to have none; a figure that is missing is a dash."""
    other = replace(FOUND[0], architecture="sm_100", truth=FOUND[0].truth)
    told = summary([other, *FOUND])
    assert list(told) == [
        "sm_80",
        "sm_80 held out",
        "sm_80 column",
        "sm_80 row",
        "sm_100",
        "sm_100 row",
    ]
    assert told["sm_80"] == figures(FOUND)
    lines = list(table({"sm_80": told["sm_80"], "sm_80 held out": figures(FOUND[2:3])}))
    assert lines[2].startswith("| sm_80 | 6 | 2 | 2.5 | ")
    assert lines[2].endswith(" | 2 | 0.5 | 2 | 0.5 |")
    assert lines[3].endswith(" | - | 0 | - | 0 | - |")
    assert {line.count("|") for line in lines} == {10}


def test_crowded_kernels_are_the_same_again_and_many() -> None:
    """The same seed draws the same schedules; all of them fill large blocks."""
    first, again = (
        [(job.name, job.schedule) for job in crowded(find("sm_80"), random.Random(5))]
        for _ in range(2)
    )
    assert first == again
    assert len(first) >= 200
    assert min(schedule["threads"] for _, schedule in first) >= 512
    assert len(ARCHITECTURES) == 3
