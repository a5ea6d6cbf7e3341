"""How many registers a kernel needs: the model against all orders, and a compiler."""

from __future__ import annotations

from itertools import permutations
from random import Random

import pytest

from benchmarks.registers import butterfly, ring, web
from cost_model.catalog import find
from cost_model.occupancy import occupancy
from tuner.ir.graph import Graph
from tuner.kernel.count import work
from tuner.kernel.lower import lower
from tuner.kernel.registers import Computed, least_live
from tuner.kernel.render import CUDA, render
from tuner.kernel.schedule import space
from tuner.runtime import nvrtc

SEEDS = range(30)


def tree(leaves: int) -> dict[int, Computed]:
    """Sums of neighbours, level by level, as a text would have them."""
    values = {i: Computed((), 1) for i in range(leaves)}
    level = list(values)
    while len(level) > 1:
        pairs = list(zip(level[::2], level[1::2], strict=True))
        level = []
        for pair in pairs:
            level.append(len(values))
            values[len(values)] = Computed(pair, 1)
    return values


def alive(values: dict[int, Computed], order: tuple[int, ...]) -> int:
    """Most registers alive in an order, inputs read when they are first needed."""
    last = {need: at for at, name in enumerate(order) for need in values[name].needs}
    there: set[int] = set()
    most = 0
    for at, name in enumerate(order):
        there |= {*values[name].needs, name}
        most = max(most, sum(values[each].size for each in there))
        there = {each for each in there if last.get(each, -1) > at}
    return most


def fewest(values: dict[int, Computed]) -> int:
    """The least over all orders."""
    inner = [name for name, value in values.items() if value.needs]
    found = []
    for order in permutations(inner):
        seen = {name for name, value in values.items() if not value.needs}
        for name in order:
            if not seen.issuperset(values[name].needs):
                break
            seen.add(name)
        else:
            found.append(alive(values, order))
    return min(found)


def random_values(seed: int) -> dict[int, Computed]:
    """A few inputs, and up to seven values that need them or each other."""
    rng = Random(seed)
    values = {i: Computed((), rng.choice((1, 1, 2))) for i in range(rng.randint(2, 5))}
    for _ in range(rng.randint(3, 7)):
        needs = rng.sample(list(values), min(2, len(values)))
        values[len(values)] = Computed(tuple(needs), rng.choice((1, 1, 2)))
    used = {need for value in values.values() for need in value.needs}
    return {k: v for k, v in values.items() if v.needs or k in used}


@pytest.mark.parametrize("levels", [1, 2, 3, 5])
def test_a_tree_needs_its_depth(levels: int) -> None:
    """Depth first, each level holds one value (R. Sethi, J. Ullman, JACM 17, 1970)."""
    assert least_live(tree(2**levels)) <= levels + 2


@pytest.mark.parametrize("seed", SEEDS)
def test_no_order_needs_fewer_than_the_best(seed: int) -> None:
    """The order that is found is real, and close to the best of all orders."""
    values = random_values(seed)
    best, found = fewest(values), least_live(values)
    assert best <= found <= best + 2


def test_on_average_it_is_the_best_order() -> None:
    """Over random graphs the excess is below half a register."""
    excess = [least_live(v) - fewest(v) for v in map(random_values, SEEDS)]
    assert sum(excess) / len(excess) < 0.5


def verdict(graph: Graph, threads: int) -> tuple[bool, bool]:
    """Whether spills are foreseen, and whether NVIDIA's compiler has them."""
    device, nest = find("sm_80"), lower(graph)
    schedule = next(
        s
        for s in space(nest, device)
        if s["threads"] == threads and s["vector"] == 1 and s["repeat"] == 1
    )
    fit = occupancy(work(nest, schedule, device), device)
    source = render(nest, schedule, CUDA)
    resources = nvrtc.compile_cubin(source, "sm_80").resources
    return fit.spill_bytes > 0, resources.spill_store_bytes > 0


@pytest.mark.skipif(
    not nvrtc.is_available(), reason="no NVRTC: pip install cupy-cuda13x"
)
def test_spills_are_foreseen() -> None:
    """Many values at once spill; as many in a text that another order saves do not."""
    assert verdict(web(80, 4, 8192, reduces=True), 1024) == (True, True)
    assert verdict(web(64, 4, 8192, reduces=True), 1024) == (True, True)
    assert verdict(butterfly(32, 8192, reduces=True), 1024) == (False, False)
    assert verdict(ring(90, 8192, reduces=True), 1024) == (False, False)
