"""What a tuning run does next: the items of its batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from tuner.fusion.partition import Solution
from tuner.search.budget import Budget
from tuner.search.contest import APART
from tuner.search.kernels import KernelState
from tuner.search.plans import Plans
from tuner.search.records import Json
from tuner.search.run import Run, solve_item
from tuner.search.stages import (
    FOLLOWING,
    PROOF_ROUNDS,
    RECOVERY_ROUNDS,
    WHOLE_RUNS,
    Stage,
)

SOLVES_APART: Final = 4.0
"""How many times as long as a solve a proof's batch takes, about, before the next."""
LEANING: Final = 0.25
"""Kernels run at once that raise the bound by this share of the most, as expected."""
BATCH_SECONDS: Final = 3.0
"""How much measuring one batch holds, about: a killed worker repeats one batch."""


class Proposer:
    """Chooses the next batch by what was observed.

    Args:
        run: what is known.
        plans: what could be run whole.
    """

    def __init__(self, run: Run, plans: Plans) -> None:
        self._run = run
        self._plans = plans

    @property
    def _budget(self) -> Budget:
        return self._run.ledger.budget

    def propose(self) -> Json | None:
        """The next batch of measurements; None when the run is over."""
        run = self._run
        while run.stage != "done":
            items = self._items()
            if items:
                run.batches += 1
                return {"index": run.batches - 1, "items": items}
            self._enter(self._following())
        return None

    def _following(self) -> Stage:
        """The stage after this one; some bring a partition that is worth improving."""
        run = self._run
        brings = run.stage in {"prove", "vary"}
        is_new = brings and run.best().regions != run.improved
        return "improve" if is_new and run.may_spend() else FOLLOWING[run.stage]

    def _enter(self, stage: Stage) -> None:
        run = self._run
        run.enter(stage)
        if stage == "recover":
            run.rounds_left = RECOVERY_ROUNDS
        if stage == "improve":
            best = run.best()
            run.improved = best.regions
            run.use(best.solution)

    def _items(self) -> list[Json]:
        """Items of the next batch in this stage; none when the stage is over."""
        ways: Mapping[Stage, Callable[[], list[Json]]] = {
            "open": self._opening,
            "cover": lambda: self._kernel_items() or self._solve_again(),
            "improve": self._kernel_items,
            "recover": lambda: self._kernel_items() or self._solve_again(),
            "prove": lambda: self._proof_items() or self._prove_again(),
            "vary": lambda: self._other_solves() or self._other_kernels(),
            "check": self._check_items,
            "judge": lambda: self._whole_items() or self._missing_items(),
        }
        return ways[self._run.stage]()

    def _opening(self) -> list[Json]:
        if self._run.toolchain:
            return []
        return [{"kind": "device"}, solve_item("predicted")]

    def _solve_again(self) -> list[Json]:
        """A solve, unless it would be asked the same question as the last one."""
        run = self._run
        if run.rounds_left <= 0 or not run.may_spend():
            return []
        if run.solved_with == run.costs.known():
            return []
        run.rounds_left -= 1
        return [solve_item("measured")]

    def _prove_again(self) -> list[Json]:
        run = self._run
        is_settled = run.proof is not None and not run.proof.is_stale
        may_solve = run.may_spend() or (run.proof is not None and run.may_conclude())
        if is_settled or run.proofs >= PROOF_ROUNDS or not may_solve:
            return []
        run.proofs += 1
        return [solve_item("optimistic")]

    def _other_solves(self) -> list[Json]:
        """Solves that find other partitions than the best; none when all were found."""
        run, others = self._run, self._run.others
        if not others.is_begun:
            others.begin(run.best(), run.costs)
        room = BATCH_SECONDS / run.solve_seconds if run.solve_seconds else math.inf
        items: list[Json] = []
        for avoided in others.waiting:
            if len(items) >= max(1.0, room) or not run.may_solve(len(items)):
                break
            items.append(solve_item("measured", avoided))
        return items

    def _other_kernels(self) -> list[Json]:
        """First runs of kernels that only the other partitions use.

        No further ones: a kernel that got faster would make the proof an old one.
        """
        run, others = self._run, self._run.others
        if not others.is_over:
            others.end(run.costs)
            run.seen += others.found
        run.use_new(others.found)
        return self._kernel_items()

    def _proof_items(self) -> list[Json]:
        """First runs of the kernels that a proof leans on most.

        With their times in place of their bounds, the next answer may well do without
        the others. So it is asked for before those are run, as soon as a batch takes
        long beside a solve.
        """
        run = self._run
        waiting = self._waiting()
        hopes = run.costs.hopes(waiting)
        waiting.sort(key=lambda s: (s.has_failed, -hopes[s.name]))
        most = max(hopes.values(), default=0.0)
        enough = SOLVES_APART * run.solve_seconds
        items: list[Json] = []
        for state in waiting:
            is_late = len(items) * run.ledger.trial_seconds >= enough
            is_minor = state.has_failed or hopes[state.name] < LEANING * most
            if (items and is_late and is_minor) or not self._has_room(len(items)):
                break
            schedule = state.next_schedule()
            if schedule is not None:
                items.append(run.item("kernel", state, schedule))
        return items

    def _has_room(self, count: int) -> bool:
        """Whether a batch of so many kernel runs may have another."""
        ledger = self._run.ledger
        room = max(1, int(BATCH_SECONDS / ledger.trial_seconds))
        return count < room and self._run.may_spend(count)

    def _waiting(self) -> list[KernelState]:
        """Kernels in use without a sound run that may still get one."""
        states = self._run.kernels.values()
        return [state for state in states if state.uses and state.is_waiting]

    def _kernel_items(self) -> list[Json]:
        """Kernel runs for one batch."""
        run = self._run
        items: list[Json] = []
        planned: dict[str, int] = {}
        while self._has_room(len(items)):
            state = self._next_state(planned)
            schedule = state.next_schedule() if state is not None else None
            if state is None or schedule is None:
                break
            planned[state.name] = planned.get(state.name, 0) + 1
            items.append(run.item("kernel", state, schedule))
        return items

    def _next_state(self, planned: Mapping[str, int]) -> KernelState | None:
        """The kernel to run next in this stage."""
        waiting = [state for state in self._waiting() if state.name not in planned]
        if waiting:
            return max(
                waiting, key=lambda s: (not s.has_failed, s.uses * s.predicted_seconds)
            )
        if self._run.stage == "improve":
            return self._most_promising(planned)
        return None

    def _most_promising(self, planned: Mapping[str, int]) -> KernelState | None:
        """The used kernel whose further runs could save most; None if none may."""

        def waiting(state: KernelState) -> int:
            return planned.get(state.name, 0)

        tried = [
            state
            for state in self._run.kernels.values()
            if state.uses
            and state.best is not None
            and not state.is_finished
            and len(state.results) + waiting(state) < self._budget.trials_per_kernel
        ]
        return max(tried, key=lambda s: s.promise / (1 + waiting(s)), default=None)

    def _check_items(self) -> list[Json]:
        """Loaded results that a contestant rests on, and that nobody has checked."""
        used = {
            (name, tuned.schedule)
            for contestant in self._plans.line_up().contestants.values()
            for name, tuned in contestant.tuned.items()
        }
        return [
            self._run.item("verify", state, schedule)
            for state in self._run.kernels.values()
            for schedule in state.results
            if schedule in state.loaded and (state.name, schedule) in used
        ]

    def _whole_items(self) -> list[Json]:
        run = self._run
        programs = [m for n, m in run.whole.items() if n not in APART]
        stray = all(m.failure and m.contended for m in programs)
        if not stray or run.whole_runs >= WHOLE_RUNS:
            return []
        run.whole_runs += 1
        return [{"kind": "whole", "labels": list(self._plans.by_label())}]

    def _missing_items(self) -> list[Json]:
        """Default runs of the winner's kernels that nobody has run by themselves.

        Then those of single operators, as many as there is budget left for: what each
        operator takes without fusion is part of what a run tells.
        """
        run = self._run
        if run.kept is None:
            return []
        missing = self._without_default(run.kept.solution)
        if missing and run.ledger.allows_last(len(missing)):
            return [run.item("kernel", s, s.default) for s in missing]
        singles = self._without_default(run.unfused())
        room = sum(run.may_tell(n + 1) for n in range(len(singles)))
        if room:
            return [run.item("kernel", s, s.default) for s in singles[:room]]
        if run.is_told:
            return []
        run.is_told = True
        return [{"kind": "operators"}]

    def _without_default(self, solution: Solution) -> list[KernelState]:
        """Kernels whose default schedule never ran, those of most time first."""
        used = self._run.use(solution).states
        missing = {s.name: s for s in used if s.default not in s.results}
        return sorted(
            missing.values(), key=lambda s: s.uses * s.predicted_seconds, reverse=True
        )
