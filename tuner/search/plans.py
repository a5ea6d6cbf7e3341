"""Plans of a tuning run: who is run whole, which is kept, and what was proved of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cost_model.estimate import Evidence
from tuner.errors import ConstraintsUnsatisfiable
from tuner.plan import Measurement, Plan, Refinement
from tuner.search.contest import APART, CONFIDENCE, Contestant, gap_of
from tuner.search.kernels import KernelState, tuned_of
from tuner.search.lineup import LineUp, line_up, stored_contestant
from tuner.search.partitions import operator_rows, partition_rows
from tuner.search.records import Json
from tuner.search.rounds import ranked
from tuner.search.run import Run

SHOWN: Final = ("untuned", "unfused", "incumbent", *APART)
"""Whole measurements that a plan shows beside its own."""
EXACT: Final = 1e-6
"""A gap below this is none: the solver's own tolerance."""


class Plans:
    """Turns what a run knows into plans.

    Args:
        run: what is known.
        incumbent: body of the stored measured plan.
    """

    def __init__(self, run: Run, incumbent: Mapping[str, Any] | None) -> None:
        self._run = run
        self._incumbent = incumbent

    def line_up(self) -> LineUp:
        """Who is run whole."""
        run = self._run
        assert run.seen, "a run begins with a solved partition"
        graph = run.planner.model.graph
        return line_up(
            ranked(run.seen) or [run.best()],
            run.kernels,
            untuned=run.seen[0],
            unfused=None if run.planner.must_fuse else run.unfused(),
            stored=stored_contestant(self._incumbent, graph, run.state),
            partitions=run.others.wanted + 1,
            most_factor=run.others.most_factor,
        )

    def rows(self) -> list[Json]:
        """Every plan of the line-up; see `tuner.search.partitions`."""
        run = self._run
        return partition_rows(
            run.planner, self.line_up(), whole=run.whole, winner=run.winner
        )

    def operators(self) -> list[Json]:
        """What every operator takes in a kernel of its own."""
        run = self._run
        return operator_rows(run.planner, run.unfused(), run.kernels)

    def by_label(self) -> dict[str, Plan]:
        """Plans of the contestants; who breaks the memory cap takes no part."""
        plans = {}
        for label, contestant in self.line_up().contestants.items():
            try:
                plans[label] = self._assembled(contestant)
            except ConstraintsUnsatisfiable:
                continue
        return plans

    def best(self) -> Plan:
        """The best plan so far; the untuned one as long as nothing was measured."""
        run = self._run
        kept = run.kept
        if kept is None:
            solution = run.best().solution
            kept = Contestant(solution=solution, tuned=tuned_of(run.kernels))
        plan, whole = self._assembled(kept), self._shown()
        is_measured = "plan" in whole and not whole["plan"].failure
        return replace(
            plan,
            # Run whole, a plan is measured, even if its kernels were never run alone.
            evidence=Evidence.MEASURED if is_measured else plan.evidence,
            whole=whole,
            refinement=self._refinement(kept) if run.toolchain else None,
        )

    def kept_states(self) -> tuple[KernelState, ...]:
        """Distinct kernels of the plan that won whole; none before any was run."""
        run = self._run
        if run.kept is None:
            return ()
        states = map(run.state, run.kept.solution.partition.choices)
        return tuple({state.name: state for state in states}.values())

    def proved(self, total: float | None) -> Refinement:
        """What is known of a plan whose measured kernels take so long in all."""
        run = self._run
        bound = None if run.proof is None else run.proof.bound_seconds
        gap = gap_of(total, bound)
        return Refinement(
            measured_optimal=gap is not None and gap <= EXACT,
            measured_gap=gap,
            confidence=CONFIDENCE,
            rounds=run.rounds + run.proofs,
            trials=run.ledger.trials,
        )

    def _assembled(self, contestant: Contestant) -> Plan:
        return self._run.planner.plan(contestant.solution, contestant.tuned)

    def _shown(self) -> dict[str, Measurement]:
        """Whole measurements as a plan shows them: the winner's is the plan's."""
        whole = self._run.whole
        shown = {
            "plan": whole.get(self._run.winner),
            **{name: whole.get(name) for name in SHOWN},
        }
        return {name: found for name, found in shown.items() if found is not None}

    def _refinement(self, kept: Contestant) -> Refinement:
        """What was proved of a plan, by the runs of the schedules that it uses."""
        seconds = []
        for choice in kept.solution.partition.choices:
            tuned = kept.tuned.get(self._run.state(choice).name)
            if tuned is None or tuned.measurement.contended:
                return self.proved(None)
            seconds.append(tuned.measurement.seconds)
        return self.proved(math.fsum(seconds))
