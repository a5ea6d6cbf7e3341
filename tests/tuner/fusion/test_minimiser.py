"""The solver of covering problems, and the rows that cut rings of kernels off."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest

from tests.conftest import SOAK
from tests.tuner.fusion.random_graphs import Builder
from tuner.fusion.legality import Limits
from tuner.fusion.linear import Row
from tuner.fusion.milp import Minimiser, minimise
from tuner.fusion.order import rings_of, runnable_order
from tuner.fusion.partition import solve
from tuner.plan import Pin

COLUMNS = 600
"""More than are looked at from the start."""
CUTS = 4
PROBLEMS = 60 if SOAK else 6
HEADS = ("exp", "neg", "tanh", "relu", "abs")


class _Cover:
    """A random covering problem whose costs may be told on demand."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        holds = self.rng.random((12, COLUMNS)) < 0.2
        size = holds.sum(axis=0).clip(1)
        self.costs = self.rng.uniform(1.0, 2.0, COLUMNS) * size**0.8
        self.least = self.costs * self.rng.uniform(0.7, 1.0, COLUMNS)
        self.rows = [_cover(np.flatnonzero(row).tolist()) for row in holds]
        self.first = [int(np.flatnonzero(row)[0]) for row in holds]
        self.told: set[int] = set()

    def settle(self, columns: Sequence[int]) -> list[float]:
        """What columns cost; each is asked once."""
        assert not self.told.intersection(columns)
        self.told.update(columns)
        return [float(self.costs[k]) for k in columns]

    def minimiser(self) -> Minimiser:
        """With costs told on demand, and few columns at the start."""
        return Minimiser(
            self.least,
            self.rows,
            binaries=COLUMNS,
            vague=range(COLUMNS),
            settle=self.settle,
            first=self.first,
        )


def _cover(columns: Sequence[int]) -> Row:
    ones = (1.0,) * len(columns)
    return Row(columns=tuple(columns), coefficients=ones, least=1.0)


def _forbidden(chosen: Sequence[int]) -> Row:
    """Not all of these columns."""
    return Row(
        columns=tuple(chosen),
        coefficients=(-1.0,) * len(chosen),
        least=1.0 - len(chosen),
    )


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_a_problem_that_grows_has_the_least_cost_of_a_new_one(seed: int) -> None:
    """Rows cut the best point off again and again: what was kept changes no answer."""
    cover = _Cover(seed)
    problem = cover.minimiser()
    rows = list(cover.rows)
    for _ in range(CUTS):
        found = problem.solve()
        new = minimise(cover.costs, rows, binaries=COLUMNS)
        least = float(cover.costs[list(new.chosen)].sum())
        cost = float(cover.costs[list(found.chosen)].sum())
        assert cost == pytest.approx(least, rel=1e-7)
        assert found.bound == pytest.approx(least, rel=1e-6)
        rows.append(_forbidden(found.chosen))
        problem.add(rows[-1:])
    assert len(cover.told) < COLUMNS


@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_a_bound_from_few_columns_speaks_of_all(seed: int) -> None:
    """It asks no cost, and is the relaxation of the least costs of all columns."""
    cover = _Cover(seed)
    found = cover.minimiser().bound()
    assert not cover.told
    problem = Minimiser(cover.least, cover.rows, binaries=COLUMNS)
    assert found == pytest.approx(problem.bound(), rel=1e-9)
    assert found < problem.solve().bound * (1 + 1e-9)


def test_an_auxiliary_column_ties_columns_together() -> None:
    """A column that is added costs nothing, and is whole where others need it whole."""
    costs = [1.0, 1.0, 3.0]
    problem = Minimiser(costs, [_cover([0, 2]), _cover([1, 2])], binaries=3)
    assert problem.solve().chosen == (0, 1)
    tied = [
        Row(columns=(3, 0), coefficients=(1.0, -1.0), least=0.0),
        Row(columns=(3, 1), coefficients=(-1.0, -1.0), least=-1.0),
    ]
    problem.add(tied, columns=1)
    found = problem.solve()
    assert found.chosen == (2,)
    assert found.bound == pytest.approx(3.0)


def test_what_few_columns_cannot_do_all_may() -> None:
    """Columns to start with that hold no point are no proof that there is none."""
    rows = [_cover([0, 1]), _cover([COLUMNS - 1])]
    costs = np.ones(COLUMNS)
    problem = Minimiser(costs, rows, binaries=COLUMNS, first=[0])
    assert problem.solve().bound == pytest.approx(2.0)
    problem.add([_forbidden([COLUMNS - 1])])
    assert not problem.solve().feasible


def test_every_ring_holds_up_whatever_waits_in_it() -> None:
    """A tensor of a ring is written only by kernels that read the next one."""
    rings = 0
    for seed in range(200):
        rng = random.Random(seed)
        makes = [1 << rng.randrange(8) for _ in range(9)]
        needs = [_mask(rng, 8) & ~mask for mask in makes]
        _, stuck = runnable_order(needs, makes)
        for ring in rings_of(needs, makes, stuck):
            rings += 1
            for written, read in zip(ring, (*ring[1:], ring[0]), strict=True):
                writers = [k for k in range(9) if makes[k] >> written & 1]
                assert writers
                assert all(needs[k] >> read & 1 for k in writers)
    assert rings > 20


def _mask(rng: random.Random, size: int) -> int:
    return sum(1 << rng.randrange(size) for _ in range(2)) & (1 << size) - 1


def test_kernels_that_are_stuck_for_one_reason_form_a_ring() -> None:
    """Where each tensor has one writer, there is a ring wherever kernels are stuck."""
    needs, makes = [0b010, 0b100, 0b001, 0b001], [0b001, 0b010, 0b100, 0b1000]
    _, stuck = runnable_order(needs, makes)
    assert stuck == [0, 1, 2, 3]
    assert [sorted(ring) for ring in rings_of(needs, makes, stuck)] == [[0, 1, 2]]


@pytest.mark.parametrize("lines", [2, 3, 4, 5])
def test_kernels_that_would_wait_for_each_other_are_not_chosen(lines: int) -> None:
    """Two nodes to a kernel, none of a line's own two, no two heads and no two tails.

    So a kernel holds the head of one line and the tail of another. As many kernels as
    lines could hold all nodes, but in each such choice some wait for each other; with
    one kernel more, each waits for the one before.
    """
    builder = Builder()
    builder.given("x", (8, 8))
    heads = [builder.node(op, "x") for op in HEADS[:lines]]
    tails = [builder.node("mul", head, "x") for head in heads]
    apart = [(heads[k], tails[k]) for k in range(lines)]
    apart += [*combinations(heads, 2), *combinations(tails, 2)]
    found = solve(
        builder.build(tails),
        lambda *_: 1e-6,
        limits=Limits(max_nodes=2),
        pins=[Pin(nodes=pair, fuse=False) for pair in apart],
    ).partition
    assert len(found.choices) == lines + 1
    assert found.gap <= 1e-6
