"""Other compilers' strategies on our graphs, and what those compilers publish."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.tuner.frontend.models import model, node, value
from tests.tuner.fusion.pattern_plans import bytes_price, goldens, load
from tests.tuner.fusion.random_graphs import random_graph
from tests.tuner.kernel.builder import Builder
from tuner.frontend.onnx import read_onnx
from tuner.fusion.baselines import GREEDY, unfused_groups
from tuner.fusion.grouping import Grouping
from tuner.fusion.inductor import inductor_groups
from tuner.fusion.legality import Limits, Refusal, Rules
from tuner.fusion.order import runnable_order
from tuner.fusion.partition import solve
from tuner.fusion.roofline import A6000, KernelTimes
from tuner.fusion.traffic import traffic
from tuner.fusion.tvm import tvm_groups
from tuner.fusion.view import View
from tuner.fusion.xla import xla_groups
from tuner.ir.graph import Graph, Region
from tuner.plan import Family, Pin
from tuner.rewrite import simplify

Strategy = Callable[..., Grouping]


def rules_of(graph: Graph) -> Rules:
    """What our families can run, without walls."""
    return Rules(View(graph), "full", Limits.none())


def grouped(strategy: Strategy, graph: Graph) -> list[frozenset[str]]:
    """A strategy's kernels, as node names."""
    rules = rules_of(graph)
    found = strategy(rules, unfused_groups(rules))
    return [frozenset(rules.view.region(m, 0).nodes) for m, _ in found]


def moved_bytes(strategy: Strategy, graph: Graph, *, profile: str = "full") -> int:
    """Bytes that a strategy's kernels move."""
    rules = Rules(View(graph), profile, Limits.none())  # type: ignore[arg-type]
    found = strategy(rules, unfused_groups(rules))
    regions = (rules.view.region(mask, outputs) for mask, outputs in found)
    return sum(traffic(graph, region).total_bytes for region in regions)


def written(folder: Path, name: str) -> Graph:
    """A pattern as its file has it, without our simplifications."""
    return read_onnx((folder / f"{name}.onnx").read_bytes()).graph


def apart(groups: Sequence[frozenset[str]], a: str, b: str) -> bool:
    """Whether no kernel holds both nodes."""
    return not any({a, b} <= nodes for nodes in groups)


# Inductor's byte goldens -------------------------------------------------------------


def inductor_names(folder: Path) -> list[str]:
    """Patterns whose figures Inductor's own tests assert and reach."""
    return [
        name
        for name, golden in goldens(folder).items()
        if isinstance(golden, dict)
        and "test/inductor" in ((golden.get("published") or {}).get("source", ""))
        and golden["published"]["reached_there"]
    ]


def test_inductors_byte_goldens_are_reproduced(patterns_dir: Path) -> None:
    """Every figure that Inductor's tests assert, good or bad, to the byte."""
    names = inductor_names(patterns_dir)
    assert len(names) >= 19
    for name in names:
        graph = load(patterns_dir / f"{name}.onnx")
        moved = moved_bytes(inductor_groups, graph, profile="reference")
        published = goldens(patterns_dir)[name]["published"]
        assert moved == published["golden_traffic_bytes"], name


def test_the_pair_that_shares_most_is_not_the_best(patterns_dir: Path) -> None:
    """On `choice4` shared bytes lead to 1050 elements; the best plan moves 1000."""
    graph = load(patterns_dir / "choice4.onnx")
    assert moved_bytes(inductor_groups, graph, profile="reference") == 4 * 1050
    best = solve(graph, bytes_price(graph), profile="reference").partition
    assert best.objective_seconds == pytest.approx(4 * 1000 * 1e-12)


def test_sums_of_eight_are_written(patterns_dir: Path) -> None:
    """Sums of 4 are written out inside the maximum, sums of 8 are a kernel."""
    short = load(patterns_dir / "pairwise_k4.onnx")
    longer = load(patterns_dir / "pairwise_k8.onnx")
    assert len(grouped(inductor_groups, short)) == 1
    assert len(grouped(inductor_groups, longer)) == 2


def test_horizontal_pairs_share_ten_bytes(patterns_dir: Path) -> None:
    """A common scalar of four bytes does not pair kernels; a common tensor does."""
    groups = grouped(inductor_groups, written(patterns_dir, "scalar_bait"))
    assert apart(groups, "scale_x", "scale_y")
    assert not apart(groups, "scale_y", "add")


# XLA's decisions ---------------------------------------------------------------------


def test_xla_a_fusion_takes_ninety_six_tensors(patterns_dir: Path) -> None:
    """`LimitNumberOfParameters`: a sum of 120 inputs is not one kernel."""
    graph = written(patterns_dir, "chain_120_params")
    rules = rules_of(graph)
    found = xla_groups(rules, unfused_groups(rules))
    assert len(found) > 1
    for mask, outputs in found:
        moved = traffic(graph, rules.view.region(mask, outputs))
        assert len(moved.reads) + len(moved.writes) <= 96


