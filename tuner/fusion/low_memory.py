"""A launch order in which little memory lives at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from tuner.fusion.traffic import home_of
from tuner.ir.graph import Graph, region_inputs
from tuner.plan import Choice

WIDTH: Final = 64
"""Orders that are followed at once."""
LONG: Final = 400
"""Kernels above which few orders are followed."""
NARROW: Final = 4


@dataclass(frozen=True, slots=True)
class _State:
    """Kernels that have run: the most bytes that lived so far, and those alive now."""

    peak: int
    alive: int
    order: tuple[int, ...]


def low_memory_order(graph: Graph, choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """The kernels in the order that a beam search over launch orders likes best.

    What lives after some kernels have run depends on which they are alone, not on
    their order; so of two orders of the same kernels only the one with the lower peak
    is followed. While no more than `WIDTH` sets of kernels are open at a time the
    search is exhaustive.
    """
    needs = _Needs(graph, choices)
    width = WIDTH if len(choices) <= LONG else NARROW
    states = {0: _State(0, 0, ())}
    for _ in choices:
        following: dict[int, _State] = {}
        for done, state in states.items():
            for k in needs.ready(done):
                _keep(following, done | 1 << k, needs.after(done, state, k))
        best = sorted(following.items(), key=lambda item: _rank(item[1]))
        states = dict(best[:width])
    (found,) = states.values()
    return tuple(choices[k] for k in found.order)


def _rank(state: _State) -> tuple[int, int, tuple[int, ...]]:
    return (state.peak, state.alive, state.order)


def _keep(found: dict[int, _State], done: int, state: _State) -> None:
    known = found.get(done)
    if known is None or _rank(state) < _rank(known):
        found[done] = state


class _Needs:
    """Who reads and writes which tensor of the arena, as masks of kernels."""

    def __init__(self, graph: Graph, choices: Sequence[Choice]) -> None:
        delivered = {home_of(graph, name) for name in graph.outputs}
        self.bytes: dict[str, int] = {}
        self.writers: dict[str, int] = {}
        self.users: dict[str, int] = {}
        self.reads: list[tuple[str, ...]] = []
        self.writes: list[tuple[str, ...]] = []
        for k, choice in enumerate(choices):
            for name in choice.region.outputs:
                self.writers[name] = self.writers.get(name, 0) | 1 << k
                is_inner = name not in delivered
                self.bytes[name] = graph.types[name].bytes if is_inner else 0
        for k, choice in enumerate(choices):
            homes = (
                home_of(graph, n) for n in region_inputs(graph, choice.region.nodes)
            )
            reads = tuple(dict.fromkeys(n for n in homes if n in self.writers))
            self.reads.append(reads)
            self.writes.append(choice.region.outputs)
            for name in (*reads, *choice.region.outputs):
                self.users[name] = self.users.get(name, 0) | 1 << k

    def ready(self, done: int) -> Iterator[int]:
        """Kernels whose operands are written."""
        for k, reads in enumerate(self.reads):
            if not done >> k & 1 and all(self.writers[t] & done for t in reads):
                yield k

    def after(self, done: int, state: _State, k: int) -> _State:
        """The state once another kernel has run."""
        new = sum(self.bytes[t] for t in self.writes[k] if not self.writers[t] & done)
        during = state.alive + new
        ended = done | 1 << k
        touched = {*self.reads[k], *self.writes[k]}
        freed = sum(self.bytes[t] for t in touched if not self.users[t] & ~ended)
        return _State(max(state.peak, during), during - freed, (*state.order, k))
