"""The pattern graphs under a real target: which nodes share a kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cost_model.device import Device
from tests.conftest import SOAK
from tests.tuner.fusion.pattern_plans import checker, goldens
from tests.tuner.fusion.pattern_targets import (
    TARGET,
    Pair,
    apart_seconds,
    moved,
    pairs,
    planned,
    unsimplified_seconds,
)
from tests.tuner.fusion.test_patterns import SLOW
from tuner.ir.graph import extract
from tuner.kernel.count import work
from tuner.kernel.lower import lower
from tuner.kernel.mapping import map_groups
from tuner.kernel.nest import Kind, LoopNest
from tuner.pipeline import resolve_target
from tuner.plan import Family, Plan, PlannedKernel

CONTRACTIONS = ("conv_diamond", "conv_bn_two_readers", "gemm_bias_gelu_residual")


def device() -> Device:
    """The target."""
    return resolve_target(TARGET)


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contractions_take_in_what_they_must(patterns_dir: Path, name: str) -> None:
    """Bias, normalisation, activation, residual and second outputs ride along."""
    path = patterns_dir / f"{name}.onnx"
    found, module = planned(path, TARGET), checker(patterns_dir)
    judged = module.Graph.load(path)
    report = module.check_plan(judged, list(found.kernels), allow_prologue=True)
    assert not report.faults
    assert Family.CONTRACTION in {kernel.family for kernel in found.plan.kernels}
    golden = goldens(patterns_dir)[name]
    least = golden.get("with_prologue_traffic_bytes", golden["optimal_traffic_bytes"])
    assert least <= found.plan.traffic_bytes <= golden["optimal_traffic_bytes"]


@pytest.fixture(scope="module")
def told(patterns_dir: Path) -> Mapping[str, Sequence[Pair]]:
    """What plans do with the pairs of every pattern that has some."""
    found = {p.stem: pairs(p) for p in sorted(patterns_dir.glob("*.onnx"))}
    return {name: each for name, each in found.items() if each}


UNLESS = {"concat_unaligned_columns", "transpose_then_reduce"}
"""Patterns whose pair shares a kernel because the generator avoids the harm."""


def test_pairs_are_together_or_apart_as_the_goldens_say(
    told: Mapping[str, Sequence[Pair]],
) -> None:
    """Every `must` pair shares a kernel, every `must_not` pair does not.

    Where the golden allows it unless the generator avoids the harm, that is shown in
    tests of its own, and the pair apart takes longer.
    """
    every = [pair for each in told.values() for pair in each]
    assert sum(pair.must for pair in every) > 70
    assert sum(not pair.must for pair in every) >= 5
    assert not [pair for pair in every if not pair.is_kept]
    joined = {
        name
        for name, each in told.items()
        if any(pair.together and not pair.must for pair in each)
    }
    assert joined == UNLESS


def test_bytes_on_ideal_are_the_goldens(patterns_dir: Path) -> None:
    """By the reference rules to the byte, legal and as reported; else no more."""
    paths = sorted(patterns_dir.glob("*.onnx"))
    for path in paths if SOAK else [p for p in paths if p.stem not in SLOW]:
        found = moved(path)
        assert not found.faults, path.stem
        assert found.reported == found.judged == found.golden, path.stem
        assert found.full <= found.golden, path.stem


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
    plan = planned(path, TARGET).plan
    nest, kernel = nest_of(plan)
    (node,) = (plan.graph.by_name[n] for n in kernel.region.nodes)
    rank = len(plan.graph.types[node.inputs[0]].shape)
    assert node.attributes["axes"] == (rank - 1,)
    read = work(nest, kernel.schedule, device()).accesses[0]
    assert read.sector_bytes == read.unique_bytes == 1500 * 32 * 128 * 4
    assert kernel.estimate.seconds < unsimplified_seconds(path, TARGET)


def test_a_warp_of_a_column_reduction_lies_on_one_side_of_a_seam(
    patterns_dir: Path,
) -> None:
    """Lanes run along the kept axes, so that all of them take the same branch.

    The seam lies along the reduced axis, which teams and serial steps share out, and
    the pair apart would take longer.
    """
    path = patterns_dir / "concat_unaligned_columns.onnx"
    plan = planned(path, TARGET).plan
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
    apart = apart_seconds(path, TARGET, ("concat", "column_max"))
    assert plan.partition.objective_seconds < apart


def test_a_long_run_is_not_repeated_for_a_broadcast(patterns_dir: Path) -> None:
    """250 nodes on a row stay apart from the reader that would repeat them."""
    path = patterns_dir / "broadcast_512_recompute.onnx"
    kernels = planned(path, TARGET).plan.kernels
    assert sorted(len(kernel.region.nodes) for kernel in kernels) == [1, 250]
