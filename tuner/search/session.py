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
until it is made of measured kernels only: then nothing unmeasured could win. *Check*:
what an earlier run measured is verified once. *Judge*: the best partitions, the untuned
plan, the unfused plan, the stored plan and the library's own run of the model are
timed whole, and a plan that is not surely faster than the one that stands is not kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Final, Literal

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.partition import Solution
from tuner.model import Model
from tuner.pipeline import Planner, plan_key, resolve_target
from tuner.plan import (
    Choice,
    Measurement,
    Options,
    Plan,
    Refinement,
    Schedule,
)
from tuner.runtime.requests import Measures
from tuner.search import contest, forecast
from tuner.search.budget import Budget, Ledger
from tuner.search.contest import CONFIDENCE, Contestant, gap_of, is_disturbed
from tuner.search.costs import Costs, PriceKind
from tuner.search.kernels import (
    KernelState,
    failed_check,
    new_state,
    plain_of,
    tuned_of,
)
from tuner.search.lineup import LineUp, line_up, stored_contestant
from tuner.search.measuring import Measurer
from tuner.search.near import Neighbours
from tuner.search.records import (
    Json,
    Known,
    from_json,
    measurement_key,
    solution_from,
    solution_json,
    toolchain_id,
    usable,
)
from tuner.search.rounds import Proof, Round, ranked

BATCH_SECONDS: Final = 3.0
"""How much measuring one batch holds, about: a killed worker repeats one batch."""
COVER_ROUNDS: Final = 4
"""Solves while covering; each either changes the partition or ends the stage."""
RECOVERY_ROUNDS: Final = 2
"""Solves after schedules were improved."""
WHOLE_RUNS: Final = 2
"""Runs of the whole plans, if somebody kills the first."""
PROOF_ROUNDS: Final = 40
"""Solves with optimistic bounds."""
SHOWN: Final = ("untuned", "unfused", "incumbent", "reference")
"""Whole measurements that a plan shows beside its own."""
EXACT: Final = 1e-6
"""A gap below this is none: the solver's own tolerance."""

Stage = Literal[
    "open", "cover", "improve", "recover", "prove", "check", "judge", "done"
]
_FOLLOWING: Final[Mapping[Stage, Stage]] = {
    "open": "cover",
    "cover": "improve",
    "improve": "recover",
    "recover": "prove",
    "prove": "check",
    "check": "judge",
    "judge": "done",
    "done": "done",
}
_SHARES: Final[Mapping[Stage, float]] = {
    "open": 1.0,
    "cover": 0.7,
    "improve": 0.75,
    "recover": 0.88,
    "prove": 1.0,
    "check": 1.0,
    "judge": 1.0,
    "done": 1.0,
}
"""Share of the budget, what is kept back for whole plans apart, that may be spent by
the end of each stage."""


