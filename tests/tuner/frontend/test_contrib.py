"""Operators that libraries add to the standard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.tuner.frontend.models import agree, model, node, ops, read, value
from tuner.errors import UnsupportedModel

_RNG = np.random.default_rng(3)


def _of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: str,
    constants: Mapping[str, Any],
    domain: str = "com.microsoft",
) -> onnx.ModelProto:
    for each in nodes:
        each.domain = domain
        wanted = [name if name in outputs.split() else "" for name in each.output]
        each.output[:] = wanted
    made = model(nodes, inputs, outputs, constants)
    made.opset_import.append(helper.make_opsetid(domain, 1))
    return made


def _real(*shape: int) -> Any:
    return (_RNG.standard_normal(shape) / 2).astype(np.float32)


_X = value("x", [2, 4, 16])
_S = value("s", [2, 4, 16])
_NORM = {"g": _real(16), "b": _real(16), "bias": _real(16)}
TAKEN_APART = {
    "gelu": _of([node("Gelu", "x", "y")], [_X], "y", {}),
    "bias gelu": _of([node("BiasGelu", "x b", "y")], [_X], "y", {"b": _real(16)}),
    "fast gelu": _of([node("FastGelu", "x", "y")], [_X], "y", {}),
    "fast gelu, bias": _of([node("FastGelu", "x b", "y")], [_X], "y", {"b": _real(16)}),
    "quick gelu": _of([node("QuickGelu", "x", "y", alpha=1.5)], [_X], "y", {}),
    "skip": _of(
        [node("SkipLayerNormalization", "x s g b", "y", epsilon=1e-3)],
        [_X, _S],
        "y",
        _NORM,
    ),
    "skip without shift": _of(
        [node("SkipLayerNormalization", "x s g", "y")], [_X, _S], "y", _NORM
    ),
    "skip, bias, sum": _of(
        [node("SkipLayerNormalization", "x s g b bias", "y m v sum")],
        [_X, _S],
        "y sum",
        _NORM,
    ),
    "skip, root of squares": _of(
        [node("SkipSimplifiedLayerNormalization", "x s g", "y", epsilon=1e-3)],
        [_X, _S],
        "y",
        _NORM,
    ),
    "fused matmul": _of(
        [node("FusedMatMul", "x w", "y", transA=1, transB=1, alpha=0.25)],
        [value("x", [2, 16, 4])],
        "y",
        {"w": _real(3, 16)},
    ),
    "fused conv": _of(
        [node("FusedConv", "x w b", "y", activation="Relu", pads=[1] * 4)],
        [value("x", [1, 3, 6, 6])],
        "y",
        {"w": _real(2, 3, 3, 3), "b": _real(2)},
    ),
    "fused gemm": _of(
        [node("FusedGemm", "x w b", "y", activation="Tanh", transB=1, alpha=0.5)],
        [value("x", [2, 16])],
        "y",
        {"w": _real(3, 16), "b": _real(3)},
    ),
}


@pytest.mark.parametrize("made", TAKEN_APART.values(), ids=TAKEN_APART)
def test_an_operator_of_onnx_runtime_is_taken_apart(made: onnx.ModelProto) -> None:
    """It computes what ONNX Runtime computes, and no part of it is opaque."""
    assert "opaque" not in ops(agree(made, tolerance=1e-4))


_BYTES = {"z": np.uint8(128), "s": np.float32(0.02)}
_ML = "ai.onnx.ml"
TOLD = {
    "attention": (
        _of(
            [node("Attention", "x w b", "y", num_heads=2)],
            [value("x", [2, 3, 4])],
            "y",
            {"w": _real(4, 12), "b": _real(12)},
        ),
        (2, 3, 4),
    ),
    "attention of several heads": (
        _of([node("MultiHeadAttention", "x s s", "y", num_heads=2)], [_X, _S], "y", {}),
        (2, 4, 16),
    ),
    "packed weights": (
        _of(
            [node("MatMulNBits", "x q c", "y", K=16, N=8, bits=4, block_size=16)],
            [_X],
            "y",
            {"q": _RNG.integers(0, 255, (8, 1, 8)).astype(np.uint8), "c": _real(8)},
        ),
        (2, 4, 8),
    ),
    "sum of bytes": (
        _of(
            [node("QLinearAdd", "x s z q s z s z", "y")],
            [value("x", [3, 4], TensorProto.UINT8)],
            "y",
            {**_BYTES, "q": _RNG.integers(0, 255, (4,)).astype(np.uint8)},
        ),
        (3, 4),
    ),
    "bytes side by side": (
        _of(
            [node("QLinearConcat", "s z x s z x s z", "y", axis=1)],
            [value("x", [3, 4], TensorProto.UINT8)],
            "y",
            _BYTES,
        ),
        (3, 8),
    ),
    "picked columns": (
        _of(
            [node("ArrayFeatureExtractor", "x k", "y")],
            [value("x", [5, 4])],
            "y",
            {"k": np.array([2, 0, 1])},
            _ML,
        ),
        (5, 3),
    ),
    "scaler": (
        _of(
            [node("Scaler", "x", "y", offset=[0.1], scale=[2.0])],
            [value("x", [5, 4])],
            "y",
            {},
            _ML,
        ),
        (5, 4),
    ),
    "regression": (
        _of(
            [node("LinearRegressor", "x", "y", coefficients=[0.1] * 8, targets=2)],
            [value("x", [5, 4])],
            "y",
            {},
            _ML,
        ),
        (5, 2),
    ),
}


@pytest.mark.parametrize(("made", "shape"), TOLD.values(), ids=TOLD)
def test_the_type_of_a_library_operator_is_known(
    made: onnx.ModelProto, shape: tuple[int, ...]
) -> None:
    """No value_info is needed, and the library that runs it gives just that."""
    graph = agree(made, tolerance=1e-4)
    assert ops(graph) == ["opaque"]
    assert graph.types["y"].shape == shape


def test_what_is_not_known_is_refused_with_a_cure() -> None:
    """An operator of others needs a stated type; the refusal names the tensor."""
    made = _of([node("Frobnicate", "x", "y")], [_X], "y", {}, "com.acme")
    with pytest.raises(UnsupportedModel, match=r"the result 'y' of com\.acme\.Frob"):
        read(made)


def test_defaults_are_told_to_the_inference() -> None:
    """An attribute that is left out means its default for the shapes as well."""
    made = model(
        [node("STFT", "x k w", "y")],
        [value("x", [1, 128])],
        "y",
        {"k": np.array(8), "w": np.hanning(32).astype(np.float32)},
    )
    assert agree(made, tolerance=1e-4).types["y"].shape == (1, 13, 17, 2)
