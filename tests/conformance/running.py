"""One node test through the whole path: read, plan, generate, run, compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from tests.conformance.cases import Case, with_known_operands
from tests.conformance.ledger import Ledger
from tuner.errors import UnsupportedModel
from tuner.execution import program
from tuner.ir.graph import Graph, Node, Region
from tuner.ir.interpreter import from_bf16
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import Array, DType
from tuner.model import Model, load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import GENERATED, Family, Options, Plan
from tuner.runtime.backend import Backend
from tuner.runtime.executor import Executor
from tuner.runtime.verification import EPSILON, KERNEL_EPSILONS

LIBRARY_PENALTY_SECONDS = 1.0
"""What a library kernel costs more here, so that all that can be generated is."""
HALF_RTOL, HALF_ATOL = 2e-2, 1e-2
"""For 16-bit results: the standard's own tolerances are those of single precision."""


class Outcome(StrEnum):
    """What became of a case."""

    GENERATED = "generated"
    KNOWN = "known"
    LIBRARY = "library"
    REFUSED = "refused"
    EXCUSED = "excused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a case, and why.

    Attributes:
        outcome: GENERATED when every primitive that computes ran in a kernel of ours,
            KNOWN when nothing was left to compute at run time.
        reason: of a refusal, an excuse or a failure.
        library: operators that ran in the library: the standard's name of those that
            are not taken apart, else the primitive's.
    """

    name: str
    operators: tuple[str, ...]
    outcome: Outcome
    reason: str = ""
    library: tuple[str, ...] = ()


def run_case(case: Case, backend: Backend, ledger: Ledger | None = None) -> Result:
    """Take a case from its bytes to a verdict.

    Args:
        case: a node test.
        backend: where kernels run.
        ledger: cases that may fail; by default none.
    """
    result = _judged(case, backend)
    excuse = ledger.excuse(case.name) if ledger else ""
    if result.outcome is Outcome.FAILED and excuse:
        return _result(case, Outcome.EXCUSED, excuse)
    return result


def _judged(case: Case, backend: Backend) -> Result:
    try:
        model = _load(case)
        plan = generated_plan(model)
        names = [value.name for value in case.model.graph.input]
        inputs = zip(names, case.inputs, strict=True)
        given = {name: array for name, array in inputs if array is not None}
        found = run_plan(model, plan, given, backend)
    except UnsupportedModel as error:
        return _result(case, Outcome.REFUSED, str(error))
    except Exception as error:  # noqa: BLE001 - whatever is raised here is a finding
        return _result(case, Outcome.FAILED, f"{type(error).__name__}: {error}")
    library = tuple(sorted(set(_library_operators(plan))))
    problem = _problem(case, model, found, in_library=bool(library))
    if problem:
        return _result(case, Outcome.FAILED, problem, library)
    outcome = Outcome.LIBRARY if library else Outcome.GENERATED
    if not plan.kernels:
        outcome = Outcome.KNOWN
    return _result(case, outcome, library=library)


def _result(
    case: Case, outcome: Outcome, reason: str = "", library: tuple[str, ...] = ()
) -> Result:
    return Result(
        name=case.name,
        operators=case.operators,
        outcome=outcome,
        reason=reason,
        library=library,
    )


def _load(case: Case) -> Model:
    """The model as it is, or with known operands if that leaves less to the library."""
    plain = case.model.SerializeToString()
    try:
        model = load(plain)
    except UnsupportedModel:
        if not case.is_plain:
            raise
        return load(with_known_operands(case))
    if _opaque(model.graph) and case.is_plain:
        for first_too in (False, True):
            other = load(with_known_operands(case, first_too=first_too))
            if not _opaque(other.graph):
                return other
    return model


def _opaque(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op == "opaque"]


def generated_plan(model: Model) -> Plan:
    """A plan for this machine that generates whatever can be generated."""
    planner = Planner(model=model, device=resolve_target("cpu"), options=Options())

    def price(region: Region, family: Family) -> float:
        seconds = planner.price(region, family)
        return seconds if family in GENERATED else seconds + LIBRARY_PENALTY_SECONDS

    return planner.plan(planner.solve(price))


def run_plan(
    model: Model, plan: Plan, inputs: Mapping[str, Any], backend: Backend
) -> Mapping[str, Array]:
    """Outputs of a whole plan, inputs and outputs by the user's names."""
    ids = {name: t for t in model.names for name in model.names[t]}
    weights = {
        ids[name]: array for name, array in model.imported.values.items() if name in ids
    }
    executor = Executor(program(model, plan, "opencl"), weights, backend)
    given = {ids[n]: _stored(array) for n, array in inputs.items() if n in ids}
    found = executor.run({name: given[name] for name in model.graph.inputs})
    pairs = zip(model.imported.graph.outputs, model.graph.outputs, strict=True)
    return {theirs: found[ours] for theirs, ours in pairs}


def _stored(array: Any) -> Array:
    stored: Array = array
    if array.dtype.name == "bfloat16":
        stored = array.view(np.uint16)
    return np.ascontiguousarray(stored).reshape(array.shape)


def _library_operators(plan: Plan) -> list[str]:
    found: list[str] = []
    for kernel in plan.kernels:
        if kernel.family in GENERATED:
            continue
        nodes = [plan.graph.by_name[name] for name in kernel.region.nodes]
        hard = [node for node in nodes if OPS[node.op].pattern >= Pattern.CONTRACTION]
        found += [
            str(node.attributes.get("op_type", node.op)) for node in hard or nodes
        ]
    return found


def _problem(
    case: Case, model: Model, found: Mapping[str, Array], *, in_library: bool
) -> str:
    graph = model.imported.graph
    values = zip(case.model.graph.output, case.outputs, strict=True)
    for value, wanted in values:
        if wanted is None:
            continue
        dtype = graph.types[value.name].dtype
        got: Any = found[value.name]
        if dtype is DType.BF16:
            got, wanted = from_bf16(got), wanted.astype(np.float32)  # noqa: PLW2901
        problem = _difference(case, got, wanted, dtype, in_library=in_library)
        if problem:
            return f"{value.name} {problem}"
    return ""


def _difference(
    case: Case, got: Any, wanted: Any, dtype: DType, *, in_library: bool
) -> str:
    if got.dtype != wanted.dtype or got.shape != wanted.shape:
        return f"is {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"
    is_half = dtype in (DType.F16, DType.BF16)
    rtol = max(case.rtol, HALF_RTOL) if is_half else case.rtol
    atol = max(case.atol, HALF_ATOL) if is_half else case.atol
    if in_library and dtype.is_float and wanted.size:
        with np.errstate(invalid="ignore"):
            scale = np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0)
        atol = max(atol, KERNEL_EPSILONS * EPSILON[dtype] * float(scale))
    near = np.isclose(got, wanted, rtol=rtol, atol=atol, equal_nan=True)
    if near.all():
        return ""
    place = tuple(int(axis) for axis in np.argwhere(~near)[0])
    count = int(np.count_nonzero(~near))
    return f"differs at {count} of {near.size}: {got[place]} is not {wanted[place]}"