def test_xla_sibling_reductions_share_a_kernel(patterns_dir: Path) -> None:
    """`MultiOutputFusionSiblingReduceAndReduceFusion`: two moments, one kernel."""
    groups = grouped(xla_groups, written(patterns_dir, "channel_moments"))
    assert len(groups) == 1


def test_xla_a_kernel_holds_eight_reductions(patterns_dir: Path) -> None:
    """`DoNotGroupTooManyReductions`: ten row sums take two kernels."""
    graph = written(patterns_dir, "ten_row_sums_ring")
    published = goldens(patterns_dir)["ten_row_sums_ring"]["published"]
    assert len(grouped(xla_groups, graph)) == published["golden_kernels"] == 2
    assert moved_bytes(xla_groups, graph) == published["golden_traffic_bytes"]


def test_xla_a_reduction_does_not_join_a_reduction(patterns_dir: Path) -> None:
    """`DoNotFuseReduceIntoReduce`."""
    graph = written(patterns_dir, "reduce_then_reduce")
    published = goldens(patterns_dir)["reduce_then_reduce"]["published"]
    assert len(grouped(xla_groups, graph)) == 2
    assert moved_bytes(xla_groups, graph) == published["golden_traffic_bytes"]


def test_xla_an_unaligned_concat_joins_no_reader(patterns_dir: Path) -> None:
    """`DontFuseConcat`: a warp that crosses the seam would run both branches.

    The queue leaves three kernels; a later pass may join readers of one extent.
    """
    graph = written(patterns_dir, "concat_unaligned_columns")
    rules = rules_of(graph)
    found = xla_groups(rules, unfused_groups(rules), several_outputs=False)
    groups = [frozenset(rules.view.region(m, 0).nodes) for m, _ in found]
    assert apart(groups, "concat", "column_max")
    assert apart(groups, "concat", "sub")
    assert not apart(groups, "add", "concat")
    published = goldens(patterns_dir)["concat_unaligned_columns"]["published"]
    assert len(groups) == published["golden_kernels"]


def test_xla_a_reduction_does_not_read_through_a_transpose(patterns_dir: Path) -> None:
    """`FusingTransposeIntoReduceIsSlow`: about 105 us apart, 514 us together."""
    graph = written(patterns_dir, "transpose_then_reduce")
    assert apart(grouped(xla_groups, graph), "transpose", "max")
    view = View(graph)
    times = KernelTimes(view, A6000)
    whole = times.seconds(view.everything, view.delivered)
    assert whole == pytest.approx(514e-6, rel=0.02)
    masks = (1 << view.index[name] for name in ("transpose", "max"))
    parts = math.fsum(times.seconds(mask, view.wanted(mask)) for mask in masks)
    assert parts == pytest.approx(105e-6, rel=0.1)


def test_xla_a_reduction_reads_through_an_outer_transpose(patterns_dir: Path) -> None:
    """`FusingNonMinorTransposeIntoReduceIsFast`."""
    graph = written(patterns_dir, "outer_transpose_then_reduce")
    assert len(grouped(xla_groups, graph)) == 1


def test_xla_one_of_two_kernels_that_would_wait_for_each_other(
    patterns_dir: Path,
) -> None:
    """`ProducerConsumerFusionAvoidsCycles`: exactly one of the two is formed."""
    groups = grouped(xla_groups, written(patterns_dir, "mutual_cycle_two_reduces"))
    first = not apart(groups, "add", "reduce1")
    second = not apart(groups, "mul", "reduce2")
    assert len(groups) == 3
    assert first != second


def test_xla_a_producer_goes_into_all_its_users() -> None:
    """An expensive producer is computed again in each user, and not written."""
    b = Builder()
    x = b.op("add", b.input(4096, 512), b.input(4096, 512))
    rows = b.op("reduce_sum", x, axes=(1,), keepdims=1)
    columns = b.op("reduce_sum", x, axes=(0,), keepdims=1)
    graph = b.graph(rows, columns)
    groups = grouped(xla_groups, graph)
    assert sorted(map(sorted, groups)) == [["n0", "n1"], ["n0", "n2"]]


def test_xla_a_producer_goes_into_none_if_one_user_cannot_take_it() -> None:
    """A user that is no fusion keeps the producer out of the other user, too."""
    b = Builder()
    x = b.op("exp", b.input(64, 64))
    product = b.op("matmul", x, b.input(64, 64))
    total = b.op("reduce_sum", x, axes=(1,), keepdims=1)
    graph = b.graph(product, total)
    rules = rules_of(graph)
    found = xla_groups(rules, unfused_groups(rules), several_outputs=False)
    assert len(found) == 3


def test_xla_siblings_join_without_a_cost_test() -> None:
    """Two readers of one tensor join however little that saves."""
    b = Builder()
    x, y = b.input(256), b.input(256)
    graph = b.graph(b.op("add", x, y), b.op("mul", x, b.input(256)))
    assert len(grouped(xla_groups, graph)) == 1


