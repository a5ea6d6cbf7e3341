"""A tuning run as a state machine, on a device with made-up times."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from tests.tuner.search.conftest import (
    Log,
    body_of,
    digest_of,
    kernel_runs,
    made_up_seconds,
    no_clock,
    replay,
    results_by_key,
    run_to_end,
    session_of,
    small_model,
    through_json,
)
from tuner.assembly import kernel_form, kernel_sources
from tuner.errors import DeviceUnavailable
from tuner.ir.graph import Region
from tuner.model import Model, load
from tuner.plan import GENERATED, Family, Measurement, Options, Pin
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult
from tuner.search.budget import Budget
from tuner.search.kernels import RETRIES
from tuner.search.session import TuningSession

PATIENT = Budget(seconds=1e6, trials=400, trials_per_kernel=2)
"""Enough to run every kernel again and again."""

Json = dict[str, Any]
Finished = tuple[TuningSession, Log]
RunnerWith = Callable[[Callable[[MeasureRequest], float]], NullRunner]


def test_a_replayed_run_proposes_the_same_and_ends_with_the_same_plan(
    model: Model, finished: Finished
) -> None:
    """A worker that was killed resumes from stored results, wherever it stopped."""
    first, log = finished
    again = session_of(model)
    replay(again, log)
    assert again.propose() is None
    assert digest_of(again) == digest_of(first)


def test_no_kernel_is_run_twice_with_one_schedule(finished: Finished) -> None:
    """Neither repeated proposals nor equal layers cost a second run."""
    items = kernel_runs(finished[1])
    assert len(items) == len(set(items)) > 0


def test_known_results_cost_nothing(
    model: Model, runner: NullRunner, finished: Finished
) -> None:
    """What the database knows is not measured again, and leads to the same plan."""
    first, log = finished
    second = session_of(model, results_by_key(log))
    assert not kernel_runs(run_to_end(second, runner))
    found, again = (
        [(k.region, k.schedule, k.measurement) for k in tuning.plan().kernels]
        for tuning in (first, second)
    )
    assert again == found


def test_every_kernel_of_the_plan_was_measured(finished: Finished) -> None:
    """With enough budget a plan's evidence is `measured` throughout."""
    plan = finished[0].plan()
    assert str(plan.evidence) == "measured"
    assert all(kernel.measurement is not None for kernel in plan.kernels)


def test_a_kernel_that_always_fails_is_avoided(
    model: Model, runner_with: RunnerWith
) -> None:
    """The partition goes around kernels that no schedule can run."""

    def seconds(request: MeasureRequest) -> float:
        is_reduction = any(n.op.startswith("reduce") for n in request.graph.nodes)
        if is_reduction and len(request.graph.nodes) > 1:
            return math.inf
        return made_up_seconds(request)

    tuning = session_of(model)
    run_to_end(tuning, runner_with(seconds))
    for kernel in tuning.plan().kernels:
        if kernel.family is Family.REDUCTION:
            assert len(kernel.region.nodes) == 1


def test_nodes_without_a_kernel_that_works_leave_a_plan(
    model: Model, runner_with: RunnerWith
) -> None:
    """Where every kernel with a sum fails the run ends, and says what is unmeasured."""

    def seconds(request: MeasureRequest) -> float:
        is_sum = any(n.op.startswith("reduce") for n in request.graph.nodes)
        return math.inf if is_sum else made_up_seconds(request)

    tuning = session_of(model)
    run_to_end(tuning, runner_with(seconds))
    plan = tuning.plan()
    assert any(kernel.measurement is None for kernel in plan.kernels)
    assert str(plan.evidence) != "measured"


def test_the_budget_of_trials_is_kept(model: Model, runner: NullRunner) -> None:
    """Never more kernel runs than were allowed."""
    tuning = session_of(model, budget=Budget(seconds=1e6, trials=5))
    assert len(kernel_runs(run_to_end(tuning, runner))) <= 5


def test_a_tuned_plan_that_lost_is_not_kept(model: Model, runner: NullRunner) -> None:
    """When the unfused plan is surely faster as a whole, it is the plan."""
    tuning = session_of(model)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        if batch["items"][0]["kind"] == "whole":
            slow = {"seconds": 2.0, "low_seconds": 1.9, "high_seconds": 2.1}
            fast = {"seconds": 1.0, "low_seconds": 0.9, "high_seconds": 1.1}
            whole = {"plan": slow, "untuned": slow, "unfused": fast}
            results = [{"whole": whole, "cost_seconds": 0.0}]
        tuning.observe(batch, results)
    plan = tuning.plan()
    assert all(len(k.region.nodes) <= 2 for k in plan.kernels)
    assert plan.whole["plan"].seconds == 1.0
    assert str(plan.evidence) == "measured"


