"""The pattern graphs under a real target: which nodes share a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cost_model.device import Device
from tests.tuner.fusion.patterns import checker, checker_kernel, goldens
from tuner import document
from tuner.assembly import limits_for
from tuner.frontend.onnx import read_onnx
from tuner.fusion.baselines import unfused
from tuner.ir.graph import extract
from tuner.kernel.count import work
from tuner.kernel.lower import lower
from tuner.kernel.mapping import map_groups
from tuner.kernel.nest import Kind, LoopNest
from tuner.pipeline import Planner, load, make_plan, resolve_target
from tuner.plan import Family, Options, Pin, Plan, PlannedKernel
from tuner.pricing import Pricer

TARGET = "sm_90"
CONTRACTIONS = ("conv_diamond", "conv_bn_two_readers", "gemm_bias_gelu_residual")


def device() -> Device:
    """The target."""
    return resolve_target(TARGET)


def planned(path: Path) -> tuple[Plan, list[Any]]:
    """The plan of a pattern, and its kernels in the judge's words."""
    checker(path.parent)
    training = "train" in path.stem
    model = load(path.read_bytes(), "onnx", training=training)
    options = Options(mode="training" if training else "inference")
    planner = Planner(model=model, device=device(), options=options)
    plan = planner.plan(planner.solve())
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


UNLESS = ("concat_unaligned_columns", "transpose_then_reduce")
"""Patterns whose pair shares a kernel because the generator avoids the harm."""


def test_pairs_are_together_or_apart_as_the_goldens_say(patterns_dir: Path) -> None:
    """Every `must` pair shares a kernel, every `must_not` pair does not.

    Where the golden allows it unless the generator avoids the harm, that is shown in
    tests of its own.
    """
    broken = {}
    for name, golden in goldens(patterns_dir).items():
        if golden.get("must") or golden.get("must_not"):
            path = patterns_dir / f"{name}.onnx"
            _, kernels = planned(path)
            broken[name] = broken_pairs(path, kernels)
    assert len(broken) > 40
    kept = {name: pairs for name, pairs in broken.items() if pairs}
    assert set(kept) <= set(UNLESS), kept


def nest_of(plan: Plan) -> tuple[LoopNest, PlannedKernel]:
    """The loops of a plan's only kernel."""
    (kernel,) = plan.kernels
    return lower(extract(plan.graph, kernel.region)), kernel


def test_a_reduction_behind_a_transpose_reduces_the_axis_in_memory(
    patterns_dir: Path,
) -> None:
    """The axes are relabelled: the reduced one lies innermost, and reads coalesce.

    Apart the pair would take longer: the transpose alone moves twice the matrix.
    """
    path = patterns_dir / "transpose_then_reduce.onnx"
    plan, kernels = planned(path)
    assert broken_pairs(path, kernels) == [["transpose", "max"]]
    nest, kernel = nest_of(plan)
    (node,) = (plan.graph.by_name[n] for n in kernel.region.nodes)
    rank = len(plan.graph.types[node.inputs[0]].shape)
    assert node.attributes["axes"] == (rank - 1,)
    read = work(nest, kernel.schedule, device()).accesses[0]
    assert read.sector_bytes == read.unique_bytes == 1500 * 32 * 128 * 4
    apart = unsimplified_seconds(path)
    assert kernel.estimate.seconds < apart


def unsimplified_seconds(path: Path) -> float:
    """The graph as written, each operator in a kernel of its own."""
    graph = read_onnx(path.read_bytes()).graph
    pricer = Pricer(graph, device(), Options())
    choices = unfused(
        graph, pricer.seconds, profile="full", limits=limits_for(device(), Options())
    )
    return sum(choice.seconds for choice in choices)


def test_a_warp_of_a_column_reduction_lies_on_one_side_of_a_seam(
    patterns_dir: Path,
) -> None:
    """Lanes run along the kept axes, so that all of them take the same branch.

    The seam lies along the reduced axis, which teams and serial steps share out, and
    the pair apart would take longer.
    """
    path = patterns_dir / "concat_unaligned_columns.onnx"
    plan, _ = planned(path)
    nest, kernel = nest_of(plan)
    mappings = map_groups(nest, kernel.schedule)
    column = next(
        (group, mapping)
        for group, mapping in zip(nest.groups, mappings, strict=True)
        if group.kind is Kind.COLUMN
    )
    inner = 8 * 8
    assert column[1].lanes * column[1].vector <= inner
    assert inner % (column[1].lanes * column[1].vector) == 0
    assert column[1].lanes % device().subgroup_threads == 0
    model = load(path.read_bytes(), "onnx")
    nodes = (model.node_id("concat"), model.node_id("column_max"))
    pinned = Options(pins=(Pin(fuse=False, nodes=nodes),))
    apart = make_plan(model, TARGET, pinned)
    ours = plan.partition.objective_seconds
    assert ours < apart.partition.objective_seconds


def test_a_long_run_is_not_repeated_for_a_broadcast(patterns_dir: Path) -> None:
    """250 nodes on a row stay apart from the reader that would repeat them."""
    path = patterns_dir / "broadcast_512_recompute.onnx"
    plan, kernels = planned(path)
    assert not broken_pairs(path, kernels)
    assert sorted(len(kernel.region.nodes) for kernel in plan.kernels) == [1, 250]
