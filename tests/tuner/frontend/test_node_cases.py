"""The standard's own node tests: imported, evaluated, compared."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tuner.errors import UnsupportedModel
from tuner.frontend.onnx import read_onnx
from tuner.ir.graph import Graph
from tuner.ir.interpreter import evaluate, from_bf16

LEAST_PASSING = 1060
"""Cases of onnx 1.23 that are whole graphs of primitives; may only grow."""


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    """All generated node tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases  # noqa: PLC0415

        return list(collect_testcases())


def _plain(array: Any) -> Any:
    return (
        numpy_helper.to_array(array)
        if isinstance(array, onnx.TensorProto)
        else np.asarray(array)
    )


def _graph(model: onnx.ModelProto, inputs: list[Any]) -> Graph | None:
    """The graph, with integer operands known if it needs them; None if opaque."""
    graph = read_onnx(model.SerializeToString()).graph
    if not any(node.op == "opaque" for node in graph.nodes):
        return graph
    first = {name for node in model.graph.node[:1] for name in node.input[:1]}
    for value, array in zip(list(model.graph.input), inputs, strict=True):
        is_small = array.dtype.kind in "ib" or (
            array.dtype.kind == "f" and array.size <= 8
        )
        if is_small and value.name not in first:
            model.graph.input.remove(value)
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    graph = read_onnx(model.SerializeToString()).graph
    return None if any(node.op == "opaque" for node in graph.nodes) else graph


def _problems(case: Any, graph: Graph, inputs: list[Any]) -> Iterator[str]:
    names = [value.name for value in case.model.graph.input]
    feeds = {
        name: array.view(np.uint16) if array.dtype.name == "bfloat16" else array
        for name, array in zip(names, inputs, strict=True)
    }
    results = evaluate(graph, feeds)
    outputs = [value.name for value in case.model.graph.output]
    for name, array in zip(outputs, case.data_sets[0][1], strict=True):
        got, wanted = results[name], _plain(array)
        loose = got.dtype == np.float16
        if wanted.dtype.name == "bfloat16":
            got, wanted, loose = from_bf16(got), wanted.astype(np.float32), True
        if got.dtype != wanted.dtype or got.shape != wanted.shape:
            yield f"{name} is {got.dtype}{got.shape}, not {wanted.dtype}{wanted.shape}"
        elif not np.allclose(
            got,
            wanted,
            rtol=2e-2 if loose else case.rtol,
            atol=1e-2 if loose else case.atol,
            equal_nan=True,
        ):
            yield f"{name} has other values"


def test_every_case_without_an_opaque_node_has_the_standards_result(
    cases: list[Any],
) -> None:
    """Whatever is taken apart into primitives computes what the standard says."""
    passed, problems = 0, []
    for case in cases:
        given = case.data_sets[0][0]
        if not all(
            isinstance(a, np.ndarray | np.generic | onnx.TensorProto) for a in given
        ):
            continue  # sequences and optionals
        inputs = [_plain(array) for array in given]
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        try:
            graph = _graph(model, inputs)
        except UnsupportedModel:
            continue
        if graph is None:
            continue
        found = list(_problems(case, graph, inputs))
        problems += [f"{case.name}: {problem}" for problem in found]
        passed += not found
    assert not problems
    assert passed >= LEAST_PASSING
