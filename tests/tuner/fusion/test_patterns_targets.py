"""The pattern graphs under a real target: which nodes share a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tuner.fusion.patterns import checker, checker_kernel, goldens
from tuner import document
from tuner.pipeline import load, make_plan
from tuner.plan import Family, Options, Plan

TARGET = "sm_90"
CONTRACTIONS = ("conv_diamond", "conv_bn_two_readers", "gemm_bias_gelu_residual")


def planned(path: Path) -> tuple[Plan, list[Any]]:
    """The plan of a pattern, and its kernels in the judge's words."""
    checker(path.parent)
    training = "train" in path.stem
    model = load(path.read_bytes(), "onnx", training=training)
    options = Options(mode="training" if training else "inference")
    plan = make_plan(model, TARGET, options)
    view = document.joined(document.body(plan, target={}, toolchain={}), model.names)
    kernels = [
        checker_kernel(tuple(kernel["nodes"]), tuple(kernel["outputs"]))
        for kernel in view["kernels"]
    ]
    return plan, kernels


def broken_pairs(path: Path, kernels: list[Any]) -> list[list[str]]:
    """Pairs that are apart and must not be, or together and must not be."""
    module, golden = checker(path.parent), goldens(path.parent)[path.stem]
    apart = [
        pair["nodes"]
        for pair in golden.get("must", ())
        if not module.sharing(kernels, pair["nodes"])
    ]
    return apart + [
        pair["nodes"]
        for pair in golden.get("must_not", ())
        if module.sharing(kernels, pair["nodes"])
    ]


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions_take_in_what_they_must(patterns_dir: Path, name: str) -> None:
    """Bias, normalisation, activation, residual and second outputs ride along."""
    path = patterns_dir / f"{name}.onnx"
    plan, kernels = planned(path)
    assert not broken_pairs(path, kernels)
    module = checker(patterns_dir)
    report = module.check_plan(module.Graph.load(path), kernels, allow_prologue=True)
    assert not report.faults
    assert Family.CONTRACTION in {kernel.family for kernel in plan.kernels}
    golden = goldens(patterns_dir)[name]
    least = golden.get("with_prologue_traffic_bytes", golden["optimal_traffic_bytes"])
    assert least <= plan.traffic_bytes <= golden["optimal_traffic_bytes"]


@pytest.mark.parametrize(
    "name", ["conv_bn_relu_train", "dense_split_gates", "inception_two_levels"]
)
def test_other_anchors_keep_their_pairs(patterns_dir: Path, name: str) -> None:
    """Nothing joins a contraction that must stay apart from it."""
    path = patterns_dir / f"{name}.onnx"
    _, kernels = planned(path)
    assert not broken_pairs(path, kernels)
