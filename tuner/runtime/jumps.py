"""Programs in which a last bit decides: right in every kernel, and near in the end.

Where numbers are rounded to whole ones or compared, the last bit of an operand decides
over a whole step of the result. Two right programs then differ by more than rounding,
as a quantised model run in whole numbers and the same run in floats do. Such a program
is right when each of its kernels is, on what the kernels before it gave, and when its
results as a whole lie near those of the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from tuner.ir.graph import Graph, Node
from tuner.ir.types import Array, DType
from tuner.runtime.bench import Case, interpret
from tuner.runtime.executor import Executor
from tuner.runtime.requests import Program, Step
from tuner.runtime.verification import KERNEL_EPSILONS, Truth, epsilon, judge, widen

JUMPS: Final = frozenset(
    {
        "ceil",
        "equal",
        "floor",
        "floor_mod",
        "fmod",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
        "rint",
        "sign",
    }
)
"""Operators whose result may jump with the last bit of a float."""
NEAR: Final = 0.01
"""Greatest distance from the reference, root of mean squares, of its own. A wrong
formula is further away; of results that are a step apart there are few."""


def has_jumps(program: Program) -> bool:
    """Whether a last bit of some float may decide over a step of a result."""
    return any(
        _jumps(n, step.graph) for step in program.steps for n in step.graph.nodes
    )


def _jumps(node: Node, graph: Graph) -> bool:
    types = graph.types
    if not any(types[name].dtype.is_float for name in node.inputs):
        return False
    is_whole = node.op == "cast" and not types[node.outputs[0]].dtype.is_float
    return is_whole or node.op in JUMPS


def why_wrong(
    executor: Executor,
    feed: Mapping[str, Array],
    outputs: Mapping[str, tuple[Array, Array]],
    types: Mapping[str, DType],
) -> str:
    """Why a program that is off the reference is wrong; empty if steps explain it.

    Args:
        executor: the program, loaded.
        feed: its inputs.
        outputs: what it gives and what the reference gives, by tensor.
        types: element types of these tensors.
    """
    for name, (ours, truth) in outputs.items():
        away = distance(widen(ours, types[name]), widen(truth, types[name]))
        if not away <= NEAR:
            return f"{name}: {away:.2g} of the reference away, as a whole"
    found = (_fault(*done) for done in executor.by_step(feed))
    return next(filter(None, found), "")


def distance(ours: Array, truth: Array) -> float:
    """Root of mean squares of the difference, of that of the reference."""
    left: Any = ours.astype(np.float64)
    right: Any = truth.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore", over="ignore"):
        off = float(np.sqrt(np.mean(np.where(same, 0.0, left - right) ** 2)))
    if off == 0.0:
        return 0.0
    finite = right[np.isfinite(right)]
    scale = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    return off / scale if scale else float("inf")


def _fault(step: Step, given: Mapping[str, Array], made: Mapping[str, Array]) -> str:
    """Why a kernel is wrong on what it was given, or ""."""
    graph = step.graph
    exact = interpret(graph, given, "float64")
    truths = {name: Truth.of(values) for name, values in exact.items()}
    case = Case(graph=graph, feeds=(given,), references=(truths,), void="")
    for name in graph.outputs:
        verdict = judge(
            name,
            widen(made[name], graph.types[name].dtype),
            truths[name],
            bound=KERNEL_EPSILONS * epsilon(graph),
            library_error=partial(case.library_error, 0, name),
            alternative=partial(case.rounded, 0, name),
        )
        if verdict.reason:
            return f"{step.name}: {verdict.reason}"
    return ""