def test_a_tie_keeps_the_plan_that_stands(model: Model, runner: NullRunner) -> None:
    """A tuned plan within the noise of the untuned one does not replace it."""
    tuning = session_of(model)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        if batch["items"][0]["kind"] == "whole":
            mine = {"seconds": 0.95, "low_seconds": 0.85, "high_seconds": 1.05}
            other = {"seconds": 1.0, "low_seconds": 0.9, "high_seconds": 1.1}
            whole = {"plan": mine, "untuned": other, "unfused": other}
            results = [{"whole": whole, "cost_seconds": 0.0}]
        tuning.observe(batch, results)
    assert tuning.winner == "untuned"
    assert tuning.plan().whole["plan"].seconds == 1.0


def test_a_run_killed_anywhere_ends_with_the_same_plan(
    model: Model, runner: NullRunner, finished: Finished, soak: bool
) -> None:
    """Workers die in ten places; each successor repeats at most one batch.

    In a short run four of them die: at the first batch, at the last, and between.
    """
    whole, log = finished
    deaths = 10 if soak else 4
    for place in {round(k * (len(log) - 1) / (deaths - 1)) for k in range(deaths)}:
        successor = session_of(model)
        replay(successor, log[:place])
        rest = run_to_end(successor, runner)
        assert [batch for batch, _ in rest] == [batch for batch, _ in log[place:]]
        assert digest_of(successor) == digest_of(whole)


