"""Reductions of few long rows are searched in one launch and in two."""

from __future__ import annotations

from cost_model.catalog import find
from tests.tuner.kernel.golden import norm
from tuner.assembly import KernelForm, kernel_form
from tuner.ir.graph import make_region
from tuner.kernel.split import is_split
from tuner.plan import Family, Options
from tuner.pricing import price
from tuner.search.kernels import expected_schedules
from tuner.search.study import KernelStudy

CPU = find("cpu")


def form() -> KernelForm:
    """The norm of a long vector, as a kernel."""
    graph = norm(1_000_000)
    region = make_region(graph, [node.name for node in graph.nodes])
    return kernel_form(graph, region, Family.REDUCTION)


def test_both_ways_are_in_one_space() -> None:
    """The default of the price is one of them, and all have the same knobs."""
    kernel = form()
    found = expected_schedules(kernel, Family.REDUCTION, CPU, Options())
    assert {is_split(schedule) for schedule in found} == {True, False}
    assert len({tuple(schedule.as_dict) for schedule in found}) == 1
    priced = price(kernel.graph, Family.REDUCTION, CPU, Options())
    assert priced is not None
    assert priced.schedule in found


def test_under_a_cap_of_memory_one_launch_is_searched() -> None:
    """Scratch memory would go past the cap."""
    capped = Options(memory_cap_bytes=1 << 30)
    found = expected_schedules(form(), Family.REDUCTION, CPU, capped)
    assert found
    assert not any(map(is_split, found))


def test_a_study_proposes_either_and_repeats_none() -> None:
    """Times told of one way guide the other: it is one study."""
    found = expected_schedules(form(), Family.REDUCTION, CPU, Options())
    study = KernelStudy(tuple(found), seed=1, expected=found, first=1)
    proposed = []
    for _ in range(12):
        schedule = study.propose()
        assert schedule is not None
        slower = 1.0 if is_split(schedule) else 3.0
        study.tell(schedule, slower * found[schedule])
        proposed.append(schedule)
    assert len(set(proposed)) == len(proposed)
    assert all(schedule in found for schedule in proposed)
