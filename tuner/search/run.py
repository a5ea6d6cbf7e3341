"""What a tuning run knows: kernels and their results, partitions, what was spent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cost_model.device import base_of
from tuner.fusion.partition import Solution
from tuner.kernel.split import is_split
from tuner.pipeline import Planner
from tuner.plan import Choice, Measurement, Schedule
from tuner.pricing import may_split
from tuner.runtime.requests import Cache
from tuner.search.alternatives import Alternatives, Avoided
from tuner.search.budget import Ledger
from tuner.search.contest import Contestant
from tuner.search.costs import Costs, PriceKind
from tuner.search.kernels import KernelState, new_state
from tuner.search.near import Neighbours
from tuner.search.records import (
    Json,
    Known,
    cost_of,
    measurement_key,
    toolchain_id,
    usable,
)
from tuner.search.rounds import Proof, Round, ranked
from tuner.search.stages import (
    CONCLUDING_SHARE,
    COVER_ROUNDS,
    OPERATORS_SHARE,
    SHARES,
    VARY_SHARE,
    Stage,
)


@dataclass(kw_only=True)
class Run:
    """Everything that proposals depend on; only observing changes it.

    Attributes:
        known: results of earlier runs.
        seed: of all random choices.
        others: the search for other partitions than the best one.
        elsewhere: results of devices like this one; hints, never answers.
        cache: whether kernels are timed with cold or warm caches.
        stage: what is done now.
        toolchain: of the device that measures; empty before it was asked.
        kernels: by fingerprint.
        rounds, proofs: solves with measured and with optimistic prices so far.
        rounds_left: solves with measured prices that this stage may still ask for.
        whole_runs: how often whole plans were asked for.
        first, apart: the cost model's partition, and the one without fusion.
        current: the last partition under measured prices.
        seen: every answer that may be run whole.
        proof: the last partition under optimistic prices.
        solve_seconds: what the longest solve after the first took.
        vary_until: seconds spent at which the search for other partitions ends.
        was_exhausted: whether the budget had ended the run when that search began;
            None before it did.
        solved_with: prices of the last solve with measured costs.
        improved: the partition whose schedules were last improved.
        whole: measurements of whole plans by label.
        kept, winner: the plan that won whole, and its label.
        gone: why the device is lost; empty while it is not.
        told_from: seconds spent when operators began to be run by themselves.
        is_told: whether what every operator takes by itself was told.
        mixed: whether results of another toolchain came in.
        served: how many runs of each kernel were taken over from earlier runs.
        served_seconds: what those took when they were measured.
    """

    planner: Planner
    known: Known
    ledger: Ledger
    seed: int
    others: Alternatives
    elsewhere: Sequence[Mapping[str, Any]] = ()
    cache: Cache = "warm"
    stage: Stage = "open"
    toolchain: Mapping[str, Any] = field(default_factory=dict)
    kernels: dict[str, KernelState] = field(default_factory=dict)
    batches: int = 0
    rounds: int = 0
    proofs: int = 0
    rounds_left: int = COVER_ROUNDS
    whole_runs: int = 0
    first: Solution | None = None
    apart: Solution | None = None
    current: Round | None = None
    seen: list[Round] = field(default_factory=list)
    proof: Proof | None = None
    solve_seconds: float = 0.0
    vary_until: float = math.inf
    was_exhausted: bool | None = None
    solved_with: object = None
    improved: frozenset[object] = frozenset()
    whole: dict[str, Measurement] = field(default_factory=dict)
    kept: Contestant | None = None
    winner: str = ""
    gone: str = ""
    told_from: float | None = None
    is_told: bool = False
    mixed: bool = False
    served: dict[str, int] = field(default_factory=dict)
    served_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Prices and hints start from what was given."""
        self.costs = Costs(self.planner.pricer)
        self._neighbours = Neighbours(self.known.records.values(), self.elsewhere)

    def may_spend(self, waiting: int = 0) -> bool:
        """Whether this stage may run another kernel beside those waiting."""
        spent = self.ledger.seconds + waiting * self.ledger.trial_seconds
        if self.stage == "vary" and spent >= self.vary_until:
            return False
        return self.ledger.allows(waiting, SHARES[self.stage])

    def may_conclude(self) -> bool:
        """Whether one more solve, for the bound alone, fits beside the whole plans."""
        return self.solve_seconds <= CONCLUDING_SHARE * self.ledger.reserve_seconds

    def may_solve(self, waiting: int = 0) -> bool:
        """Whether this stage may solve once more beside the solves waiting."""
        ahead = (1 + waiting) * self.solve_seconds
        return self.may_spend() and self.ledger.seconds + ahead <= self.vary_until

    def may_tell(self, count: int) -> bool:
        """Whether so many more operators may be run by themselves in the end."""
        most = OPERATORS_SHARE * self.ledger.budget.seconds
        if self.told_from is None:
            self.told_from = self.ledger.seconds
        ahead = self.ledger.seconds + count * self.ledger.trial_seconds
        return self.ledger.allows_last(count) and ahead <= self.told_from + most

    @property
    def is_exhausted(self) -> bool:
        """Whether the budget ended the run before everything was measured.

        What looking for other partitions than the best one takes does not count.
        """
        if self.was_exhausted is not None:
            return self.was_exhausted
        return not self.ledger.allows(0, SHARES["prove"])

    def enter(self, stage: Stage) -> None:
        """Go on to a stage."""
        if stage == "vary" and self.was_exhausted is None:
            self.was_exhausted = self.is_exhausted
            most = VARY_SHARE * self.ledger.budget.seconds
            self.vary_until = self.ledger.seconds + most
        self.stage = stage

    # Partitions --------------------------------------------------------------

    def untuned(self) -> Solution:
        """The cost model's partition."""
        if self.first is None:
            self.first = self.planner.solve()
        return self.first

    def unfused(self) -> Solution:
        """Every operator by itself."""
        if self.apart is None:
            self.apart = self.planner.unfused()
        return self.apart

    def use(self, solution: Solution) -> Round:
        """Count how often each kernel is used by a partition."""
        for state in self.kernels.values():
            state.uses = 0
        states = tuple(self.state(choice) for choice in solution.partition.choices)
        for state in states:
            state.uses += 1
        return Round(solution=solution, states=states)

    def use_new(self, rounds: Sequence[Round]) -> None:
        """Count how often partitions use the kernels that the best does not use."""
        own = {state.name for state in self.best().states}
        for state in self.kernels.values():
            state.uses = 0
        for each in rounds:
            counts = Counter(s.name for s in each.states if s.name not in own)
            for name, uses in counts.items():
                state = self.kernels[name]
                state.uses = max(state.uses, uses)

    def best(self) -> Round:
        """The fastest partition whose kernels were all measured; else the last."""
        if self.current is None:
            return self.use(self.untuned())
        return next(iter(ranked(self.seen)), self.current)

    # Kernels -----------------------------------------------------------------

    def state(self, choice: Choice) -> KernelState:
        """What is known of a choice's kernel; equal kernels share it."""
        form = self.planner.assembler.form(choice)
        state = self.kernels.get(form.fingerprint)
        if state is None:
            state = new_state(
                form,
                choice,
                self.planner.device,
                self.planner.options,
                seed=self.seed,
                hints=self._neighbours.hints(form.graph, choice.family),
            )
            self.kernels[form.fingerprint] = state
            self.load(state)
        self.costs.add(choice, state)
        return state

    def load(self, state: KernelState) -> None:
        """Take over what earlier runs measured with this very toolchain.

        A schedule that is out of the question under the options of this run is left:
        the key of a measurement says nothing of a cap of memory.
        """
        if not self.toolchain:
            return
        by = toolchain_id(self.toolchain)
        splits = may_split(self.planner.device, self.planner.options)
        for key, schedule, record in self.known.of_kernel(state.name):
            if (is_split(schedule) and not splits) or schedule in state.results:
                continue
            found = usable(record, by)
            if found and key == self.key_of(state, schedule, self.toolchain):
                state.take(schedule, found, loaded=True)
                self.served[state.name] = self.served.get(state.name, 0) + 1
                self.served_seconds += cost_of(record)

    def key_of(
        self, state: KernelState, schedule: Schedule, toolchain: Mapping[str, Any]
    ) -> str:
        """Identity of a measurement."""
        return measurement_key(
            state.name,
            schedule,
            device=base_of(self.planner.device.id),
            toolchain=toolchain,
            exactness=self.planner.options.exactness,
            cache=self.cache,
        )

    def item(self, kind: str, state: KernelState, schedule: Schedule) -> Json:
        """A batch's item that runs a kernel under a schedule."""
        return {
            "kind": kind,
            "kernel": state.name,
            "schedule": schedule.as_dict,
            "key": self.key_of(state, schedule, self.toolchain),
        }


def solve_item(price: PriceKind, avoided: Avoided = frozenset()) -> Json:
    """A batch's item that solves the partition under one of the prices.

    Args:
        price: which.
        avoided: names of kernels that are to be left out.
    """
    item = {"kind": "solve", "price": price}
    return {**item, "avoided": sorted(avoided)} if avoided else item
