"""Random models through the whole path, against the references in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conformance.random_models import RandomModel
from tests.conformance.running import generated_plan, run_plan
from tuner.ir.interpreter import evaluate
from tuner.model import load
from tuner.runtime.backend import Backend
from tuner.runtime.verification import LIBRARY_FACTOR, MODEL_EPSILONS, epsilon, widen

SEEDS = 12
SOAK_SEEDS = 400
NODES = 14


def complaint_of(seed: int, backend: Backend) -> str:
    """What is wrong with the answer to a random model; empty when nothing is."""
    made = RandomModel(seed, NODES)
    model = load(made.proto().SerializeToString())
    graph = model.imported.graph
    values = {**made.inputs, **model.imported.values}
    feeds = {name: values[name] for name in (*graph.inputs, *graph.weights)}
    with np.errstate(all="ignore"):
        truth = evaluate(graph, feeds, precision="float64")
        native = evaluate(graph, feeds)
    found = run_plan(model, generated_plan(model), made.inputs, backend)
    for name, true in truth.items():
        kind = graph.types[name]
        ours: Any = widen(found[name], kind.dtype)
        theirs: Any = widen(native[name], kind.dtype)
        if ours.shape != true.shape:
            return f"{name}: shape {ours.shape}, not {true.shape}"
        if not kind.dtype.is_float:
            if not np.all((ours == true) | (ours == theirs)):
                return f"{name}: {kind.dtype} differs from the reference"
            continue
        problem = _problem(ours, true, theirs, MODEL_EPSILONS * epsilon(graph))
        if problem:
            return f"{name}: {problem}"
    return ""


def _problem(ours: Any, true: Any, theirs: Any, bound: float) -> str:
    finite = np.isfinite(theirs) & np.isfinite(true)
    if not np.array_equal(ours[~finite], theirs[~finite], equal_nan=True):
        return "other values are not finite"
    scale = np.max(np.abs(true[finite]), initial=0.0)
    error = np.max(np.abs(ours[finite] - true[finite]), initial=0.0)
    library = np.max(np.abs(theirs[finite] - true[finite]), initial=0.0)
    if not error <= max(bound * scale, LIBRARY_FACTOR * library):
        return f"error {error:.3g} at values up to {scale:.3g}"
    return ""


@pytest.mark.parametrize("part", range(4))
def test_random_models_give_what_the_references_give(
    opencl: Backend, part: int, *, soak: bool
) -> None:
    """Whatever types, shapes and operators meet, sizes 0 and 1 among them."""
    seeds = range(part, SOAK_SEEDS if soak else SEEDS, 4)
    found = {seed: complaint_of(seed, opencl) for seed in seeds}
    assert not {seed: text for seed, text in found.items() if text}
