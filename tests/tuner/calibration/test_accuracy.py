"""Accuracy: a perfect model scores perfectly, a wrong one is found out."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from cost_model.catalog import cpu
from cost_model.refining import scaled
from tests.tuner.calibration.fakes import PairModelTimer
from tuner.calibration.accuracy import measure_accuracy
from tuner.calibration.corpus import fusion_pairs, samples
from tuner.calibration.findings import TRIES, WIDE, Accuracy, Limits
from tuner.calibration.judging import predicted_again
from tuner.calibration.record import accuracy_from, accuracy_json
from tuner.calibration.report import drifted, summary
from tuner.document import encode
from tuner.errors import InvalidModel
from tuner.kernel.lower import lower
from tuner.kernel.nest import Kind
from tuner.plan import GENERATED
from tuner.runtime.failures import failed

if TYPE_CHECKING:
    from cost_model.device import Device
    from tuner.plan import Measurement
    from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult

SMALL = Limits(kernels=8, pairs=8, schedules=5)


def still() -> float:
    """A clock that stands."""
    return 0.0


@pytest.fixture(scope="module")
def perfect() -> Accuracy:
    """What is measured on a device that is what the model thinks; for reading only."""
    return measure_accuracy(cpu(), PairModelTimer(cpu()), still, SMALL)


def row(told: dict[str, Any], what: str) -> dict[str, Any]:
    """A row of the summary by its words."""
    found: dict[str, Any] = next(r for r in told["rows"] if r["what"] == what)
    return found


def test_the_corpus_is_large_and_covers_the_families() -> None:
    """At least 40 kernels and 100 fusion decisions, over all families and nests."""
    kinds = {lower(sample.graph).groups[0].kind for sample in samples()}
    assert kinds == set(Kind)
    families = {lower(sample.graph).family for sample in samples()}
    assert families == GENERATED
    assert {lower(pair.whole).family for pair in fusion_pairs()} == GENERATED
    assert len(samples()) >= 40
    assert len(list(fusion_pairs())) >= 100


def test_a_run_that_ends_early_has_seen_all_families() -> None:
    """They take turns, and begin with a fusion decision each."""
    ticks = count()
    measured = measure_accuracy(
        cpu(),
        PairModelTimer(cpu()),
        lambda: float(next(ticks)),
        Limits(seconds=5.0, schedules=2),
    )
    assert [each.family for each in measured.decisions] == list(
        dict.fromkeys(each.family for each in measured.decisions)
    )
    assert {each.family for each in measured.decisions} == GENERATED


def test_a_perfect_model_scores_perfectly(perfect: Accuracy) -> None:
    """When the device is what the model thinks, nothing is wrong."""
    told = summary(perfect)
    assert row(told, "fusion decisions, sign right")["model"] == 1.0
    assert row(told, "tau within a kernel, median")["model"] == pytest.approx(1.0)
    assert row(told, "regret, first choice, mean")["model"] == 0.0
    assert told["bound"]["violations"] == 0
    for name in ("error above 100 us", "error below 100 us"):
        assert row(told, name)["model"] == pytest.approx(0.0, abs=1e-9)
    assert set(told["uncertainty"]) == {trial.family for trial in perfect.trials}
    for low, high in told["uncertainty"].values():
        assert low == high == pytest.approx(1.0)
    covered = [r for r in told["rows"] if r["what"].startswith("inside the stated")]
    assert all(r["model"] == 1.0 for r in covered)


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


class _LosingTheSecond(PairModelTimer):
    """By turns the second kernel fails; each kernel is faster than the one before."""

    def __init__(self, truth: Device) -> None:
        super().__init__(truth)
        self._asked = 0

    def measure(self, request: MeasureRequest) -> Measurement:
        found = super().measure(request)
        self._asked += 1
        return replace(found, seconds=found.seconds / (1.0 + self._asked))

    def measure_pair(
        self, first: MeasureRequest, second: MeasureRequest
    ) -> tuple[Measurement, Measurement]:
        return super().measure(first), failed("runtime", "gone")


def test_a_winner_that_fails_by_turns_scores_no_regret() -> None:
    """Neither side of a pair counts alone; what failed is named."""
    limits = Limits(kernels=3, pairs=0, schedules=4)
    measured = measure_accuracy(cpu(), _LosingTheSecond(cpu()), still, limits)
    assert any("again" in label for label, _ in measured.failures)
    assert all(not each.winner.failure for each in measured.regrets)
    assert all(why == "runtime: gone" for _, why in measured.failures)


def test_the_time_limit_ends_both_parts() -> None:
    """Schedules and decisions are taken side by side, and end with the time."""
    ticks = count()
    limits = Limits(seconds=16.0, schedules=2)
    measured = measure_accuracy(
        cpu(), PairModelTimer(cpu()), lambda: float(next(ticks)), limits
    )
    assert 0 < len(measured.trials) < 40
    assert 0 < len(measured.decisions) < 24
    assert not measured.is_complete


def test_a_run_goes_on_where_an_earlier_one_stopped() -> None:
    """Through its document; together they are what one long run would have been."""
    limits = replace(SMALL, kernels=2, pairs=4, schedules=2)
    ticks, timer = count(), _Counting(cpu())
    first = measure_accuracy(
        cpu(), timer, lambda: float(next(ticks)), replace(limits, seconds=3.0)
    )
    assert 0 < len(first.found) < first.asked
    kept = accuracy_from(json.loads(encode(accuracy_json(first))), cpu())
    assert kept.found == first.found
    rest = measure_accuracy(cpu(), timer, still, limits, kept)
    assert rest.is_complete
    assert timer.wholes == len(rest.decisions)
    assert rest.found == measure_accuracy(cpu(), timer, still, limits).found


@pytest.mark.parametrize("fault", [{"contended": True}, {"spread": 2 * WIDE}])
def test_what_was_disturbed_is_taken_again_and_not_for_ever(
    fault: dict[str, Any],
) -> None:
    """After all the rest, while there is time, until it was taken often enough."""
    limits = replace(SMALL, kernels=2, pairs=0, schedules=2)
    loud = _Counting(cpu(), **fault)
    known = measure_accuracy(cpu(), loud, still, limits)
    assert known.is_complete
    assert loud.asked == TRIES * len(known.trials)
    assert {each.tries for each in known.found.values()} == {TRIES}
    quiet = _Counting(cpu())
    measure_accuracy(cpu(), quiet, still, limits, known)
    assert quiet.asked == 0


def test_a_later_run_goes_on_with_what_was_disturbed() -> None:
    """Its quieter samples replace the others; what was quiet is not measured again."""
    limits = replace(SMALL, kernels=2, pairs=0, schedules=2)
    ticks = count()
    loud = measure_accuracy(
        cpu(),
        _Counting(cpu(), contended=True),
        lambda: float(next(ticks)),
        replace(limits, seconds=3.0),
    )
    assert not loud.is_complete
    quiet = _Counting(cpu())
    known = measure_accuracy(cpu(), quiet, still, limits, loud)
    assert known.is_complete
    assert not any(each.contended for each in known.found.values())
    assert quiet.asked == len(known.trials)


def test_another_devices_record_is_not_gone_on_with() -> None:
    """The message names both devices."""
    measured = measure_accuracy(
        cpu(), PairModelTimer(cpu()), still, replace(SMALL, kernels=0, pairs=0)
    )
    other = replace(cpu(), launch_seconds=1e-6, id="other")
    with pytest.raises(InvalidModel, match="for cpu, not for other"):
        accuracy_from(json.loads(encode(accuracy_json(measured))), other)


def test_stored_times_judge_another_model() -> None:
    """The right device predicts them exactly, from the times that a wrong one took."""
    slow = replace(cpu(), launch_seconds=40e-6)
    limits = replace(SMALL, kernels=2, pairs=2, schedules=3)
    wrong = measure_accuracy(cpu(), PairModelTimer(slow), still, limits)
    right = predicted_again(wrong, slow)
    for trial in wrong.trials:
        assert trial.measured.seconds - trial.predicted_seconds > 20e-6
    trials = right.trials
    assert [t.predicted_seconds for t in trials] == [t.measured.seconds for t in trials]
    assert all(d.is_right for d in right.decisions if d.is_decided)
    assert all(regret.share == 0 for regret in right.regrets)


class _Counting(PairModelTimer):
    """Counts what it is asked, and may say that others disturbed it."""

    def __init__(
        self, truth: Device, *, contended: bool = False, spread: float = 0.0
    ) -> None:
        super().__init__(truth)
        self.asked = self.wholes = 0
        self._contended, self._spread = contended, spread

    def measure(self, request: MeasureRequest) -> Measurement:
        self.asked += 1
        found = super().measure(request)
        high = found.high_seconds + self._spread * found.seconds
        return replace(found, high_seconds=high, contended=self._contended)

    def measure_pair(
        self, first: MeasureRequest, second: MeasureRequest
    ) -> tuple[Measurement, Measurement]:
        return super().measure(first), super().measure(second)

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        self.wholes += 1
        return super().measure_whole(request)


def test_the_record_holds_every_sample(perfect: Accuracy) -> None:
    """The JSON has raw samples of schedules and of both sides of a decision."""
    told = accuracy_json(perfect)
    assert encode(told)
    found = told["found"].values()
    trials = [trial for each in found for trial in each["trials"]]
    decisions = [one for each in found for one in each["decisions"]]
    assert len(trials) > len(decisions) > 0
    assert all(len(trial["samples"]) == 7 for trial in trials)
    assert all(len(d["apart"]["samples"]) == 7 for d in decisions)
    assert told["device"]["digest"] == cpu().digest


def _told(error: float, noise: float = 0.02) -> dict[str, Any]:
    rows = [
        {"what": "error above 100 us", "model": error},
        {"what": "tau over all", "model": 0.9},
    ]
    return {"rows": rows, "noise": noise}


def test_a_drift_is_named_and_noise_is_none() -> None:
    """An error half as large again as it used to be; not one within the noise."""
    before = [_told(0.10), _told(0.12), _told(0.11)]
    (sentence,) = drifted(_told(0.30), before)
    assert sentence == "error above 100 us: 30.0%, where it used to be 11.0%"
    assert drifted(_told(0.15), before) == []
    assert drifted(_told(0.30, noise=0.25), before) == []
    assert drifted(_told(0.30), before[:1]) == []
    assert drifted(_told(0.02), before) == []