class TuningSession:
    """One tuning run.

    Args:
        model: what to tune.
        target: device of the catalogue; also names the worker's device.
        options: what the user asked.
        budget: when to stop.
        known: results of earlier runs by measurement key; they cost nothing.
        seed: of all random choices.
        incumbent: body of the stored measured plan; what replaces it is faster.
        clock: seconds; read around measurements only, and recorded in their results.

    Attributes:
        stage: what is done now.
        winner: label of the plan that won whole; empty before any was run.
        toolchain: of the device that measures; empty before it was asked.
    """

    def __init__(  # noqa: PLR0913 - what a run depends on
        self,
        model: Model,
        target: str,
        options: Options,
        budget: Budget,
        known: Mapping[str, Mapping[str, Any]] | None = None,
        seed: int = 0,
        *,
        incumbent: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model = model
        self.device = resolve_target(target)
        self.options = options
        self.budget = budget
        self.key = plan_key(model, self.device, options)
        self.planner = Planner(model=model, device=self.device, options=options)
        self.stage: Stage = "open"
        self._known = Known(known or {})
        self._neighbours = Neighbours(self._known.records.values())
        self._seed = seed
        self._incumbent = incumbent
        self._clock = clock
        self._measurer = Measurer(
            model=model,
            options=options,
            language="cuda" if self.device.kind == "gpu" else "opencl",
            planned=self.key.toolchain,
            seed=seed,
            clock=clock,
        )
        self.toolchain: Mapping[str, Any] = {}
        self._kernels: dict[str, KernelState] = {}
        self._costs = Costs(self.planner.pricer)
        self._ledger = Ledger(budget=budget)
        self._batches = 0
        self._rounds, self._proofs, self._whole_runs = 0, 0, 0
        self._rounds_left = COVER_ROUNDS
        self._first: Solution | None = None
        self._current: Round | None = None
        self._seen: list[Round] = []
        self._proof: Proof | None = None
        self._improved: frozenset[object] = frozenset()
        self._whole: dict[str, Measurement] = {}
        self._kept: Contestant | None = None
        self.winner = ""
        self._gone = ""
        self._mixed = False

    # What the caller sees ----------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to measure."""
        return self.stage == "done"

    @property
    def partial_reason(self) -> str:
        """Why the result is less than what was asked; empty when it is not."""
        measured = any(state.best for state in self._kernels.values())
        reasons = {
            f"the device was lost: {self._gone}": bool(self._gone),
            "the device's compiler, driver or library changed meanwhile": self._mixed,
            "no kernel was measured undisturbed": not measured,
            "no plan was run whole": not self._whole,
            "other processes disturbed the whole plans": is_disturbed(self._whole),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def is_exhausted(self) -> bool:
        """Whether the budget ended the run before everything was measured."""
        return not self._ledger.allows(0, _SHARES["prove"])

    def propose(self) -> Json | None:
        """The next batch of measurements; None when the run is over."""
        while not self.is_done:
            items = self._items()
            if items:
                self._batches += 1
                return {"index": self._batches - 1, "items": items}
            self._enter(self._following())
        return None

    def measure(self, batch: Mapping[str, Any], runner: Measures) -> list[Json]:
        """Run a batch on a device; the results are JSON, one per item."""
        return [self._measure_item(item, runner) for item in batch["items"]]

    def observe(
        self, batch: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
    ) -> list[Json]:
        """Take in a batch's results; returns the events that they caused."""
        events: list[Json] = []
        for item, result in zip(batch["items"], results, strict=True):
            self._ledger.seconds += float(result.get("cost_seconds", 0.0))
            if result.get("gone"):
                self._gone = str(result["gone"])
                self.stage = "done"
                continue
            events += self._observe_item(item, result)
        return events

    def plan(self) -> Plan:
        """The best plan so far; the untuned one as long as nothing was measured."""
        kept = self._kept
        if kept is None:
            best = self._best().solution
            kept = Contestant(solution=best, tuned=tuned_of(self._kernels))
        return replace(
            self._assembled(kept),
            whole=self._shown(),
            refinement=self._refinement(kept) if self.toolchain else None,
        )

    def progress(self) -> Json:
        """Trials, best plan's seconds, gaps, and seconds left of the budget."""
        best = self._best()
        total = best.total_seconds
        refinement = self._proved(total)
        return {
            "stage": self.stage,
            "trials": self._ledger.trials,
            "best_seconds": best.objective_seconds(self._costs),
            "gap": best.solution.partition.gap,
            "measured_optimal": refinement.measured_optimal,
            "measured_gap": refinement.measured_gap,
            "remaining_seconds": 0.0 if self.is_done else self._ledger.seconds_left,
        }

    def forecast(self, toolchain: Mapping[str, Any] | None = None) -> Json:
        """What would be measured, and how long it would take; touches no device.

        Args:
            toolchain: of the device, as `tuner.search.measuring.describe` gives it;
                without it nothing counts as known.
        """
        states = {state.name: state for state in self._best().states}
        served = toolchain_id(toolchain) if toolchain is not None else ""

        def is_known(state: KernelState) -> bool:
            key = self._key_of(state, state.default, toolchain or {})
            return usable(self._known.records.get(key), served) is not None

        return forecast.forecast(states.values(), self.budget, is_known)

    def new_measurements(self, batch: Mapping[str, Any]) -> tuple[str, ...]:
        """Measurement keys of a batch's kernel runs, in the order of its items."""
        return tuple(item["key"] for item in batch["items"] if item["kind"] == "kernel")

    # Proposing ---------------------------------------------------------------

    def _following(self) -> Stage:
        """The stage after this one; a proof may bring a partition worth improving."""
        is_new = self.stage == "prove" and self._best().regions != self._improved
        return "improve" if is_new and self._may_spend() else _FOLLOWING[self.stage]

    def _enter(self, stage: Stage) -> None:
        self.stage = stage
        if stage == "recover":
            self._rounds_left = RECOVERY_ROUNDS
        if stage == "improve":
            best = self._best()
            self._improved = best.regions
            self._use(best.solution)

    def _items(self) -> list[Json]:
        """Items of the next batch in this stage; none when the stage is over."""
        ways: Mapping[Stage, Callable[[], list[Json]]] = {
            "open": self._opening,
            "cover": lambda: self._kernel_items() or self._solve_again(),
            "improve": self._kernel_items,
            "recover": lambda: self._kernel_items() or self._solve_again(),
            "prove": lambda: self._kernel_items() or self._prove_again(),
            "check": self._check_items,
            "judge": lambda: self._whole_items() or self._missing_items(),
        }
        return ways[self.stage]()

    def _opening(self) -> list[Json]:
        return [] if self.toolchain else [{"kind": "device"}, _solve("predicted")]

    def _solve_again(self) -> list[Json]:
        if self._rounds_left <= 0 or not self._may_spend():
            return []
        self._rounds_left -= 1
        return [_solve("measured")]

    def _prove_again(self) -> list[Json]:
        is_settled = self._proof is not None and not self._proof.is_stale
        if is_settled or self._proofs >= PROOF_ROUNDS or not self._may_spend():
            return []
        self._proofs += 1
        return [_solve("optimistic")]

    def _kernel_items(self) -> list[Json]:
        """Kernel runs for one batch."""
        items: list[Json] = []
        planned: dict[str, int] = {}
        room = max(1, int(BATCH_SECONDS / self._ledger.trial_seconds))
        while len(items) < room and self._may_spend(len(items)):
            state = self._next_state(planned)
            schedule = state.next_schedule() if state is not None else None
            if state is None or schedule is None:
                break
            planned[state.name] = planned.get(state.name, 0) + 1
            items.append(self._item("kernel", state, schedule))
        return items

    def _next_state(self, planned: Mapping[str, int]) -> KernelState | None:
        """The kernel to run next in this stage."""
        waiting = [
            state
            for state in self._kernels.values()
            if state.uses and state.is_waiting and state.name not in planned
        ]
        if waiting:
            return max(waiting, key=lambda s: s.uses * s.predicted_seconds)
        return self._most_promising(planned) if self.stage == "improve" else None

    def _most_promising(self, planned: Mapping[str, int]) -> KernelState | None:
        """The used kernel whose further runs could save most; None if none may."""

        def waiting(state: KernelState) -> int:
            return planned.get(state.name, 0)

        tried = [
            state
            for state in self._kernels.values()
            if state.uses
            and state.best is not None
            and not state.is_finished
            and len(state.results) + waiting(state) < self.budget.trials_per_kernel
        ]
        return max(tried, key=lambda s: s.promise / (1 + waiting(s)), default=None)

    def _check_items(self) -> list[Json]:
        """Loaded results that a contestant rests on, and that nobody has checked."""
        used = {
            (name, tuned.schedule)
            for contestant in self._line_up().contestants.values()
            for name, tuned in contestant.tuned.items()
        }
        return [
            self._item("verify", state, schedule)
            for state in self._kernels.values()
            for schedule in state.results
            if schedule in state.loaded and (state.name, schedule) in used
        ]

    def _whole_items(self) -> list[Json]:
        programs = [m for n, m in self._whole.items() if n != "reference"]
        stray = all(m.failure and m.contended for m in programs)
        if not stray or self._whole_runs >= WHOLE_RUNS:
            return []
        self._whole_runs += 1
        return [{"kind": "whole", "labels": list(self._plans())}]

    def _missing_items(self) -> list[Json]:
        """Default runs of the winner's kernels that nobody has run by themselves."""
        if self._kept is None:
            return []
        used = self._use(self._kept.solution).states
        missing = {s.name: s for s in used if s.default not in s.results}
        if not missing or not self._ledger.allows_trials(len(missing)):
            return []
        return [self._item("kernel", s, s.default) for s in missing.values()]

    def _item(self, kind: str, state: KernelState, schedule: Schedule) -> Json:
        return {
            "kind": kind,
            "kernel": state.name,
            "schedule": schedule.as_dict,
            "key": self._key_of(state, schedule, self.toolchain),
        }

    def _key_of(
        self, state: KernelState, schedule: Schedule, toolchain: Mapping[str, Any]
    ) -> str:
        return measurement_key(
            state.name,
            schedule,
            device=self.device.id,
            toolchain=toolchain,
            exactness=self.options.exactness,
        )

    def _load(self, state: KernelState) -> None:
        """Take over what earlier runs measured with this very toolchain."""
        if not self.toolchain:
            return
        by = toolchain_id(self.toolchain)
        for key, schedule, record in self._known.of_kernel(state.name):
            found = usable(record, by)
            if found and key == self._key_of(state, schedule, self.toolchain):
                state.take(schedule, found, loaded=True)

    def _may_spend(self, waiting: int = 0) -> bool:
        """Whether this stage may run another kernel beside those waiting."""
        return self._ledger.allows(waiting, _SHARES[self.stage])

    # Measuring ---------------------------------------------------------------

    def _measure_item(self, item: Mapping[str, Any], runner: Measures) -> Json:
        kind = item["kind"]
        if kind == "device":
            return self._measurer.device(runner)
        if kind == "solve":
            return self._solved(item["price"])
        if kind == "whole":
            plans = self._plans()
            return self._measurer.whole(
                {label: plans[label] for label in item["labels"]}, runner
            )
        state = self._kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        return self._measurer.kernel(state, schedule, runner, timed=kind == "kernel")

    def _solved(self, kind: PriceKind) -> Json:
        """Solve; the wall-clock limit of the solver is why the answer is recorded.

        The first solve makes the plan that exists without tuning too: it is not
        charged to the budget.
        """
        start = self._clock()
        if kind == "predicted":
            return {"solution": solution_json(self._untuned()), "cost_seconds": 0.0}
        solution = self.planner.solve(self._costs.price(kind))
        seconds = self._clock() - start
        return {"solution": solution_json(solution), "cost_seconds": seconds}

    def _untuned(self) -> Solution:
        if self._first is None:
            self._first = self.planner.solve()
        return self._first

    # Observing ---------------------------------------------------------------

    def _observe_item(
        self, item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> list[Json]:
        kind = item["kind"]
        if kind == "device":
            self.toolchain = dict(result["toolchain"])
            return [{"type": "device", "toolchain": dict(self.toolchain)}]
        if kind == "solve":
            return self._observe_solution(item["price"], result["solution"])
        if kind == "whole":
            return self._observe_whole(item, result)
        if kind == "verify":
            return self._observe_check(item, result)
        return [self._observe_kernel(item, result)]

    def _observe_kernel(
        self, item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> Json:
        state = self._kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        measurement = from_json(result)
        self._mixed |= result.get("toolchain") != toolchain_id(self.toolchain)
        self._ledger.trials += 1
        self._ledger.kernel_seconds += float(result.get("cost_seconds", 0.0))
        state.take(schedule, measurement)
        if self._kept is not None:
            tuned = {**plain_of(self._kernels), **self._kept.tuned}
            self._kept = replace(self._kept, tuned=tuned)
        return {
            "type": "trial",
            "kernel": item["kernel"],
            "family": str(state.family),
            "schedule": dict(item["schedule"]),
            "key": item["key"],
            "seconds": result["seconds"],
            "low_seconds": measurement.low_seconds,
            "high_seconds": measurement.high_seconds,
            "failure": measurement.failure,
            "message": measurement.message[:500],
            "predicted_seconds": state.predicted_seconds,
            "contended": measurement.contended,
            "uses": state.uses,
            **self.progress(),
        }

    def _observe_check(
        self, item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> list[Json]:
        """A loaded result passed, or is dropped and its kernel searched again."""
        state = self._kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        state.loaded.discard(schedule)
        failure, message = str(result["failure"]), str(result["message"])
        if not failure:
            return []
        kept = state.results[schedule]
        state.take(schedule, failed_check(kept, failure, message))
        self._enter("recover")
        return [
            {
                "type": "check",
                "kernel": item["kernel"],
                "schedule": dict(item["schedule"]),
                "failure": failure,
                "message": message[:500],
            }
        ]

    def _observe_solution(
        self, kind: PriceKind, record: Mapping[str, Any]
    ) -> list[Json]:
        answer = self._use(solution_from(record))
        if kind == "optimistic":
            return [self._observe_proof(answer)]
        changed = answer.changes(self._current)
        self._current = answer
        if kind == "predicted":
            self._first = answer.solution
            self._seen.append(answer)
            return []
        self._rounds += 1
        if changed:
            self._seen.append(answer)
        else:
            self._rounds_left = 0
        return [self._resolve_event(kind, answer, changed)]

    def _observe_proof(self, answer: Round) -> Json:
        """A solution under optimistic prices bounds every partition from below."""
        changed = answer.changes(self._proof.answer if self._proof else None)
        self._proof = Proof(answer, self._costs)
        self._seen.append(answer)
        return self._resolve_event("optimistic", answer, changed)

    def _resolve_event(self, kind: PriceKind, answer: Round, changed: int) -> Json:
        return {
            "type": "resolve",
            "price": kind,
            "round": self._rounds + self._proofs,
            "kernels": len(answer.states),
            "changed": changed,
            **self.progress(),
        }

    def _observe_whole(
        self, item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> list[Json]:
        found = {name: from_json(record) for name, record in result["whole"].items()}
        line = self._line_up()
        self.winner = contest.judge(found, item["labels"])
        self._kept = line.contestants[self.winner]
        same = {n: found[ran] for n, ran in line.aliases.items() if ran in found}
        self._whole = {**found, **same}
        return [
            {
                "type": "plan",
                "winner": self.winner,
                "seconds": {
                    name: record["seconds"] for name, record in result["whole"].items()
                },
                "contended": is_disturbed(found),
                "partial_reason": self.partial_reason,
                **self.progress(),
            }
        ]

    # Partitions --------------------------------------------------------------

    def _use(self, solution: Solution) -> Round:
        """Count how often each kernel is used by a partition."""
        for state in self._kernels.values():
            state.uses = 0
        states = tuple(self._state(choice) for choice in solution.partition.choices)
        for state in states:
            state.uses += 1
        return Round(solution=solution, states=states)

    def _state(self, choice: Choice) -> KernelState:
        form = self.planner.assembler.form(choice)
        state = self._kernels.get(form.fingerprint)
        if state is None:
            state = new_state(
                form,
                choice,
                self.device,
                self.options,
                seed=self._seed,
                hints=self._neighbours.hints(form.graph, choice.family),
            )
            self._kernels[form.fingerprint] = state
            self._load(state)
        self._costs.add(choice, state)
        return state

    def _best(self) -> Round:
        """The fastest partition whose kernels were all measured; else the last."""
        if self._current is None:
            return self._use(self._untuned())
        return next(iter(ranked(self._seen)), self._current)

    def _line_up(self) -> LineUp:
        """Who is run whole."""
        assert self._seen, "a run begins with a solved partition"
        return line_up(
            ranked(self._seen) or [self._best()],
            self._kernels,
            untuned=self._seen[0],
            unfused=self.planner.unfused(),
            stored=stored_contestant(self._incumbent, self.model.graph, self._state),
        )

    def _plans(self) -> dict[str, Plan]:
        """Plans of the contestants; who breaks the memory cap takes no part."""
        plans = {}
        for label, contestant in self._line_up().contestants.items():
            try:
                plans[label] = self._assembled(contestant)
            except ConstraintsUnsatisfiable:
                continue
        return plans

    def _assembled(self, contestant: Contestant) -> Plan:
        return self.planner.plan(contestant.solution, contestant.tuned)

    def _shown(self) -> dict[str, Measurement]:
        """Whole measurements as a plan shows them: the winner's is the plan's."""
        shown = {
            "plan": self._whole.get(self.winner),
            **{name: self._whole.get(name) for name in SHOWN},
        }
        return {name: found for name, found in shown.items() if found is not None}

    def _refinement(self, kept: Contestant) -> Refinement:
        """What was proved of a plan, by the runs of the schedules that it uses."""
        seconds = []
        for choice in kept.solution.partition.choices:
            tuned = kept.tuned.get(self._state(choice).name)
            if tuned is None or tuned.measurement.contended:
                return self._proved(None)
            seconds.append(tuned.measurement.seconds)
        return self._proved(math.fsum(seconds))

    def _proved(self, total: float | None) -> Refinement:
        bound = None if self._proof is None else self._proof.bound_seconds
        gap = gap_of(total, bound)
        return Refinement(
            measured_optimal=gap is not None and gap <= EXACT,
            measured_gap=gap,
            confidence=CONFIDENCE,
            rounds=self._rounds + self._proofs,
            trials=self._ledger.trials,
        )


def _solve(price: PriceKind) -> Json:
    """A batch's item that solves the partition under one of the prices."""
    return {"kind": "solve", "price": price}