def test_xla_a_normalisation_is_one_kernel(patterns_dir: Path) -> None:
    """`softmax_rewriter_triton`: row diamonds over the last axis, one after another."""
    for name in ("softmax_rows", "layer_norm_rows"):
        assert len(grouped(xla_groups, load(patterns_dir / f"{name}.onnx"))) == 1


# TVM's rules -------------------------------------------------------------------------


def tvm_grouped(graph: Graph) -> list[frozenset[str]]:
    """The groups of TVM's rules, as node names."""
    rules = rules_of(graph)
    groups = tvm_groups(rules, unfused_groups(rules))
    return [frozenset(rules.view.region(mask, 0).nodes) for mask in groups]


def softmax_between() -> Graph:
    """A node in front of a softmax, and one behind."""
    nodes = [node("Exp", "x", "e"), node("Softmax", "e", "s"), node("Relu", "s", "y")]
    made = model(nodes, [value("x", (64, 32))], "y")
    imported = read_onnx(made.SerializeToString())
    return simplify(imported.graph, training=False).graph


def sums_between() -> Graph:
    """The same, with the softmax taken apart in the file."""
    b = Builder()
    x = b.op("exp", b.input(64, 32))
    e = b.op("exp", b.op("sub", x, b.op("reduce_max", x, axes=(1,), keepdims=1)))
    total = b.op("reduce_sum", e, axes=(1,), keepdims=1)
    return b.graph(b.op("relu", b.op("div", e, total)))


def test_tvm_a_layer_that_reduces_is_one_operator() -> None:
    """A softmax takes in what follows, as behind a contraction, and not what leads."""
    graph = softmax_between()
    first, last = graph.nodes[0].name, graph.nodes[-1].name
    groups = sorted(tvm_grouped(graph), key=len)
    assert [len(nodes) for nodes in groups] == [1, len(graph.nodes) - 1]
    assert first in groups[0]
    assert last in groups[1]


def test_tvm_a_reduction_of_its_own_takes_in_nothing_behind_it() -> None:
    """What the file has in parts is in parts: each reduction ends a group."""
    graph = sums_between()
    groups = tvm_grouped(graph)
    assert len(groups) == 5
    assert apart(groups, "n1", "n2")
    assert apart(groups, "n4", "n5")


# All -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(GREEDY))
def test_a_strategy_gives_a_legal_partition(name: str) -> None:
    """On random graphs: legal kernels, in a possible order, all that is wanted."""
    for seed in range(60):
        graph = random_graph(seed)
        rules = rules_of(graph)
        found = GREEDY[name](rules, unfused_groups(rules), out_of_time=lambda: False)
        view = rules.view
        for mask, outputs in found:
            assert not isinstance(rules.judge(mask, outputs), Refusal)
            assert view.trimmed(mask, outputs) == mask
        made = 0
        for mask, outputs in found:
            assert not view.needs(mask) & ~made
            made |= outputs
        assert not view.delivered & ~made


@pytest.mark.parametrize("name", sorted(GREEDY))
def test_without_time_a_strategy_leaves_operators_alone(name: str) -> None:
    """What time does not allow stays unfused."""
    rules = rules_of(random_graph(3))
    base = unfused_groups(rules)
    found = GREEDY[name](rules, base, out_of_time=lambda: True)
    order, stuck = runnable_order(
        [rules.view.needs(m) for m, _ in found], [w for _, w in found]
    )
    assert len(order) == len(base)
    assert not stuck


def test_a_plan_is_never_dearer_than_a_strategy() -> None:
    """All four are stated, and none is cheaper, whatever the graph."""
    for seed in range(20):
        graph = random_graph(seed)
        solution = solve(graph, bytes_price(graph))
        assert set(solution.baselines) == {"unfused", "tvm", *GREEDY}
        least = min(b.objective_seconds for b in solution.baselines.values())
        assert solution.partition.objective_seconds <= least * (1 + 1e-9)


def test_without_time_the_best_strategy_that_keeps_the_pins_is_taken() -> None:
    """A strategy's kernels that a pin forbids are not what a plan falls back on."""
    b = Builder()
    x = b.input(64, 64)
    y = b.op("exp", b.op("relu", x))
    graph = b.graph(y)
    pins = (Pin(fuse=False, nodes=("n0", "n1")),)
    solution = solve(graph, bytes_price(graph), pins=pins)
    assert solution.baselines["xla"].kernels == 2
    assert len(solution.partition.choices) == 2


def test_of_costs_that_are_equal_fewer_bytes_win(patterns_dir: Path) -> None:
    """Less than the solver proves is no reason to move a tensor twice; more is."""
    graph = written(patterns_dir, "scalar_bait")

    def price(share: float) -> Callable[[Region, Family], float]:
        bait = {"scale_x", "scale_y"}
        return lambda region, _: 1e-6 * (1 - share * bait.issubset(region.nodes))

    for share, together in ((0.0, False), (1e-9, False), (1e-5, True), (0.1, True)):
        choices = solve(graph, price(share)).partition.choices
        groups = [frozenset(choice.region.nodes) for choice in choices]
        assert apart(groups, "scale_x", "scale_y") is not together
        assert apart(groups, "scale_y", "add") is together
