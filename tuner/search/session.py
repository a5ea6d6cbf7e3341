"""A tuning run as a deterministic state machine: propose, measure, observe.

Only `measure` touches a device. Proposals depend on the constructor's arguments and
on what was observed, never on the clock, so a durable job can replay a run: it builds
the session again, observes the stored results, and goes on where it stopped.

Refinement, in three stages. *Cover*: measure every kernel of the partition once, solve
again with measured costs (and the model's, corrected by family, where nothing was
measured), and repeat until the partition stands. *Improve*: spend trials where most
time could still be saved, then cover once more. *Judge*: the plan, the untuned plan,
the unfused plan and the library's own run of the model are timed whole, and a plan
that lost is not kept. What ends up in the plan was measured: when the budget ends
early, the best partition whose kernels all were is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import Any, Final, Literal

from tuner.assembly import Tuned, kernel_sources
from tuner.execution import whole_request
from tuner.fusion.partition import Solution
from tuner.ir.graph import Region
from tuner.model import Model
from tuner.pipeline import Planner, plan_key, resolve_target
from tuner.plan import (
    GENERATED,
    Choice,
    Family,
    Language,
    Measurement,
    Options,
    Plan,
    Schedule,
)
from tuner.runtime.requests import MeasureRequest
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.kernels import KernelState, new_state
from tuner.search.records import Json, from_json, measurement_key, to_json

BATCH_SECONDS: Final = 3.0
"""How much measuring one batch holds, about: a killed worker repeats one batch."""
TRIAL_SECONDS: Final = 0.3
"""What one kernel run costs, compiling and verifying included, until some were seen."""
RECOVERY_ROUNDS: Final = 2
"""Re-solves after schedules were improved."""
SAMPLE_SECONDS: Final = 0.1
"""Timed samples of one kernel run."""
WHOLE_SAMPLE_SECONDS: Final = 4.0
"""Timed samples of all whole plans together."""
MAX_ROUNDS: Final = 4
"""Re-solves while covering; each either changes the partition or ends the stage."""

Stage = Literal["cover", "improve", "recover", "judge", "done"]
_SHARES: Final[Mapping[Stage, float]] = {
    "cover": 0.6,
    "improve": 0.65,
    "recover": 0.8,
    "judge": 1.0,
    "done": 1.0,
}
"""Share of the budget that may be spent by the end of each stage; what remains is for
running whole plans."""
LABELS: Final = ("plan", "untuned", "unfused", "reference")


class TuningSession:
    """One tuning run.

    Args:
        model: what to tune.
        target: device of the catalogue; also names the worker's device.
        options: what the user asked.
        budget: when to stop.
        known: results of earlier runs by measurement key; they cost nothing.
        seed: of all random choices.
        clock: seconds; read around measurements only, and recorded in their results.
    """

    def __init__(
        self,
        model: Model,
        target: str,
        options: Options,
        budget: Budget,
        known: Mapping[str, Mapping[str, Any]] | None = None,
        seed: int = 0,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.model = model
        self.device = resolve_target(target)
        self.options = options
        self.budget = budget
        self.key = plan_key(model, self.device, options)
        self.planner = Planner(model=model, device=self.device, options=options)
        self._known = dict(known or {})
        self._seed = seed
        self._clock = clock
        self._language: Language = "cuda" if self.device.kind == "gpu" else "opencl"
        self._kernels: dict[str, KernelState] = {}
        self._structures: dict[object, KernelState] = {}
        self._spent_seconds = 0.0
        self._trials = 0
        self._rounds = 0
        self._batches = 0
        self._stage: Stage = "cover"
        self._whole: dict[str, Measurement] = {}
        self._untuned = self.planner.solve()
        self._solution = self._untuned
        self._measured: Solution | None = None
        self._winner = "plan"
        self._adopt(self._solution)

    # What the caller sees ----------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to measure."""
        return self._stage == "done"

    def propose(self) -> Json | None:
        """The next batch of measurements; None when the run is over."""
        while not self.is_done:
            if self._stage == "judge":
                self._stage = "done"
                return self._batch([{"kind": "whole", "labels": list(LABELS)}])
            items = self._kernel_items()
            if items:
                return self._batch(items)
            self._advance()
        return None

    def measure(self, batch: Mapping[str, Any], runner: Runner) -> list[Json]:
        """Run a batch on a device; the results are JSON, one per item."""
        return [self._measure_item(item, runner) for item in batch["items"]]

    def observe(
        self, batch: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
    ) -> list[Json]:
        """Take in a batch's results; returns the events that they caused."""
        events: list[Json] = []
        for item, result in zip(batch["items"], results, strict=True):
            self._spent_seconds += float(result.get("cost_seconds", 0.0))
            if item["kind"] == "kernel":
                events.append(self._observe_kernel(item, result))
            else:
                events.extend(self._observe_whole(result))
        if self._stage in ("cover", "recover") and not self._fresh({}):
            events.extend(self._resolve())
        return events

    def plan(self) -> Plan:
        """The best plan so far; the untuned one as long as nothing was measured."""
        if self._winner == "unfused":
            return self._finished(self.planner.unfused())
        if self._winner == "untuned":
            return self._finished(self._untuned)
        return self._finished(self._solution)

    def progress(self) -> Json:
        """Trials, best plan's seconds, gap, and seconds left of the budget."""
        partition = self._solution.partition
        left = max(0.0, self.budget.seconds - self._spent_seconds)
        return {
            "trials": self._trials,
            "best_seconds": self._objective(),
            "gap": partition.gap,
            "remaining_seconds": 0.0 if self.is_done else left,
        }

    def new_measurements(self, batch: Mapping[str, Any]) -> tuple[str, ...]:
        """Measurement keys of a batch's kernel runs, in the order of its items."""
        return tuple(item["key"] for item in batch["items"] if item["kind"] == "kernel")

    # Proposing ---------------------------------------------------------------

    def _batch(self, items: Sequence[Json]) -> Json:
        self._batches += 1
        return {"index": self._batches - 1, "items": list(items)}

    def _advance(self) -> None:
        """Go to the next stage: nothing is left to measure in this one."""
        following: dict[Stage, Stage] = {
            "cover": "improve",
            "improve": "recover",
            "recover": "judge",
        }
        self._stage = following[self._stage]
        if self._stage == "recover":
            self._rounds = MAX_ROUNDS - RECOVERY_ROUNDS
            self._resolve()
        if self._stage == "judge" and self._measured is not None:
            self._solution = self._measured

    def _kernel_items(self) -> list[Json]:
        """Kernel runs for one batch."""
        items: list[Json] = []
        planned: dict[str, int] = {}
        room = max(1, int(BATCH_SECONDS / self._trial_seconds()))
        while len(items) < room and self._may_spend(len(items)):
            state = self._next_state(planned)
            schedule = state.study.propose() if state is not None else None
            if state is None or schedule is None:
                break
            name = state.form.fingerprint
            planned[name] = planned.get(name, 0) + 1
            found = self._known.get(self._measurement_key(state, schedule))
            if found is None:
                items.append(self._item(state, schedule))
            else:
                self._take(state, schedule, from_json(found))
        if not items and planned and self._stage != "improve":
            self._resolve()  # every kernel of this batch was known already
            return self._kernel_items() if self._fresh({}) else []
        return items

    def _next_state(self, planned: Mapping[str, int]) -> KernelState | None:
        """The kernel to run next in this stage."""
        fresh = self._fresh(planned)
        if fresh:
            return max(fresh, key=lambda s: s.uses * s.predicted_seconds)
        return self._most_promising(planned) if self._stage == "improve" else None

    def _fresh(self, planned: Mapping[str, int]) -> list[KernelState]:
        """Used kernels of which no run has passed, and that may still be tried."""
        return [
            state
            for state in self._kernels.values()
            if state.uses
            and state.best is None
            and not state.is_hopeless
            and state.form.fingerprint not in planned
        ]

    def _item(self, state: KernelState, schedule: Schedule) -> Json:
        return {
            "kind": "kernel",
            "kernel": state.form.fingerprint,
            "schedule": schedule.as_dict,
            "key": self._measurement_key(state, schedule),
        }

    def _measurement_key(self, state: KernelState, schedule: Schedule) -> str:
        return measurement_key(
            state.form.fingerprint, schedule, self.device.id, self.key.toolchain
        )

    def _most_promising(self, planned: Mapping[str, int]) -> KernelState | None:
        """The used kernel whose further runs could save most; None if none may."""

        def waiting(state: KernelState) -> int:
            return planned.get(state.form.fingerprint, 0)

        tried = [
            state
            for state in self._kernels.values()
            if state.uses
            and state.best is not None
            and not state.is_finished
            and len(state.results) + waiting(state) < self.budget.trials_per_kernel
        ]
        return max(tried, key=lambda s: s.promise / (1 + waiting(s)), default=None)

    def _may_spend(self, waiting: int) -> bool:
        """Whether the budget allows another kernel run beside those waiting."""
        if self._trials + waiting >= self.budget.trials:
            return False
        ahead = waiting * self._trial_seconds()
        share = _SHARES[self._stage]
        return self._spent_seconds + ahead < self.budget.seconds * share

    def _trial_seconds(self) -> float:
        if self._trials == 0:
            return TRIAL_SECONDS
        return max(0.02, self._spent_seconds / self._trials)

    # Measuring ---------------------------------------------------------------

    def _measure_item(self, item: Mapping[str, Any], runner: Runner) -> Json:
        if item["kind"] == "whole":
            return self._measure_whole(runner)
        state = self._kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        source = None
        if state.family in GENERATED:
            sources = kernel_sources(state.form, schedule)
            source = next(s for s in sources if s.language == self._language)
        request = MeasureRequest(
            graph=state.form.graph,
            source=source,
            weights=state.form.graph.weights,
            exactness=self.options.exactness,
            seeds=(self._seed, self._seed + 1),
            budget_seconds=SAMPLE_SECONDS,
        )
        start = self._clock()
        measurement = runner.measure(request)
        return {**to_json(measurement), "cost_seconds": self._clock() - start}

    def _measure_whole(self, runner: Runner) -> Json:
        plans = {
            "plan": self._finished(self._solution),
            "untuned": self.planner.plan(self._untuned),
            "unfused": self.planner.plan(self.planner.unfused()),
        }
        request = whole_request(
            self.model,
            plans,
            self._language,
            seed=self._seed,
            budget_seconds=WHOLE_SAMPLE_SECONDS,
        )
        start = self._clock()
        result = runner.measure_whole(request)
        return {
            "whole": {name: to_json(m) for name, m in result.measurements.items()},
            "verified": result.verified,
            "cost_seconds": self._clock() - start,
        }

    # Observing ---------------------------------------------------------------

    def _observe_kernel(
        self, item: Mapping[str, Any], result: Mapping[str, Any]
    ) -> Json:
        state = self._kernels[item["kernel"]]
        schedule = Schedule.of(**item["schedule"])
        measurement = from_json(result)
        self._known[item["key"]] = dict(result)
        self._trials += 1
        self._take(state, schedule, measurement)
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

    @staticmethod
    def _take(state: KernelState, schedule: Schedule, measurement: Measurement) -> None:
        state.results[schedule] = measurement
        failed = bool(measurement.failure)
        state.study.tell(schedule, None if failed else measurement.seconds)

    def _resolve(self) -> list[Json]:
        """Solve again with measured costs; adopt the answer if it is another one."""
        self._remember()
        if self._rounds >= MAX_ROUNDS:
            return []
        self._rounds += 1
        before = {c.region for c in self._solution.partition.choices}
        solution = self.planner.solve(self._measured_price)
        changed = sum(c.region not in before for c in solution.partition.choices)
        self._solution = solution
        self._adopt(solution)
        if not self._fresh({}):
            self._remember()
        if not changed:
            self._rounds = MAX_ROUNDS
        return [
            {
                "type": "resolve",
                "round": self._rounds,
                "kernels": len(solution.partition.choices),
                "changed": changed,
                **self.progress(),
            }
        ]

    def _remember(self) -> None:
        """Keep the current partition if it is measured throughout and the fastest."""
        total = self._measured_seconds(self._solution)
        best = self._measured_seconds(self._measured)
        if total is not None and (best is None or total < best):
            self._measured = self._solution

    def _measured_seconds(self, solution: Solution | None) -> float | None:
        """Sum of measured kernels; None if a kernel was never measured."""
        if solution is None:
            return None
        seconds = [self._best_of(choice) for choice in solution.partition.choices]
        if any(found is None for found in seconds):
            return None
        return math.fsum(found for found in seconds if found is not None)

    def _best_of(self, choice: Choice) -> float | None:
        state = self._structures.get(self._structure(choice))
        best = state.best if state is not None else None
        return None if best is None else best.measurement.seconds

    def _observe_whole(self, result: Mapping[str, Any]) -> list[Json]:
        self._whole = {
            name: from_json(record) for name, record in result["whole"].items()
        }
        self._winner = self._judge()
        return [
            {
                "type": "plan",
                "winner": self._winner,
                "seconds": {
                    name: record["seconds"] for name, record in result["whole"].items()
                },
                **self.progress(),
            }
        ]

    def _judge(self) -> str:
        """Which plan to keep: the tuned one unless another is surely faster."""
        kept = "plan"
        for rival in ("untuned", "unfused"):
            mine, other = self._whole.get(kept), self._whole.get(rival)
            if other is None or other.failure:
                continue
            if mine is None or mine.failure or other.high_seconds < mine.low_seconds:
                kept = rival
        return kept

    # Costs -------------------------------------------------------------------

    def _adopt(self, solution: Solution) -> None:
        """Count how often each kernel is used by the current partition."""
        for state in self._kernels.values():
            state.uses = 0
        for choice in solution.partition.choices:
            self._state(choice).uses += 1

    def _state(self, choice: Choice) -> KernelState:
        form = self.planner.assembler.form(choice)
        state = self._kernels.get(form.fingerprint)
        if state is None:
            state = new_state(form, choice, self.device, self.options, seed=self._seed)
            self._kernels[form.fingerprint] = state
            self._structures[self._structure(choice)] = state
        return state

    def _measured_price(self, region: Region, family: Family) -> float:
        """Measured seconds where there are any, else the model's, corrected."""
        key = (family, self.planner.pricer.structure(region))
        state = self._structures.get(key)
        if state is not None and state.is_hopeless:
            return math.inf
        if state is not None and state.best is not None:
            return state.best.measurement.seconds
        predicted = self.planner.pricer.seconds(region, family)
        return predicted * self._corrections().get(family, 1.0)

    def _structure(self, choice: Choice) -> object:
        return (choice.family, self.planner.pricer.structure(choice.region))

    def _corrections(self) -> Mapping[Family, float]:
        """Median of measured over predicted seconds, by family."""
        ratios: dict[Family, list[float]] = {}
        for state in self._kernels.values():
            best = state.best
            if best is not None and state.predicted_seconds > 0:
                ratio = best.measurement.seconds / state.predicted_seconds
                ratios.setdefault(state.family, []).append(ratio)
        return {family: median(values) for family, values in ratios.items()}

    def _objective(self) -> float:
        """Sum over the current partition: measured where known, else predicted."""
        total = 0.0
        for choice in self._solution.partition.choices:
            total += self._measured_price(choice.region, choice.family)
        return total

    def _tuned(self) -> dict[str, Tuned]:
        found = {name: state.best for name, state in self._kernels.items()}
        return {name: best for name, best in found.items() if best is not None}

    def _finished(self, solution: Solution) -> Plan:
        plan = self.planner.plan(solution, self._tuned())
        whole = {
            "plan": self._whole.get(self._winner),
            "untuned": self._whole.get("untuned"),
            "unfused": self._whole.get("unfused"),
            "reference": self._whole.get("reference"),
        }
        kept = {name: found for name, found in whole.items() if found is not None}
        return replace(plan, whole=kept)
