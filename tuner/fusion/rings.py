"""Rows that cut off kernels that wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tuner.fusion.candidates import Candidate
from tuner.fusion.linear import Row
from tuner.fusion.order import rings_of
from tuner.fusion.view import bits


class Rings:
    """Auxiliary columns and rows of one problem, more with every ring that is met."""

    def __init__(
        self,
        kernels: Sequence[Candidate],
        writers: Mapping[int, Sequence[int]],
        *,
        first: int,
    ) -> None:
        """Start without rows.

        Args:
            kernels: the candidates, by column.
            writers: the columns that write each tensor.
            first: the next free column.
        """
        self.kernels = kernels
        self.writers = writers
        self._next = first
        self._arcs: dict[tuple[int, int], int] = {}

    def forbid(
        self, chosen: Sequence[int], stuck: Sequence[int]
    ) -> tuple[list[Row], int]:
        """Rows that cut off kernels that wait for each other, and how many new columns.

        In a ring of tensors, each written only by kernels that read the next, none is
        ever written. So of the arcs of a ring, each there if some kernel reads its one
        end and writes the other, one is missing, or another kernel writes a tensor of
        the ring. An arc is a column, so that one row cuts off all kernels that bring
        the same arcs about.

        Source: M. Grötschel, M. Jünger, G. Reinelt, "On the acyclic subgraph polytope",
        Mathematical Programming 33, 1985, for the rows without other kernels.
        """
        kernels = [self.kernels[k] for k in chosen]
        rings = rings_of(
            [c.needs for c in kernels], [c.outputs for c in kernels], stuck
        )
        known = len(self._arcs)
        rows = [row for ring in rings for row in self._ring_rows(ring)]
        if not rings:
            rows = [self._stuck_row([chosen[at] for at in stuck])]
        return rows, len(self._arcs) - known

    def _ring_rows(self, ring: Sequence[int]) -> Iterator[Row]:
        """One arc of a ring is missing, or another kernel writes one of its tensors."""
        arcs, others = [], []
        for written, read in zip(ring, (*ring[1:], ring[0]), strict=True):
            both, alone = self._writing(written, read)
            arc = self._arcs.get((written, read))
            if arc is None:
                arc = self._arcs[written, read] = self._next
                self._next += 1
                for k in both:
                    yield Row(columns=(arc, k), coefficients=(1.0, -1.0), least=0.0)
            arcs.append(arc)
            others += alone
        ones = (1.0,) * len(set(others))
        yield Row(
            columns=(*arcs, *sorted(set(others))),
            coefficients=(*(-1.0,) * len(arcs), *ones),
            least=1.0 - len(arcs),
        )

    def _writing(self, written: int, read: int) -> tuple[list[int], list[int]]:
        """Kernels that write a tensor: those that read another, and the rest."""
        both: list[int] = []
        alone: list[int] = []
        for k in self.writers[written]:
            (both if self.kernels[k].needs >> read & 1 else alone).append(k)
        return both, alone

    def _stuck_row(self, stuck: Sequence[int]) -> Row:
        """One kernel is not chosen, or another writes what one of them writes."""
        wanted = 0
        for k in stuck:
            wanted |= self.kernels[k].outputs
        inside = set(stuck)
        others = [
            k
            for k, kernel in enumerate(self.kernels)
            if k not in inside and kernel.outputs & wanted
        ]
        return Row(
            columns=(*stuck, *others),
            coefficients=(*(-1.0,) * len(stuck), *(1.0,) * len(others)),
            least=1.0 - len(stuck),
        )

    def put_in_order(self, out_of_time: Callable[[], bool]) -> tuple[list[Row], int]:
        """Rows that give every tensor that can be part of a ring a place in time.

        Each such tensor has a new column, which need not be whole.

        A chosen kernel writes later than all that it reads. This asks a little more
        than that the kernels can run: a tensor that two chosen kernels write is read
        only after both. It is therefore a rule of the candidate space, and the
        partition says so.

        Source: C. Miller, A. Tucker, R. Zemlin, "Integer programming formulation of
        traveling salesman problems", JACM 7(4), 1960.
        """
        rings = self._tensors_in_rings(out_of_time)
        place = {j: self._next + n for n, j in enumerate(bits(rings))}
        step = 1.0 / (len(place) + 1)
        rows = [
            Row(
                columns=(place[written], place[read], k),
                coefficients=(1.0, -1.0, -1.0 - step),
                least=-1.0,
            )
            for k, kernel in enumerate(self.kernels)
            for read in bits(kernel.needs & rings)
            for written in bits(kernel.outputs & rings)
        ]
        self._next += len(place)
        return rows, len(place)

    def _tensors_in_rings(self, out_of_time: Callable[[], bool]) -> int:
        """Tensors that, by way of some kernels, may come before themselves."""
        after: dict[int, int] = {}
        for kernel in self.kernels:
            for j in bits(kernel.needs):
                after[j] = after.get(j, 0) | kernel.outputs
        reached = dict(after)
        changed = True
        while changed and not out_of_time():
            changed = False
            for j, mask in reached.items():
                grown = mask
                for t in bits(mask):
                    grown |= reached.get(t, 0)
                if grown != mask:
                    reached[j] = grown
                    changed = True
        return sum(1 << j for j, mask in reached.items() if mask >> j & 1)
