"""Programs in which a last bit decides: right in every kernel, and near in the end.

Where numbers are rounded to whole ones or compared, the last bit of an operand decides
over a whole step of the result. Two right programs then differ by more than rounding,
as a quantised model run in whole numbers and the same run in floats do. Such a program
is right when each of its kernels is, on what the kernels before it gave, and when its
results as a whole lie near those of the reference. That is enough only for results
that depend on a float which rounding may have carried over a step. All others are
compared as those of any program: a mask that is the same on both sides excuses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
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
_EXACT: Final = frozenset(
    {
        *(JUMPS - {"floor_mod", "fmod"}),
        "abs",
        "cast",
        "concat",
        "expand",
        "gather",
        "isinf",
        "isnan",
        "maximum",
        "minimum",
        "neg",
        "pad",
        "reduce_max",
        "reduce_min",
        "relu",
        "reshape",
        "slice",
        "transpose",
        "where",
    }
)
"""Operators that round nothing, or in one way only."""
NEAR: Final = 0.01
"""Greatest distance from the reference, root of mean squares, of its own. A wrong
formula is further away; of results that are a step apart there are few."""


def has_jumps(program: Program) -> bool:
    """Whether a last bit of some float may decide over a step of a result."""
    return any(
        is_jump(n, step.graph) for step in program.steps for n in step.graph.nodes
    )


def is_jump(node: Node, graph: Graph) -> bool:
    """Whether a last bit of a float may decide over a step of what a node makes."""
    types = graph.types
    if not any(types[name].dtype.is_float for name in node.inputs):
        return False
    is_whole = node.op == "cast" and not types[node.outputs[0]].dtype.is_float
    return is_whole or node.op in JUMPS


def why_wrong(
    executor: Executor,
    program: Program,
    feed: Mapping[str, Array],
    outputs: Mapping[str, tuple[Array, Array]],
    reasons: Mapping[str, str],
    bound: Callable[[DType], float],
) -> str:
    """Why a program that is off the reference is wrong; empty if steps explain it.

    Args:
        executor: the program, loaded.
        program: what it runs.
        feed: its inputs.
        outputs: what it gives and what the reference gives, by tensor.
        reasons: why an output is off by more than rounding, or "".
        bound: how far rounding carries floats of a type, of the greatest value.
    """
    doubt = Doubt.of(program, executor.home, bound)
    fault = ""
    for step, given, made in executor.by_step(feed):
        doubt.follow(step, given)
        fault = fault or _fault(step, given, made)
    for name, reason in reasons.items():
        if reason and executor.home(name) not in doubt.unsure:
            return reason
    for name, (ours, truth) in outputs.items():
        dtype = program.types[name].dtype
        away = distance(widen(ours, dtype), widen(truth, dtype))
        if not away <= NEAR:
            return f"{name}: {away:.2g} of the reference away, as a whole"
    return fault


@dataclass(slots=True, kw_only=True)
class Doubt:
    """Which tensors of a program a last bit may have moved by a step.

    Attributes:
        home: the tensor in whose memory a tensor lies; the sets hold such names.
        bound: how far rounding carries floats of a type, of the greatest value.
        exact: tensors that any right program has bit by bit: what was given or known,
            moved, chosen and compared.
        unsure: tensors that depend on a float within rounding of a step.
    """

    home: Callable[[str], str]
    bound: Callable[[DType], float]
    exact: set[str]
    unsure: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        program: Program,
        home: Callable[[str], str],
        bound: Callable[[DType], float],
    ) -> Doubt:
        """Before the first step."""
        graph = program.prepare
        made = set() if graph is None else set(graph.outputs)
        known = {*program.inputs, *program.constants, *program.weights} - made
        if graph is not None:
            known |= made & _exact(graph, known)
        return cls(home=home, bound=bound, exact=set(map(home, known)))

    def follow(self, step: Step, given: Mapping[str, Array]) -> None:
        """Note what is true of the tensors that a step makes from what it is given."""
        graph = step.graph
        fed = {name: self.home(step.tensor(name)) for name in given}
        exact = _exact(graph, {n for n in fed if fed[n] in self.exact})
        unsure = {name for name in fed if fed[name] in self.unsure}
        suspects = [n for n in graph.nodes if is_jump(n, graph) and _moves(n, exact)]
        asked = dict.fromkeys(name for node in suspects for name in node.inputs)
        values = (
            interpret(replace(graph, outputs=tuple(asked)), given, "float64")
            if asked
            else {}
        )
        near = {
            n.outputs[0] for n in suspects if self._is_near(n, graph, exact, values)
        }
        for node in graph.nodes:
            if unsure.intersection(node.inputs) or near.intersection(node.outputs):
                unsure.update(node.outputs)
        for name in graph.outputs:
            tensor = self.home(step.tensor(name))
            self.exact.update([tensor] if name in exact else ())
            self.unsure.update([tensor] if name in unsure else ())

    def _is_near(
        self,
        node: Node,
        graph: Graph,
        exact: set[str],
        values: Mapping[str, Array],
    ) -> bool:
        """Whether rounding may carry any element over a step.

        Whole numbers are carried nowhere: only a step before could move them, and what
        depends on that one is unsure anyhow.
        """
        arrays: list[Any] = [values[name] for name in node.inputs]
        if all(bool((array == np.rint(array)).all()) for array in arrays):
            return False
        reach = sum(
            self.bound(graph.types[name].dtype) * _scale(array)
            for name, array in zip(node.inputs, arrays, strict=True)
            if name not in exact
        )
        with np.errstate(all="ignore"):
            gap, unit = _gap(node, arrays)
            return bool((gap * unit <= reach).any())


def _exact(graph: Graph, known: Set[str]) -> set[str]:
    """Tensors of a graph that are exact if these are, its constants among them."""
    found = {*known, *graph.constants}
    for node in graph.nodes:
        names = (*node.inputs, *node.outputs)
        whole = not any(graph.types[name].dtype.is_float for name in names)
        if (whole or node.op in _EXACT) and found.issuperset(node.inputs):
            found.update(node.outputs)
    return found


def _moves(node: Node, exact: Set[str]) -> bool:
    return not exact >= set(node.inputs)


def _scale(array: Array) -> float:
    values: Any = np.abs(array[np.isfinite(array)])
    return float(np.max(values, initial=0.0))


def _gap(node: Node, arrays: list[Any]) -> tuple[Any, Any]:
    """How far each element is from its next step, and in which unit."""
    first = arrays[0]
    if node.op == "sign" or (node.op == "cast" and node.attributes["to"] == "bool"):
        return np.abs(first), 1.0
    if node.op == "rint":
        return 0.5 - np.abs(first - np.rint(first)), 1.0
    if node.op in {"fmod", "floor_mod"}:
        ratio = first / arrays[1]
        # an error of the divisor counts as often as it is taken away
        unit = np.abs(arrays[1]) / np.maximum(np.abs(ratio), 1.0)
        return np.abs(ratio - np.rint(ratio)), unit
    if node.op in {"floor", "ceil", "cast"}:
        return np.abs(first - np.rint(first)), 1.0
    return np.abs(first - arrays[1]), 1.0


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
