"""Accuracy: a perfect model scores perfectly, a wrong one is found out."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from cost_model.catalog import cpu
from cost_model.refining import scaled
from tests.tuner.calibration.fakes import PairModelTimer
from tuner.calibration.accuracy import Limits, measure_accuracy
from tuner.calibration.corpus import fusion_pairs, samples
from tuner.calibration.report import accuracy_json, summary
from tuner.document import encode
from tuner.kernel.lower import lower

SMALL = Limits(kernels=8, pairs=8, schedules=5)


def still() -> float:
    """A clock that stands."""
    return 0.0


def row(told: dict[str, Any], what: str) -> dict[str, Any]:
    """A row of the summary by its words."""
    found: dict[str, Any] = next(r for r in told["rows"] if r["what"] == what)
    return found


def test_the_corpus_is_large_and_covers_the_families() -> None:
    """At least 40 kernels and 100 fusion decisions, over all kinds of nests."""
    kinds = {lower(sample.graph).groups[0].kind for sample in samples()}
    assert {"pointwise", "row", "column"} <= {str(kind) for kind in kinds}
    assert len(samples()) >= 40
    assert len(list(fusion_pairs())) >= 100


def test_a_perfect_model_scores_perfectly() -> None:
    """When the device is what the model thinks, nothing is wrong."""
    measured = measure_accuracy(cpu(), PairModelTimer(cpu()), still, SMALL)
    told = summary(measured)
    assert row(told, "fusion decisions, sign right")["model"] == 1.0
    assert row(told, "tau within a kernel, median")["model"] == pytest.approx(1.0)
    assert row(told, "regret, first choice, mean")["model"] == 0.0
    assert told["bound"]["violations"] == 0
    for name in ("error above 100 us", "error below 100 us"):
        assert row(told, name)["model"] == pytest.approx(0.0, abs=1e-9)


def test_a_wrong_model_is_found_out() -> None:
    """A device with a slower memory shows as error, and never as a broken bound."""
    slow = replace(
        scaled(cpu(), "dram_bytes_per_second", 0.25),
        l2_bytes_per_second=12e9,
        launch_seconds=30e-6,
    )
    told = summary(measure_accuracy(cpu(), PairModelTimer(slow), still, SMALL))
    assert row(told, "error below 100 us")["model"] > 0.3
    assert told["bound"]["violations"] == 0


def test_a_bound_above_the_truth_is_counted() -> None:
    """A machine faster than all peaks breaks the bound, and the summary names where."""
    fast = scaled(
        replace(cpu(), launch_seconds=1e-7, block_launch_seconds=0.0),
        "operations_per_second.fma32",
        16.0,
    )
    told = summary(measure_accuracy(cpu(), PairModelTimer(fast), still, SMALL))
    assert told["bound"]["violations"] == len(told["bound"]["broken"]) > 0


def test_failures_are_counted_and_not_scored() -> None:
    """A device that answers nothing gives no figures and no crash."""
    timer = PairModelTimer(cpu(), fails=True)
    limits = Limits(kernels=2, pairs=0, schedules=3)
    measured = measure_accuracy(cpu(), timer, still, limits)
    assert measured.trials == ()
    assert len(measured.failures) == 6
    assert summary(measured)["noise"] is None


def test_the_time_limit_ends_both_parts() -> None:
    """Schedules leave time for decisions, and those end with the time."""
    ticks = count()
    limits = Limits(seconds=12.0, schedules=2)
    measured = measure_accuracy(
        cpu(), PairModelTimer(cpu()), lambda: float(next(ticks)), limits
    )
    assert 0 < len(measured.trials) < 20
    assert 0 < len(measured.decisions) < 12


def test_the_record_holds_every_sample() -> None:
    """The JSON has raw samples of schedules and of both sides of a decision."""
    measured = measure_accuracy(cpu(), PairModelTimer(cpu()), still, SMALL)
    told = accuracy_json(measured)
    assert encode(told)
    assert all(len(trial["samples"]) == 7 for trial in told["trials"])
    assert all(len(d["apart"]["samples"]) == 7 for d in told["decisions"])
    assert told["device"]["digest"] == cpu().digest
