"""The cheapest partition whose memory stays below a cap.

First the cap is left out: if the cheapest partition keeps it, in the usual order or in
one that needs less memory, nothing is lost. Then kernels whose own tensors break the
cap are cut away, which loses no plan that keeps it; if the cheapest of the rest keeps
the cap, it is the best one. Else the partition is asked where its memory is highest: a
tensor that only waits there must not be read from memory later on (whoever needs it
computes it again), or the tensors that the kernel reads there must not be read at once.
Each of these is a cut and a new problem; the cheapest open problem is solved next. That
finds good plans, but proves nothing beyond the bound of the problem without such cuts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, Protocol

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.bans import Apart, FitsIn, Restriction
from tuner.fusion.columns import Price
from tuner.fusion.low_memory import low_memory_order
from tuner.fusion.memory import needed_bytes, plan_memory, resident_bytes
from tuner.fusion.partition import Solution
from tuner.fusion.traffic import home_of
from tuner.ir.graph import Graph, region_inputs
from tuner.plan import Buffer, Choice

EXACT: Final = (
    "memory cap: kernels whose own tensors break it are cut away; the cheapest"
    " partition of the rest keeps it in its own launch order"
)
"""Said of the candidate space when the cap cost no proof."""
SEARCHED: Final = (
    "memory cap: kept by cuts on what may be read where memory is highest; the bound is"
    " that of all partitions without kernels that break the cap alone, so gap 0 is not"
    " promised"
)
"""Said of the candidate space when cuts had to find the partition."""
MOST_SOLVES: Final = 48
"""Problems that are solved for one cap."""
MOST_WAITING: Final = 3
"""Tensors that wait at the peak of which each gives a cut: the largest ones."""
MORE_SOLVES: Final = 6
"""Problems that are solved after the first partition that keeps the cap."""

LOWER_ROUNDS: Final = 6
"""How often less memory is sought, to name the least when a cap cannot be kept."""


class Solve(Protocol):
    """The uncapped solver."""

    def __call__(
        self, price: Price, restrictions: Sequence[Restriction] = ()
    ) -> Solution:
        """The cheapest partition under a price, without forbidden kernels."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A solution, and the device memory that it takes."""

    solution: Solution
    needed: int

    @property
    def seconds(self) -> float:
        return self.solution.partition.objective_seconds


def solve_capped(
    graph: Graph,
    price: Price,
    solve: Solve,
    *,
    cap_bytes: int,
    fallbacks: Callable[[], Sequence[Solution]] = tuple,
    out_of_time: Callable[[], bool] = lambda: False,
) -> Solution:
    """The cheapest partition found that takes no more memory than the cap.

    Memory is what the graph is given, holds and delivers, and the arena of the rest.

    Args:
        graph: what is partitioned.
        price: seconds of one kernel.
        solve: the solver without a cap.
        cap_bytes: most device memory.
        fallbacks: partitions worth a try beside those that cuts lead to.
        out_of_time: whether no further problem should be solved.

    Raises:
        ConstraintsUnsatisfiable: no partition that was found keeps the cap; the error
            names the least memory found.
    """
    capped = _Capped(graph, price, solve, cap_bytes)
    free = capped.attempt(solve(price))
    if free.needed <= cap_bytes:
        return free.solution
    cut = capped.solved(())
    # A solver that ran out of time has proved nothing by finding nothing.
    is_proved = cut is None and (capped.resident > cap_bytes or not out_of_time())
    if cut is not None and cut.needed <= cap_bytes:
        return _said(cut.solution, cut.solution, EXACT)
    found = [free, *map(capped.attempt, fallbacks())]
    if cut is not None:
        found += [cut, *capped.searched(cut, out_of_time)]
    keeping = [attempt for attempt in found if attempt.needed <= cap_bytes]
    if not keeping or cut is None:
        least = capped.least(found, out_of_time)
        raise capped.failure(least, is_proved=is_proved)
    best = min(keeping, key=lambda attempt: (attempt.seconds, attempt.needed))
    return _said(best.solution, cut.solution, SEARCHED)


def _said(solution: Solution, proof: Solution, words: str) -> Solution:
    """A solution with the bound and the candidate space of the one that proves it."""
    space = proof.partition.candidate_space
    bound = proof.partition.bound_seconds
    partition = replace(
        solution.partition,
        bound_seconds=min(bound, solution.partition.objective_seconds),
        candidate_space=replace(space, rules=(*space.rules, words)),
    )
    return Solution(partition=partition, baselines=proof.baselines)


Cuts = tuple[Apart, ...]


