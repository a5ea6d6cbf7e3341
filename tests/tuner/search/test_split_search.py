"""Reductions of few long rows are searched in one launch and in two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cost_model.catalog import find
from tests.tuner.kernel.golden import norm
from tests.tuner.search.conftest import no_clock, results_by_key, run_to_end
from tests.tuner.test_split_plans import scaled
from tuner.assembly import KernelForm, kernel_form
from tuner.fusion.memory import needed_bytes
from tuner.ir.graph import make_region
from tuner.kernel.split import is_split
from tuner.model import load
from tuner.plan import Family, Options
from tuner.pricing import price
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest
from tuner.search.budget import Budget
from tuner.search.kernels import expected_schedules
from tuner.search.session import TuningSession
from tuner.search.study import KernelStudy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.plan import Plan

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


def parts_are_fast(request: MeasureRequest) -> float:
    """What reduces takes long, unless it does so in two launches."""
    if not any(node.op.startswith("reduce") for node in request.graph.nodes):
        return 1e-5
    is_cut = request.source is not None and bool(request.source.before)
    return 1e-6 if is_cut else 1e-3


def test_known_results_of_two_launches_do_not_go_past_a_cap() -> None:
    """Measured without a cap they are the fastest, and no choice under one."""
    model = load(scaled(2_000_000).SerializeToString())

    def tuned(options: Options, known: Mapping[str, Any] | None = None) -> Plan:
        budget = Budget(seconds=1e6, trials=8, trials_per_kernel=2)
        session = TuningSession(model, "cpu", options, budget, known, clock=no_clock)
        log = run_to_end(session, NullRunner(parts_are_fast))
        results.update(results_by_key(log))
        return session.plan()

    results: dict[str, Any] = {}
    free = tuned(Options())
    assert any(is_split(kernel.schedule) for kernel in free.kernels)
    cap = 4 * (2 * 2_000_000 + 1)
    plan = tuned(Options(memory_cap_bytes=cap), dict(results))
    assert needed_bytes(free.graph, free.memory) > cap
    assert needed_bytes(plan.graph, plan.memory) <= cap
