"""Samples, medians, intervals and contention."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from tuner.plan import Measurement
from tuner.runtime.timing import (
    MIN_SAMPLES,
    Contention,
    Protocol,
    confidence_interval,
    measure,
    measure_by_turns,
    pooled,
    summarise,
)


def test_rounds_are_one_measurement() -> None:
    """All samples in order; one disturbed round disturbs all, one failure fails all."""
    rounds = [summarise([1.0, 2.0, 3.0] * 3), summarise([4.0] * 7, contended=True)]
    found = pooled(rounds)
    assert found.samples == (1.0, 2.0, 3.0) * 3 + (4.0,) * 7
    assert found.low_seconds <= found.seconds == 3.0 <= found.high_seconds
    assert found.contended
    assert not pooled(rounds[:1]).contended
    failed = Measurement(seconds=math.inf, failure="runtime")
    assert pooled([rounds[0], failed]) == failed


def test_few_samples_give_their_range() -> None:
    """Seven samples cover the median with 95 % only from least to greatest."""
    assert confidence_interval([7, 1, 3, 2, 6, 5, 4]) == (1, 7)


def test_the_interval_covers_the_median_as_often_as_it_says() -> None:
    """Over many draws, at least 95 % of the intervals hold the true median."""
    source = random.Random(7)
    hits = 0
    for _ in range(1000):
        samples = [source.expovariate(1.0) for _ in range(15)]
        low, high = confidence_interval(samples)
        hits += low <= math.log(2) <= high
    assert 950 <= hits < 1000


def test_the_median_lies_in_its_interval() -> None:
    """A summary is consistent."""
    found = summarise([3.0, 1.0, 2.0, 9.0, 4.0, 5.0, 2.5])
    assert found.seconds == 3.0
    assert found.low_seconds <= found.seconds <= found.high_seconds


def test_short_kernels_are_timed_in_batches() -> None:
    """A launch of 10 us is repeated until a sample takes a millisecond."""
    counts: list[int] = []

    def run(launches: int) -> float:
        counts.append(launches)
        return 1e-5 * launches

    found = measure(run, Protocol(repeats=7))
    assert found.seconds == pytest.approx(1e-5)
    assert counts[-1] == pytest.approx(100, abs=1)
    assert len(found.samples) == 7


def test_turns_alternate() -> None:
    """Two kernels are sampled A B A B, never A A."""
    order: list[str] = []

    def runner(name: str, seconds: float) -> object:
        def run(launches: int) -> float:
            order.append(name)
            return seconds * launches

        return run

    runs = [runner("a", 1e-3), runner("b", 2e-3)]
    first, second = measure_by_turns(runs, Protocol(repeats=9))  # type: ignore[arg-type]
    assert order[-18:] == ["a", "b"] * 9
    assert first.seconds < second.seconds


def test_hopeless_kernels_are_given_up() -> None:
    """After three samples that are all too slow, no time is spent on more."""
    found = measure(lambda n: 1.0 * n, Protocol(abandon_above_seconds=0.5))
    assert len(found.samples) == 3


def test_a_small_budget_still_takes_seven_samples() -> None:
    """The interval needs seven samples, whatever the budget."""
    found = measure(lambda n: 1.0 * n, Protocol(repeats=50, budget_seconds=0.0))
    assert len(found.samples) == MIN_SAMPLES


def _process(proc: Path, number: int, ticks: int) -> None:
    folder = proc / str(number)
    folder.mkdir(exist_ok=True)
    fields = ["S", *["0"] * 10, str(ticks), "0"]
    (folder / "stat").write_text(f"{number} (a (b) c) {' '.join(fields)}")


def test_busy_neighbours_are_noticed(tmp_path: Path) -> None:
    """CPU time of another process, above 5 % of a core, marks the samples."""
    _process(tmp_path, 17, 100)
    watch = Contention(tmp_path)
    assert not watch.is_contended()
    _process(tmp_path, 17, 160)
    assert watch.is_contended()


def _stolen(proc: Path, ticks: int) -> None:
    fields = ["9000", "0", "800", "70000", "60", "0", "5", str(ticks), "0", "0"]
    (proc / "stat").write_text(f"cpu  {' '.join(fields)}\ncpu0 {' '.join(fields)}\n")


def test_time_that_the_host_gives_to_others_is_noticed(tmp_path: Path) -> None:
    """A virtual machine without other processes is disturbed by its neighbours."""
    _process(tmp_path, 17, 100)
    _stolen(tmp_path, 40)
    watch = Contention(tmp_path)
    assert not watch.is_contended()
    _stolen(tmp_path, 100)
    assert watch.is_contended()


def test_a_machine_that_tells_of_no_theft_has_none(tmp_path: Path) -> None:
    """Kernels before 2.6.11 end the line before that field."""
    (tmp_path / "stat").write_text("cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\n")
    watch = Contention(tmp_path)
    (tmp_path / "stat").write_text("cpu  9 9 9 9 9 9 9\ncpu0 9 9 9 9 9 9 9\n")
    assert not watch.is_contended()


def test_new_neighbours_do_not_count_their_past(tmp_path: Path) -> None:
    """A process that appears in between is not charged with its whole life."""
    watch = Contention(tmp_path)
    _process(tmp_path, 18, 1000)
    assert not watch.is_contended()
