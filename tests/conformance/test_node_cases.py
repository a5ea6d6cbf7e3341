"""The standard's node tests on kernels of ours."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.conformance.cases import Case, all_cases
from tests.conformance.ledger import Ledger, read_ledger
from tests.conformance.running import Outcome, Result, run_case
from tuner.errors import UnsupportedModel
from tuner.model import load
from tuner.runtime.backend import Backend

LEAST_GENERATED = 1260
"""Cases that pass on generated kernels alone; may only grow."""
SAMPLE = 80
SEED = 20
MOST_NODES = 25
"""Of a case in the sample: attention that is taken apart takes seconds to partition."""
PASSED_OVER = 5
"""Cases of the sample that are larger: four of attention, one of a loss."""


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    """The committed list."""
    return read_ledger()


@pytest.fixture(scope="module")
def results(opencl: Backend, *, soak: bool) -> tuple[Result, ...]:
    """What becomes of the cases: of a seeded sample, or of all."""
    cases = all_cases()
    if not soak:
        sample = random.Random(SEED).sample(cases, SAMPLE)
        cases = tuple(case for case in sample if _is_short(case))
        assert len(cases) == SAMPLE - PASSED_OVER, "a graph has grown"
    ledger = read_ledger()
    return tuple(run_case(case, opencl, ledger) for case in cases)


def _is_short(case: Case) -> bool:
    """Whether a graph is soon partitioned; one that is refused is soon refused."""
    try:
        graph = load(case.model.SerializeToString()).graph
    except UnsupportedModel:
        return True
    return len(graph.nodes) <= MOST_NODES


def test_no_case_fails(results: tuple[Result, ...]) -> None:
    """What is read and planned gives the standard's result; exceptions are listed."""
    failed = {r.name: r.reason for r in results if r.outcome is Outcome.FAILED}
    assert not failed


def test_what_runs_in_the_library_is_on_the_list(
    results: tuple[Result, ...], ledger: Ledger
) -> None:
    """An operator that is not on the list runs in kernels of ours."""
    library = {name for result in results for name in result.library}
    assert not library - set(ledger.operators)


def test_the_list_is_true(
    results: tuple[Result, ...], ledger: Ledger, *, soak: bool
) -> None:
    """Nothing is on the list that need not be there, and everything has a reason."""
    assert all((*ledger.operators.values(), *ledger.excused.values()))
    if not soak:
        return
    library = {name for result in results for name in result.library}
    assert set(ledger.operators) <= library
    excused = [r.name for r in results if r.outcome is Outcome.EXCUSED]
    for beginning in ledger.excused:
        assert any(name.startswith(beginning) for name in excused), beginning


def test_most_cases_run_on_generated_kernels(
    results: tuple[Result, ...], *, soak: bool
) -> None:
    """The number may only grow."""
    totals = Counter(result.outcome for result in results)
    least = LEAST_GENERATED if soak else LEAST_GENERATED * SAMPLE // 2500
    assert totals[Outcome.GENERATED] >= least


def test_a_wrong_result_is_noticed(opencl: Backend) -> None:
    """A case whose expected output is changed fails."""
    case = next(case for case in all_cases() if case.name == "test_add")
    assert run_case(case, opencl).outcome is Outcome.GENERATED
    (wanted,) = case.outputs
    assert wanted is not None
    wrong = Case(
        name=case.name,
        model=case.model,
        inputs=case.inputs,
        outputs=(wanted + 1,),
        rtol=case.rtol,
        atol=case.atol,
    )
    assert run_case(wrong, opencl).outcome is Outcome.FAILED