def test_a_replay_solves_nothing(
    model: Model, finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are recorded, so the solver's clock cannot change a replay."""
    _, log = finished
    again = session_of(model)
    monkeypatch.setattr(again.planner, "solve", None)
    replay(again, log)
    assert again.propose() is None


def test_no_question_is_put_to_the_solver_twice(
    model: Model, finished: Finished
) -> None:
    """As long as no price has changed, the last partition stands."""
    again = session_of(model)
    asked: list[object] = []
    for batch, results in finished[1]:
        assert through_json(again.propose()) == batch
        first = batch["items"][0]
        if first.get("price") == "measured" and not first.get("avoided"):
            asked.append(again._run.costs.known())
        again.observe(batch, results)
    assert asked
    assert all(one != other for one, other in pairwise(asked))


def test_with_budget_enough_the_partition_is_proved(
    model: Model, finished: Finished
) -> None:
    """Nothing unmeasured could win: the certificate says so, and the plan holds it."""
    tuning, _ = finished
    refinement = body_of(tuning)["refinement"]
    assert refinement["measured_optimal"]
    assert refinement["measured_gap"] == pytest.approx(0, abs=1e-6)
    assert refinement["confidence"] == 0.95
    assert refinement["trials"] == tuning.progress()["trials"]
    assert tuning.progress()["measured_optimal"]
    assert tuning.partial_reason == ""


def test_the_proof_holds_against_the_true_times(
    model: Model, runner: NullRunner
) -> None:
    """With every kernel at its true time, no partition beats the proved one."""
    tuning = session_of(model, budget=Budget(seconds=1e6, trials=300))
    run_to_end(tuning, runner)
    plan = tuning.plan()
    mine = sum(k.measurement.seconds for k in plan.kernels if k.measurement)

    def true(region: Region, family: Family) -> float:
        priced = tuning.planner.pricer.priced(region, family)
        if priced is None:
            return math.inf
        form = kernel_form(model.graph, region, family)
        state = tuning._run.kernels.get(form.fingerprint)
        if state is not None and state.best is not None:
            return state.best.measurement.seconds
        generated = family in GENERATED
        source = kernel_sources(form, priced.schedule)[0] if generated else None
        return made_up_seconds(MeasureRequest(graph=form.graph, source=source))

    best = tuning.planner.solve(true).partition.objective_seconds
    assert mine <= best * (1 + 1e-9)


def test_a_short_budget_leaves_a_stated_gap(model: Model, runner: NullRunner) -> None:
    """What was not proved is not claimed."""
    tuning = session_of(model, budget=Budget(seconds=1e6, trials=5))
    run_to_end(tuning, runner)
    refinement = body_of(tuning)["refinement"]
    assert not refinement["measured_optimal"]
    gap = refinement["measured_gap"]
    assert gap is None or 0 < gap <= 1
    assert tuning.is_exhausted


def test_results_of_another_toolchain_are_not_served(
    model: Model, finished: Finished
) -> None:
    """A driver or a device that changed measures again; null never serves cpu."""
    known = results_by_key(finished[1])
    other = NullRunner(made_up_seconds, toolchain="null 2")
    log = run_to_end(session_of(model, known), other)
    assert len(kernel_runs(log)) >= 10
    assert not set(known) & set(results_by_key(log))


def test_cold_and_warm_results_are_kept_apart(model: Model, finished: Finished) -> None:
    """A cold run asks for flushed launches, and is served no warm result."""
    known = results_by_key(finished[1])
    flushed: set[bool] = set()

    class Listening(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            flushed.add(request.flush_bytes > 0)
            return super().measure(request)

        def measure_whole(self, request: PlanRequest) -> PlanResult:
            flushed.add(request.flush_bytes > 0)
            return super().measure_whole(request)

    log = run_to_end(session_of(model, known, cache="cold"), Listening(made_up_seconds))
    assert flushed == {True}
    cold = results_by_key(log)
    assert cold
    assert not set(known) & set(cold)
    again = session_of(model, {**known, **cold}, cache="cold")
    assert not kernel_runs(run_to_end(again, Listening(made_up_seconds)))


@pytest.mark.parametrize(
    "damage",
    [
        {"toolchain": "another"},
        {"seconds": "fast"},
        {"seconds": -1.0},
        {"low_seconds": 5.0},
        {"contended": True},
        {"gone": "the device is gone"},
    ],
)
def test_an_invalid_entry_is_a_miss(
    model: Model, runner: NullRunner, finished: Finished, damage: Json
) -> None:
    """Damaged, foreign and disturbed entries are measured again."""
    _, log = finished
    known = {k: {**r, **damage} for k, r in results_by_key(log).items()}
    again = session_of(model, known)
    opening = again.propose()
    assert opening is not None
    again.observe(opening, through_json(again.measure(opening, runner)))
    assert again.propose() == log[1][0]


def test_loaded_results_are_verified_before_they_are_used(
    model: Model, finished: Finished
) -> None:
    """Every loaded kernel of the plan is verified once, without timing."""
    known = results_by_key(finished[1])
    asked: list[MeasureRequest] = []

    class Listening(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            asked.append(request)
            return super().measure(request)

    tuning = session_of(model, known)
    run_to_end(tuning, Listening(made_up_seconds))
    assert asked
    assert not any(request.timed for request in asked)
    assert len(asked) >= len({k.fingerprint for k in tuning.plan().kernels})


def test_a_loaded_result_that_fails_its_check_is_dropped(
    model: Model, finished: Finished
) -> None:
    """The plan goes around the kernel, or takes another schedule."""
    first, log = finished
    victim = first.plan().kernels[0]
    nodes = first._run.kernels[victim.fingerprint].form.graph.nodes

    class Strict(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            if not request.timed and request.graph.nodes == nodes:
                return Measurement(
                    seconds=math.inf, failure="correctness", message="differs"
                )
            return super().measure(request)

    second = session_of(model, results_by_key(log))
    run_to_end(second, Strict(made_up_seconds))
    used = [(k.fingerprint, k.schedule) for k in second.plan().kernels]
    assert (victim.fingerprint, victim.schedule) not in used
    assert str(second.plan().evidence) == "measured"


class Busy(NullRunner):
    """A device that other processes disturb."""

    def measure(self, request: MeasureRequest) -> Measurement:
        """Answer, disturbed."""
        return replace(super().measure(request), contended=True)

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Answer, disturbed."""
        found = super().measure_whole(request)
        disturbed = {
            name: replace(m, contended=True) for name, m in found.measurements.items()
        }
        return replace(found, measurements=disturbed)


def test_disturbed_runs_never_win(model: Model) -> None:
    """On a busy machine the untuned plan stays, and the run says why it is partial."""
    tuning = session_of(model)
    run_to_end(tuning, Busy(made_up_seconds))
    assert tuning.winner == "untuned"
    assert "undisturbed" in tuning.partial_reason
    assert all(k.schedule == _first_schedule(tuning, k) for k in tuning.plan().kernels)
    assert not body_of(tuning)["refinement"]["measured_optimal"]


def _first_schedule(tuning: Any, kernel: Any) -> Any:
    return tuning._run.kernels[kernel.fingerprint].default


@pytest.mark.parametrize("times", [1, RETRIES])
def test_a_disturbed_default_is_run_again(model: Model, times: int) -> None:
    """A later, quiet run of the same schedule takes the disturbed one's place."""
    seen: Counter[str] = Counter()

    class Settling(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            text = (
                request.source.digest if request.source else repr(request.graph.nodes)
            )
            found = super().measure(request)
            seen[text] += 1
            return replace(found, contended=seen[text] <= times)

    tuning = session_of(model, budget=PATIENT)
    run_to_end(tuning, Settling(made_up_seconds))
    assert tuning.partial_reason == ""
    assert all(
        k.measurement and not k.measurement.contended for k in tuning.plan().kernels
    )


def test_a_kernel_that_never_runs_undisturbed_is_given_up(model: Model) -> None:
    """The runs of each are bounded; the plan is there, and nothing is said proved."""
    tuning = session_of(model, budget=PATIENT)
    runs = Counter(kernel_runs(run_to_end(tuning, Busy(made_up_seconds))))
    assert max(runs.values()) == 1 + RETRIES
    used = {k.fingerprint for k in tuning.plan().kernels}
    assert all(tuning._run.kernels[name].is_drowned for name in used)


def test_a_kernel_that_drowns_makes_the_run_partial(model: Model) -> None:
    """One kernel of the plan that never ran undisturbed is noise, and is told."""

    class Drowning(NullRunner):
        def measure(self, request: MeasureRequest) -> Measurement:
            found = super().measure(request)
            return replace(found, contended=request.graph.nodes[0].op == "matmul")

    tuning = session_of(model, budget=PATIENT)
    run_to_end(tuning, Drowning(made_up_seconds))
    assert tuning.partial_reason.startswith("noise: every run of ")


def _labels(model: Model, options: Options) -> set[str]:
    """Who is run whole under these options."""
    few = Budget(seconds=1e6, trials=30, trials_per_kernel=1)
    tuning = TuningSession(model, "cpu", options, few, clock=no_clock)
    log = run_to_end(tuning, NullRunner(made_up_seconds))
    items = [item for batch, _ in log for item in batch["items"]]
    return {label for i in items if i["kind"] == "whole" for label in i["labels"]}


def test_who_must_fuse_never_runs_the_plan_without_fusion(model: Model) -> None:
    """A pin that demands one kernel for two nodes keeps what breaks it out."""
    add = next(node for node in model.graph.nodes if node.op == "add")
    (tanh,) = (n for n in model.graph.nodes if add.outputs[0] in n.inputs)
    pair = (add.name, tanh.name)
    apart, together = (Pin(fuse=fuse, nodes=pair) for fuse in (False, True))
    assert "unfused" in _labels(model, Options(pins=(apart,)))
    assert "unfused" not in _labels(model, Options(pins=(together,)))


def test_every_kind_of_failure_is_lived_with(model: Model) -> None:
    """Kernels that fail in every way are gone around; the plan is a measured one."""
    kinds = ("compile", "runtime", "timeout", "correctness", "resources")

    def failures(request: MeasureRequest) -> tuple[str, str] | None:
        if request.source is None or len(request.graph.nodes) == 1:
            return None
        number = int(request.source.digest[:4], 16)
        return (kinds[number % 5], "made up") if number % 2 else None

    tuning = session_of(model)
    told = [
        result["failure"]
        for _, results in run_to_end(
            tuning, NullRunner(made_up_seconds, failures=failures)
        )
        for result in results
        if result.get("failure")
    ]
    assert set(told) <= set(kinds)
    assert len(set(told)) >= 2
    plan = tuning.plan()
    assert str(plan.evidence) == "measured"
    assert all(k.measurement and not k.measurement.failure for k in plan.kernels)


def _with_wrong_sums(message: Callable[[MeasureRequest], str]) -> NullRunner:
    """A device on which generated kernels with a product give wrong results."""

    def failures(request: MeasureRequest) -> tuple[str, str] | None:
        has_product = any(node.op == "matmul" for node in request.graph.nodes)
        is_wrong = request.source is not None and has_product
        return ("correctness", message(request)) if is_wrong else None

    return NullRunner(made_up_seconds, failures=failures)


def test_what_fails_by_the_same_error_twice_is_given_up(model: Model) -> None:
    """All schedules of such a kernel err alike; other errors are worth a third one."""
    alike = _with_wrong_sums(lambda _: "output: t2: error 0.0006 at values up to 279")
    other = _with_wrong_sums(lambda r: f"error {r.source.digest if r.source else ''}")
    runs = {}
    for name, device in (("alike", alike), ("other", other)):
        tuning = session_of(model, budget=PATIENT)
        log = run_to_end(tuning, device)
        assert str(tuning.plan().evidence) == "measured"
        failed = Counter(
            result["kernel"]
            for _, results in log
            for result in results
            if result.get("failure") == "correctness"
        )
        runs[name] = max(failed.values())
        assert tuning.progress()["measured_optimal"]
    assert runs == {"alike": 2, "other": 3}


def test_what_has_failed_is_tried_again_after_all_others(model: Model) -> None:
    """A second schedule of a kernel that failed waits for what never ran."""
    device = _with_wrong_sums(lambda r: f"error {r.source.digest if r.source else ''}")
    tuning = session_of(model, budget=PATIENT)
    seen: set[str] = set()
    while (batch := tuning.propose()) is not None:
        names = [i["kernel"] for i in batch["items"] if i["kind"] == "kernel"]
        again = [name in seen for name in names]
        if tuning.stage == "prove":
            assert again == sorted(again)
        seen.update(names)
        tuning.observe(batch, through_json(tuning.measure(batch, device)))
    assert tuning.progress()["measured_optimal"]


def test_a_proof_leans_on_what_matters_first(model: Model, runner: NullRunner) -> None:
    """In a batch of a proof, what is expected to raise the bound most comes first."""
    tuning = session_of(model, budget=PATIENT)
    checked = 0
    while (batch := tuning.propose()) is not None:
        names = [i["kernel"] for i in batch["items"] if i["kind"] == "kernel"]
        if tuning.stage == "prove" and names:
            run = tuning._run
            hopes = run.costs.hopes([s for s in run.kernels.values() if s.uses])
            rises = [hopes[name] for name in names]
            assert rises == sorted(rises, reverse=True)
            waiting = [s for s in run.kernels.values() if s.uses and s.best is None]
            assert rises[0] >= max(hopes[s.name] for s in waiting if not s.has_failed)
            checked += 1
        tuning.observe(batch, through_json(tuning.measure(batch, runner)))
    assert checked


def test_the_last_runs_of_a_proof_count(model: Model, runner: NullRunner) -> None:
    """When the budget ends, the bound is that of everything that was measured."""
    for trials in range(8, 40, 6):
        tuning = session_of(model, budget=Budget(seconds=1e6, trials=trials))
        kinds: list[str] = []
        while (batch := tuning.propose()) is not None:
            if tuning.stage == "prove":
                kinds += [item["kind"] for item in batch["items"]]
            tuning.observe(batch, through_json(tuning.measure(batch, runner)))
        assert kinds[-1:] != ["kernel"]
        assert tuning.progress()["trials"] <= trials


@pytest.mark.parametrize("lives", [1, 9])
def test_a_device_that_disappears_ends_the_run_with_what_there_is(
    model: Model, lives: int
) -> None:
    """The run is over, says so, and its plan is the best known."""

    class Fading(NullRunner):
        left = lives

        def measure(self, request: MeasureRequest) -> Measurement:
            self.left -= 1
            if self.left < 0:
                raise DeviceUnavailable("cuda:0", "the device fell off the bus")
            return super().measure(request)

    tuning = session_of(model)
    log = run_to_end(tuning, Fading(made_up_seconds))
    assert tuning.is_done
    assert "fell off the bus" in tuning.partial_reason
    assert tuning.plan().kernels
    later = session_of(model, results_by_key(log))
    run_to_end(later, NullRunner(made_up_seconds))
    assert str(later.plan().evidence) == "measured"


def test_a_whole_run_that_somebody_kills_is_repeated(model: Model) -> None:
    """A kill from outside says nothing of the plans."""

    class Killed(NullRunner):
        kills = 1

        def measure_whole(self, request: PlanRequest) -> PlanResult:
            if self.kills:
                self.kills -= 1
                lost = Measurement(
                    seconds=math.inf, failure="runtime", message="", contended=True
                )
                return PlanResult(
                    measurements=dict.fromkeys(request.programs, lost), verified=False
                )
            return super().measure_whole(request)

    tuning = session_of(model)
    run_to_end(tuning, Killed(made_up_seconds))
    assert not tuning.plan().whole["plan"].failure
    assert tuning.partial_reason == ""


def test_the_stored_plan_stays_unless_beaten(
    model: Model, runner: NullRunner, finished: Finished
) -> None:
    """A worse run of a fresh session does not replace the stored plan."""
    stored = body_of(finished[0])
    second = session_of(
        model, budget=Budget(seconds=1e6, trials=2), incumbent=stored, seed=1
    )
    run_to_end(second, runner)
    assert second.winner == "incumbent"
    kernels = [(k["nodes"], k["schedule"]) for k in body_of(second)["kernels"]]
    assert kernels == [(k["nodes"], k["schedule"]) for k in stored["kernels"]]


@pytest.mark.parametrize("change", [{"kernels": []}, {"baselines": 3}, {}])
def test_a_stored_plan_that_does_not_fit_is_ignored(
    model: Model, runner: NullRunner, finished: Finished, change: Json
) -> None:
    """A damaged body, or one of another graph, takes no part."""
    stored = {**body_of(finished[0]), **change} if change else {"something": "else"}
    second = session_of(model, incumbent=stored)
    run_to_end(second, runner)
    assert second.winner != "incumbent"


def test_near_shapes_give_the_second_trial(
    model: Model, runner: NullRunner, finished: Finished
) -> None:
    """The best schedule of the same kernel in another size is tried, not believed."""
    known = results_by_key(finished[1])
    other = load(small_model(rows=24))
    blank = results_by_key(run_to_end(session_of(other), runner))
    structure, runs = _first_improved(blank, set(_by_structure(known)))
    best = {"seconds": 1e-7, "low_seconds": 1e-7, "high_seconds": 1e-7}
    hint = {**best, "schedule": runs[-1]["schedule"]}
    victim = next(k for k, r in known.items() if r["near"] == structure)
    known = {**known, victim: {**known[victim], **hint}}
    found = results_by_key(run_to_end(session_of(other, known), runner))
    assert not set(found) & set(known)
    default, hinted, *_ = _by_structure(found)[structure]
    assert default["schedule"] == runs[0]["schedule"]
    assert hinted["schedule"] == runs[-1]["schedule"] != runs[1]["schedule"]


def _first_improved(
    results: dict[str, Json], wanted: set[str]
) -> tuple[str, list[Json]]:
    """The kernel that was run a second time first: till then no hint shows."""
    order = {key: place for place, key in enumerate(results)}
    keys: dict[str, list[str]] = {}
    for key, result in results.items():
        keys.setdefault(result["near"], []).append(key)
    improved = {
        structure: ran
        for structure, ran in keys.items()
        if structure in wanted
        and len(ran) > 2
        and len({results[key]["kernel"] for key in ran}) == 1
    }
    structure = min(improved, key=lambda one: order[improved[one][1]])
    return structure, [results[key] for key in improved[structure]]


def _by_structure(results: dict[str, Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for result in results.values():
        found.setdefault(result["near"], []).append(result)
    return found


def test_the_forecast_says_what_a_run_would_take(
    model: Model, finished: Finished
) -> None:
    """Kernels, runs and seconds, without a device; known kernels cost one run less."""
    told = through_json(session_of(model).forecast())
    assert told["distinct_kernels"] == len(told["kernels"]) > 0
    assert 0 < told["trials"] <= told["budget_trials"]
    assert told["known_kernels"] == 0
    assert all(row["schedules"] >= 1 for row in told["kernels"])
    tuning, log = finished
    again = session_of(model, results_by_key(log)).forecast(tuning.toolchain)
    assert again["known_kernels"] == again["distinct_kernels"]


def test_the_budget_of_seconds_is_kept(model: Model) -> None:
    """Recorded costs end the run; whole plans are left something, and come in time."""
    tuning = session_of(model, budget=Budget(seconds=4.0, trials=1000))
    spent, before = 0.0, math.inf
    runner = NullRunner(made_up_seconds)
    while (batch := tuning.propose()) is not None:
        results = tuning.measure(batch, runner)
        for item, result in zip(batch["items"], results, strict=True):
            if item["kind"] == "whole":
                before = spent
            result["cost_seconds"] = 0.3 if item["kind"] == "kernel" else 0.0
            spent += result["cost_seconds"]
        tuning.observe(batch, results)
    assert before <= 4.0 * 0.6 + 0.3
    assert spent <= 4.0 + 1e-9
    assert tuning.plan().whole
