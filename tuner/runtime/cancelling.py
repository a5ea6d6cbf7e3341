"""Results that cancel: what is left of them is rounding, ours and the library's.

The gradient of a bias in front of a normalisation is zero by arithmetic, and so is the
distance of two equal distributions: both are differences of equal numbers. What comes
out is the rounding of these, so that the greatest value of the result says nothing of
how far two right programs may be apart. It is measured instead: the references compute
the program natively and in float64, on feeds that are some last bits apart. As many of
these distances are allowed as of rounding units elsewhere, where they are a good part
of the result: of others they say nothing that the bound does not. A kernel's fault has
no part in them, for nothing that the device computed is used, and a wrong formula is
off by the size of the operands, not of their last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from tuner.ir.interpreter import Precision
from tuner.ir.types import Array, DType
from tuner.runtime.bench import interpret
from tuner.runtime.executor import Executor
from tuner.runtime.jumps import is_jump
from tuner.runtime.requests import Program, Step
from tuner.runtime.verification import EPSILON

SAMPLES: Final = 5
"""One result may be exact by luck, and one comparison fall the other way."""
LEAST_PART: Final = 1e-2
"""Of a result's greatest value, what rounding leaves of it where it cancels."""
HOPELESS: Final = 100.0
"""Errors so many times what the first sample allows need no second one."""
_SHORT: Final = frozenset({DType.F16, DType.BF16})
_Steps = Sequence[tuple[Step, Mapping[str, Array]]]


def explained(
    executor: Executor,
    program: Program,
    feed: Mapping[str, Array],
    errors: Mapping[str, float],
    units: Callable[[DType], float],
) -> frozenset[str]:
    """Outputs whose errors are no more than what rounding leaves of them.

    Args:
        executor: the program, loaded.
        program: what it runs.
        feed: its inputs.
        errors: greatest difference from the library, of the outputs in question.
        units: rounding units that an output of a type may be off.

    Returns:
        Their names. None of those that hang on a comparison, a rounding or a 16-bit
        number, which move results by more than last bits.
    """
    coarse = _coarse(executor, program)
    allowed = {
        name: units(program.types[name].dtype)
        for name in errors
        if executor.home(name) not in coarse
    }
    if not allowed:
        return frozenset()
    steps = [(step, given) for step, given, _ in executor.by_step(feed)]
    samples: list[dict[str, float]] = []
    for sample in range(SAMPLES):
        samples.append(_noise(executor, steps, _jittered(feed, sample), allowed))
        near = (errors[n] <= HOPELESS * allowed[n] * samples[0][n] for n in allowed)
        if not any(near):
            break
    noise = {name: median(each[name] for each in samples) for name in allowed}
    return frozenset(n for n in allowed if errors[n] <= allowed[n] * noise[n])


def _coarse(executor: Executor, program: Program) -> set[str]:
    """Homes of tensors that rounding may move by more than last bits of a float32."""
    found: set[str] = set()
    for step in program.steps:
        graph = step.graph
        own = {n for n in graph.types if executor.home(step.tensor(n)) in found}
        for node in graph.nodes:
            names = (*node.inputs, *node.outputs)
            is_short = any(graph.types[name].dtype in _SHORT for name in names)
            if is_short or is_jump(node, graph) or own.intersection(node.inputs):
                own.update(node.outputs)
        found |= {executor.home(step.tensor(n)) for n in graph.outputs if n in own}
    return found


def _jittered(feed: Mapping[str, Array], sample: int) -> dict[str, Array]:
    """The feed itself, or one whose floats are some last bits away."""
    if not sample:
        return dict(feed)
    rng = np.random.default_rng(sample)
    return {name: _moved(array, rng) for name, array in feed.items()}


def _moved(array: Array, rng: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    values: Any = array
    bits = rng.integers(-2, 3, array.shape) * EPSILON[DType.F32]
    return np.asarray(values * (1 + bits), dtype=array.dtype)


def _noise(
    executor: Executor,
    steps: _Steps,
    feed: Mapping[str, Array],
    names: Iterable[str],
) -> dict[str, float]:
    """Greatest distance of each output between native and float64 references.

    Nothing where it is no good part of the output.
    """
    rough = _computed(executor, steps, feed, "native")
    exact = _computed(executor, steps, feed, "float64")
    found: dict[str, float] = {}
    for name in names:
        home = executor.home(name)
        with np.errstate(invalid="ignore"):
            away: Any = np.abs(rough[home].astype(np.float64) - exact[home])
            size: Any = np.abs(exact[home])
        most = float(np.max(away[np.isfinite(away)], initial=0.0))
        greatest = float(np.max(size[np.isfinite(size)], initial=0.0))
        found[name] = most if most >= LEAST_PART * greatest else 0.0
    return found


def _computed(
    executor: Executor, steps: _Steps, feed: Mapping[str, Array], precision: Precision
) -> dict[str, Any]:
    """What the references make of a feed, step by step, by home of the tensor."""
    values: dict[str, Any] = {executor.home(n): array for n, array in feed.items()}
    for step, known in steps:
        kinds = step.graph.types
        given = {
            name: values.get(executor.home(step.tensor(name)), array).reshape(
                kinds[name].static_shape
            )
            for name, array in known.items()
        }
        made = interpret(step.graph, given, precision)
        values |= {executor.home(step.tensor(n)): array for n, array in made.items()}
    return values