class _Capped:
    """Attempts at one graph under one cap."""

    def __init__(self, graph: Graph, price: Price, solve: Solve, cap: int) -> None:
        self.graph = graph
        self.price = price
        self.solve = solve
        self.cap = cap
        self.resident = resident_bytes(graph)

    def attempt(self, solution: Solution) -> _Attempt:
        """A solution in an order that needs less where the usual one needs too much."""
        choices = solution.partition.choices
        needed = self._needed(choices)
        if needed > self.cap:
            other = low_memory_order(self.graph, choices)
            less = self._needed(other)
            if less < needed:
                changed = replace(solution.partition, choices=other)
                return _Attempt(replace(solution, partition=changed), less)
        return _Attempt(solution, needed)

    def _needed(self, choices: Sequence[Choice]) -> int:
        memory = plan_memory(self.graph, [choice.region for choice in choices])
        return needed_bytes(self.graph, memory)

    def solved(self, cuts: Cuts) -> _Attempt | None:
        """The best partition without kernels that break the cap or a cut, if any."""
        if self.resident > self.cap:
            return None
        fits = FitsIn(self.cap - self.resident)
        try:
            return self.attempt(self.solve(self.price, (fits, *cuts)))
        except ConstraintsUnsatisfiable:
            return None

    def searched(
        self, first: _Attempt, out_of_time: Callable[[], bool]
    ) -> Iterator[_Attempt]:
        """Partitions that cuts at the peaks of others lead to, cheap ones first."""
        number = count()
        queue: list[tuple[float, int, int, Cuts, _Attempt]] = []
        seen: set[frozenset[Apart]] = set()

        def add(cuts: Cuts, attempt: _Attempt) -> None:
            entry = (attempt.seconds, attempt.needed, next(number), cuts, attempt)
            heapq.heappush(queue, entry)

        add((), first)
        left, best = MOST_SOLVES, math.inf
        while queue and left > 0:
            seconds, _, _, cuts, attempt = heapq.heappop(queue)
            if seconds >= best:
                return
            for cut in self._cuts(attempt.solution.partition.choices):
                key = frozenset((*cuts, *cut))
                if key in seen or left <= 0 or out_of_time():
                    continue
                seen.add(key)
                left -= 1
                found = self.solved((*cuts, *cut))
                if found is None or found.seconds >= best:
                    continue
                yield found
                if found.needed <= self.cap:
                    best, left = found.seconds, min(left, MORE_SOLVES)
                else:
                    add((*cuts, *cut), found)

    def _cuts(self, choices: Sequence[Choice]) -> Iterator[Cuts]:
        """What could be otherwise at the kernel where most memory is taken."""
        memory = plan_memory(self.graph, [choice.region for choice in choices])
        step = self._peak(memory.buffers, len(choices))
        alive = [b for b in memory.buffers if b.first <= step <= b.last]
        used = {*self._reads(choices[step]), *choices[step].region.outputs}
        waiting = [b for b in alive if b.tensor not in used]
        waiting.sort(key=lambda b: (-b.bytes, b.tensor))
        late = {b.tensor for b in memory.buffers if b.first >= step}
        for buffer in waiting[:MOST_WAITING]:
            tensor = buffer.tensor
            later = [c for c in choices[step + 1 :] if tensor in self._reads(c)]
            nodes = self._readers(later, tensor)
            if nodes:
                yield (Apart(nodes, frozenset([tensor])),)
            after = late.intersection(*(self._reads(choice) for choice in later))
            if after:
                yield tuple(
                    Apart(nodes, frozenset([tensor, other])) for other in sorted(after)
                )
        nodes = frozenset(choices[step].region.nodes)
        living = {b.tensor for b in alive}
        reads = frozenset(living.intersection(self._reads(choices[step])))
        writes = frozenset(living.intersection(choices[step].region.outputs))
        if len(reads) > 1:
            yield (Apart(nodes, reads),)
        if len(writes) > 1:
            yield (Apart(nodes, frozenset(), writes),)
        if reads and writes:
            yield (Apart(nodes, reads, writes),)

    @staticmethod
    def _peak(buffers: Sequence[Buffer], steps: int) -> int:
        """The kernel at which the arena reaches highest."""
        height = [0] * steps
        for buffer in buffers:
            for step in range(buffer.first, buffer.last + 1):
                height[step] = max(height[step], buffer.offset + buffer.bytes)
        return max(range(steps), key=lambda step: height[step])

    def _reads(self, choice: Choice) -> set[str]:
        reads = region_inputs(self.graph, choice.region.nodes)
        return {home_of(self.graph, name) for name in reads}

    def _readers(self, choices: Sequence[Choice], tensor: str) -> frozenset[str]:
        """Nodes of some kernels that read a tensor from memory, by a view or not."""
        found = set()
        for choice in choices:
            if tensor not in self._reads(choice):
                continue
            for name in choice.region.nodes:
                node = self.graph.by_name[name]
                if any(home_of(self.graph, t) == tensor for t in node.inputs):
                    found.add(name)
        return frozenset(found)

    def least(self, found: Sequence[_Attempt], out_of_time: Callable[[], bool]) -> int:
        """The least memory of some partitions, and of others sought below it."""
        least = min(attempt.needed for attempt in found)
        for _ in range(LOWER_ROUNDS):
            lower = _Capped(self.graph, self.price, self.solve, least - 1)
            cut = None if out_of_time() else lower.solved(())
            if cut is None:
                break
            others = lower.searched(cut, out_of_time)
            below = min(attempt.needed for attempt in (cut, *others))
            if below >= least:
                break
            least = below
        return least

    def failure(self, least: int, *, is_proved: bool) -> ConstraintsUnsatisfiable:
        """The error for a cap that nothing keeps."""
        what = (
            "no partition can take" if is_proved else "no partition was found to take"
        )
        return ConstraintsUnsatisfiable(
            "memory_cap_bytes",
            f"{what} at most {self.cap} bytes; the least found takes {least},"
            f" {self.resident} of them for inputs, weights and outputs",
            hint=f"set the cap to {least} or more, or split the model",
        )
