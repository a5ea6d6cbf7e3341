"""The cheapest partitions beside the best one, by leaving out its kernels in turn.

Whatever does without one of the best partition's kernels is a different partition, and
the cheapest of those is the second best. So each kernel is left out in turn and the
partition solved again; the cheapest answer is taken, then its kernels are left out in
turn beside what it does without already. Equal kernels, such as those of equal layers,
are left out together: a partition that differs in one layer of many is no other way to
run a model.

Source: E. L. Lawler, "A procedure for computing the K best solutions to discrete
optimization problems and its application to the shortest path problem", Management
Science 18(7), 1972.
"""

from __future__ import annotations

import heapq
from typing import Final

from tuner.search.costs import Costs
from tuner.search.rounds import Round

FURTHER_FACTOR: Final = 1.5
"""How much slower than the best, by the sum of its kernels, another partition may be
that is worth running whole."""
MOST_SOLVES: Final = 64
"""Solves of one search, however quick they are."""

Avoided = frozenset[str]


class Alternatives:
    """A search that asks for solves, and takes their answers.

    Args:
        wanted: partitions to find beside the best one.
        most_factor: how much slower than the best they may be, by their kernels.

    Attributes:
        best: the partition that the others differ from; None before it is known.
        found: partitions beside the best one, the cheapest first.
        solves: answers taken so far.
        is_complete: whether none cheaper than those found is left out; not where the
            search was ended before.
        is_over: whether nothing more is solved.
    """

    def __init__(self, wanted: int, *, most_factor: float = FURTHER_FACTOR) -> None:
        self.wanted = wanted
        self.most_factor = most_factor
        self.found: list[Round] = []
        self.solves = 0
        self.is_complete = wanted == 0
        self.is_over = False
        self.best: Round | None = None
        self._most_seconds = 0.0
        self._open: list[Avoided] = []
        self._known: set[Avoided] = set()
        self._answers: list[tuple[float, int, Avoided, Round]] = []

    @property
    def is_begun(self) -> bool:
        """Whether it is known which partition is the best."""
        return self.best is not None

    @property
    def waiting(self) -> tuple[Avoided, ...]:
        """Kernels, by name, that the next solves are to leave out."""
        left = max(0, MOST_SOLVES - self.solves)
        return tuple(self._open[:left])

    def begin(self, best: Round, costs: Costs) -> None:
        """Say which partition the others are to differ from."""
        self.best = best
        self._most_seconds = best.objective_seconds(costs) * self.most_factor
        if self.wanted:
            self._leave_out(best, frozenset(), costs)

    def take(self, avoided: Avoided, answer: Round | None, costs: Costs) -> None:
        """Take in the cheapest partition without some kernels; None if there is none.

        One that holds such a kernel all the same has no other for its node.
        """
        self.solves += 1
        self._open.remove(avoided)
        if answer is not None and not avoided & {s.name for s in answer.states}:
            self._wait(avoided, answer, answer.objective_seconds(costs))
        while not self._open and self._answers and len(self.found) < self.wanted:
            self._accept(costs)
        is_over = len(self.found) >= self.wanted or not self._answers
        self.is_complete = not self._open and is_over

    def _wait(self, avoided: Avoided, answer: Round, seconds: float) -> None:
        if seconds <= self._most_seconds:
            heapq.heappush(self._answers, (seconds, self.solves, avoided, answer))

    def end(self, costs: Costs) -> None:
        """Nothing more is solved: the cheapest answers so far are what was found."""
        self.is_over = True
        self._open.clear()
        while self._answers and len(self.found) < self.wanted:
            self._accept(costs)
        self._open.clear()

    def _accept(self, costs: Costs) -> None:
        """Take the cheapest answer; what differs from it costs no less."""
        _, _, avoided, answer = heapq.heappop(self._answers)
        earlier = [self.best, *self.found]
        if any(each is not None and each.regions == answer.regions for each in earlier):
            return
        self.found.append(answer)
        if len(self.found) < self.wanted:
            self._leave_out(answer, avoided, costs)

    def _leave_out(self, answer: Round, avoided: Avoided, costs: Costs) -> None:
        """Ask for partitions that lack one more kernel, what takes most time first."""
        seconds: dict[str, float] = {}
        for state in answer.states:
            seconds[state.name] = seconds.get(state.name, 0.0) + costs.expected(state)
        for name in sorted(seconds, key=lambda each: -seconds[each]):
            without = avoided | {name}
            if without not in self._known:
                self._known.add(without)
                self._open.append(without)
