"""A tuning run as a deterministic state machine: propose, measure, observe.

Only `measure` touches a device, and only there partitions are solved: its results are
recorded. Proposals depend on the constructor's arguments and on what was observed,
never on the clock, so a durable job can replay a run: it builds the session again,
observes the stored results, and goes on where it stopped.

Stages. *Open*: who measures, and the partition that the cost model likes. *Cover*:
measure every kernel of the partition once, solve again with measured costs, and repeat
until the partition stands. *Improve*: spend trials where most time could still be
saved, then *recover*: cover once more. *Prove*: solve with measured costs where there
are any and optimistic bounds where not, measure what that solution uses, and repeat
until it is made of measured kernels only: then nothing unmeasured could win. *Vary*:
solve for the next best partitions, and measure their kernels. *Check*:
what an earlier run measured is verified once. *Judge*: the best partitions, the untuned
plan, the unfused plan, the stored plan and the library's own run of the model are
timed whole, and a plan that is not surely faster than the one that stands is not kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from cost_model.device import Device
from tuner.errors import TunerError
from tuner.model import Model
from tuner.pipeline import Planner, plan_key, resolve_target
from tuner.plan import Options, Plan, Schedule
from tuner.runtime.requests import Cache, Measures
from tuner.search import forecast
from tuner.search.alternatives import Alternatives
from tuner.search.budget import Budget, Ledger
from tuner.search.contest import is_disturbed
from tuner.search.costs import PriceKind
from tuner.search.kernels import KernelState
from tuner.search.measuring import Measurer, flush_bytes
from tuner.search.near import is_like
from tuner.search.observing import Observer
from tuner.search.plans import Plans
from tuner.search.proposing import Proposer
from tuner.search.records import Json, Known, solution_json, toolchain_id, usable
from tuner.search.run import Run
from tuner.search.stages import PARTITIONS, Stage


class TuningSession:
    """One tuning run.

    Args:
        model: what to tune.
        target: device that plans are for, by its name in the catalogue, or one that is
            not in it, such as a calibrated one.
        options: what the user asked.
        budget: when to stop.
        known: results of earlier runs by measurement key; they cost nothing.
        seed: of all random choices.
        incumbent: body of the stored measured plan; what replaces it is faster.
        cache: whether everything is timed with cold or warm caches; results of the
            one never stand for the other.
        partitions: how many distinct partitions to run whole, beside the plans that
            need no tuning and the stored one; fewer where no others come close.
        elsewhere: runs on other devices, with the device's id; those of devices like
            this one are hints, and never answers.
        clock: seconds; read around measurements only, and recorded in their results.
    """

    def __init__(  # noqa: PLR0913 - what a run depends on
        self,
        model: Model,
        target: str | Device,
        options: Options,
        budget: Budget,
        known: Mapping[str, Mapping[str, Any]] | None = None,
        seed: int = 0,
        *,
        incumbent: Mapping[str, Any] | None = None,
        cache: Cache = "warm",
        partitions: int = PARTITIONS,
        elsewhere: Iterable[tuple[str, Mapping[str, Any]]] = (),
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model = model
        self.device = resolve_target(target) if isinstance(target, str) else target
        self.options = options
        self.budget = budget
        self.key = plan_key(model, self.device, options)
        self.planner = Planner(model=model, device=self.device, options=options)
        self._clock = clock
        self._measurer = Measurer(
            model=model,
            options=options,
            language="cuda" if self.device.kind == "gpu" else "opencl",
            planned=self.key.toolchain,
            seed=seed,
            clock=clock,
            flush_bytes=flush_bytes(cache, self.device),
        )
        self._run = Run(
            planner=self.planner,
            known=Known(known or {}),
            ledger=Ledger(budget=budget),
            seed=seed,
            others=Alternatives(partitions - 1),
            elsewhere=[run for id_, run in elsewhere if is_like(id_, self.device)],
            cache=cache,
        )
        self._plans = Plans(self._run, incumbent)
        self._proposer = Proposer(self._run, self._plans)
        self._observer = Observer(
            self._run,
            self._plans,
            progress=self.progress,
            partial_reason=lambda: self.partial_reason,
        )

    # What the caller sees ----------------------------------------------------

    @property
    def wanted_partitions(self) -> int:
        """How many distinct partitions are run whole, at most."""
        return self._run.others.wanted + 1

    @property
    def stage(self) -> Stage:
        """What is done now."""
        return self._run.stage

    @property
    def winner(self) -> str:
        """Label of the plan that won whole; empty before any was run."""
        return self._run.winner

    @property
    def toolchain(self) -> Mapping[str, Any]:
        """Of the device that measures; empty before it was asked."""
        return self._run.toolchain

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to measure."""
        return self.stage == "done"

    @property
    def partial_reason(self) -> str:
        """Why the result is less than what was asked; empty when it is not."""
        run = self._run
        measured = any(state.best for state in run.kernels.values())
        drowned = sum(state.is_drowned for state in self._plans.kept_states())
        reasons = {
            f"the device was lost: {run.gone}": bool(run.gone),
            "the device's compiler, driver or library changed meanwhile": run.mixed,
            "no kernel was measured undisturbed": not measured,
            "no plan was run whole": not run.whole,
            "other processes disturbed the whole plans": is_disturbed(run.whole),
            f"noise: every run of {drowned} of the plan's kernels was disturbed": bool(
                drowned
            ),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def is_exhausted(self) -> bool:
        """Whether the budget ended the run before everything was measured."""
        return self._run.is_exhausted

    @property
    def served(self) -> Json:
        """What earlier runs spared this one: kernels, runs, and the seconds they took.

        Of everything that it has asked for so far, and that was measured already.
        """
        run = self._run
        return {
            "kernels": len(run.served),
            "runs": sum(run.served.values()),
            "seconds": run.served_seconds,
        }

    @property
    def partitions(self) -> list[Json]:
        """Partitions side by side, the best by their kernels first; see `Plans.rows`.

        Empty before any was run whole.
        """
        return self._plans.rows() if self._run.whole else []

    def propose(self) -> Json | None:
        """The next batch of measurements; None when the run is over."""
        return self._proposer.propose()

    def measure(self, batch: Mapping[str, Any], runner: Measures) -> list[Json]:
        """Run a batch on a device; the results are JSON, one per item."""
        return [self._measure_item(item, runner) for item in batch["items"]]

    def observe(
        self, batch: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
    ) -> list[Json]:
        """Take in a batch's results; returns the events that they caused."""
        events: list[Json] = []
        for item, result in zip(batch["items"], results, strict=True):
            events += self._observer.observe(item, result)
        return events

    def plan(self) -> Plan:
        """The best plan so far; the untuned one as long as nothing was measured."""
        return self._plans.best()

    def progress(self) -> Json:
        """Trials, best plan's seconds, gaps, and seconds left of the budget."""
        run = self._run
        best = run.best()
        refinement = self._plans.proved(best.total_seconds)
        return {
            "stage": run.stage,
            "trials": run.ledger.trials,
            "best_seconds": best.objective_seconds(run.costs),
            "gap": best.solution.partition.gap,
            "measured_optimal": refinement.measured_optimal,
            "measured_gap": refinement.measured_gap,
            "remaining_seconds": 0.0 if self.is_done else run.ledger.seconds_left,
        }

    def forecast(self, toolchain: Mapping[str, Any] | None = None) -> Json:
        """What would be measured, and how long it would take; touches no device.

        Args:
            toolchain: of the device, as `tuner.search.measuring.describe` gives it;
                without it nothing counts as known.
        """
        run = self._run
        states = {state.name: state for state in run.best().states}
        served = toolchain_id(toolchain) if toolchain is not None else ""

        def known_runs(state: KernelState) -> int:
            return sum(
                usable(record, served) is not None
                and key == run.key_of(state, schedule, toolchain or {})
                for key, schedule, record in run.known.of_kernel(state.name)
            )

        return forecast.forecast(
            states.values(), self.budget, known_runs, run.known.costs(served)
        )

    def new_measurements(self, batch: Mapping[str, Any]) -> tuple[str, ...]:
        """Measurement keys of a batch's kernel runs, in the order of its items."""
        return tuple(item["key"] for item in batch["items"] if item["kind"] == "kernel")

    # Measuring ---------------------------------------------------------------

    def _measure_item(self, item: Mapping[str, Any], runner: Measures) -> Json:
        kind = item["kind"]
        if kind == "device":
            return self._measurer.device(runner)
        if kind == "solve":
            return self._solved(item["price"], item.get("avoided", ()))
        if kind == "whole":
            plans = self._plans.by_label()
            return self._measurer.whole(
                {label: plans[label] for label in item["labels"]}, runner
            )
        if kind == "operators":
            return {"operators": self._plans.operators(), "cost_seconds": 0.0}
        state = self._run.kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        return self._measurer.kernel(state, schedule, runner, timed=kind == "kernel")

    def _solved(self, kind: PriceKind, avoided: Collection[str]) -> Json:
        """Solve; the answer is recorded with the seconds that it took.

        A replay then solves nothing again, and counts the same against the budget.
        The first solve makes the plan that exists without tuning too: it is not
        charged to the budget.
        """
        start = self._clock()
        if kind == "predicted":
            first = solution_json(self._run.untuned())
            return {"solution": first, "cost_seconds": 0.0}
        solution: Json | None = None
        costs = self._run.costs
        price = costs.avoiding(avoided) if avoided else costs.price(kind)
        try:
            solution = solution_json(self.planner.solve(price))
        except TunerError:  # a pin, or a node, wants one of those kernels
            if not avoided:
                raise
        return {"solution": solution, "cost_seconds": self._clock() - start}
