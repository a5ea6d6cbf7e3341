"""Whole plans of a small model: what the body says, and that it says it again."""

from __future__ import annotations

import json
import re
from itertools import combinations, pairwise

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
)
from onnx.numpy_helper import from_array

from tests.conftest import GLANCE_SECONDS
from tests.tuner.frontend.models import model as proto
from tests.tuner.frontend.models import node, value
from tests.tuner.search.conftest import small_model
from tuner import document
from tuner.errors import (
    ConstraintsUnsatisfiable,
    InvalidOption,
    UnboundDimensions,
    UnknownTarget,
)
from tuner.execution import run_plan
from tuner.fusion.traffic import traffic
from tuner.model import Model, load
from tuner.pipeline import Planner, make_plan, plan_key, resolve_target
from tuner.plan import GENERATED, Options, Pin, Plan


@pytest.fixture(scope="module")
def model() -> Model:
    """The small model."""
    return load(small_model())


@pytest.fixture(scope="module", params=["cpu", "sm_90", "ideal"])
def plan(model: Model, request: pytest.FixtureRequest) -> Plan:
    """Its plan on several targets."""
    return make_plan(model, request.param, Options())


def body(model: Model, plan: Plan) -> dict[str, object]:
    """The stored body."""
    key = plan_key(model, plan.target, plan.options)
    return document.body(plan, target=dict(key.target), toolchain=dict(key.toolchain))


def test_two_plans_of_one_question_are_equal_bytes(model: Model, plan: Plan) -> None:
    """No clock, no host, no chance enters the body."""
    again = make_plan(load(small_model()), plan.target, plan.options)
    assert document.encode(body(model, again)) == document.encode(body(model, plan))


def test_every_tensor_is_made_before_it_is_read(plan: Plan) -> None:
    """Kernels are in an order that can run."""
    graph = plan.graph
    ready = {*graph.inputs, *graph.weights, *graph.constants}
    for kernel in plan.kernels:
        assert set(kernel.inputs) <= ready, kernel.name
        ready |= set(kernel.region.outputs)


def test_the_plan_is_never_worse_than_a_baseline(plan: Plan) -> None:
    """Not above no fusion nor TVM's rules, under the same prices."""
    objective = plan.partition.objective_seconds
    for name, baseline in plan.baselines.items():
        assert objective <= baseline.objective_seconds * (1 + 1e-9), name


def test_objective_and_bound_make_the_gap(plan: Plan) -> None:
    """The objective is the sum of the kernels; the bound is below it."""
    partition = plan.partition
    total = sum(choice.seconds for choice in partition.choices)
    assert partition.objective_seconds == pytest.approx(total)
    assert 0 <= partition.bound_seconds <= partition.objective_seconds
    assert partition.candidate_space.complete
    assert partition.gap <= 1e-6


def test_traffic_is_the_sum_of_reads_and_writes(plan: Plan) -> None:
    """The total is what the kernels read and write."""
    moved = [traffic(plan.graph, kernel.region) for kernel in plan.kernels]
    assert plan.traffic_bytes == sum(m.total_bytes for m in moved)


def test_generated_kernels_carry_both_languages(plan: Plan) -> None:
    """Every generated kernel has an OpenCL and a CUDA text; library calls none."""
    for kernel in plan.kernels:
        languages = {source.language for source in kernel.sources}
        expected = {"opencl", "cuda"} if kernel.family in GENERATED else set()
        assert languages == expected


def test_the_joined_view_speaks_the_users_names(model: Model, plan: Plan) -> None:
    """Nodes and tensors carry the names of the model, each node once a kernel."""
    view = document.joined(body(model, plan), model.names)
    nodes = [name for kernel in view["kernels"] for name in kernel["nodes"]]
    assert {"l0.matmul", "l0.bias", "l0.tanh", "l1.norm"} <= set(nodes)
    tensors = [name for kernel in view["kernels"] for name in kernel["inputs"]]
    assert {"x", "w0", "w1"} <= set(tensors)
    assert json.loads(document.encode(view))["gap"] == view["gap"]


def test_the_plan_runs_and_agrees_with_the_library(model: Model) -> None:
    """The whole plan gives the library's answer."""
    report = run_plan(
        model, make_plan(model, "cpu", Options()), sample_seconds=GLANCE_SECONDS
    )
    assert report.verified
    assert report.seconds > 0


def test_an_unknown_target_is_named_with_those_there_are() -> None:
    """The message lists the catalogue."""
    with pytest.raises(UnknownTarget, match="h100-sxm"):
        resolve_target("sm_1")


def test_an_unknown_node_is_named(model: Model) -> None:
    """A pin on a node that is not there is a clear error."""
    assert model.node_id("l0.tanh") in model.graph.by_name
    with pytest.raises(InvalidOption, match="no_such_node"):
        model.node_id("no_such_node")


def test_pins_that_cannot_be_kept_are_told_in_the_users_names(model: Model) -> None:
    """Ids are ours: no user knows which node is n0."""
    names = ("l0.tanh", "l0.matmul")
    ids = tuple(model.node_id(name) for name in names)
    pins = tuple(Pin(fuse=fuse, nodes=(ids[0], ids[1])) for fuse in (True, False))
    with pytest.raises(ConstraintsUnsatisfiable) as caught:
        make_plan(model, "sm_90", Options(pins=pins))
    assert f"fuse {names[0]} and {names[1]}" in caught.value.problem
    assert not re.search(r"\bn\d+\b", str(caught.value))


NORMS = ("Add:a", "Softmax:s", "LayerNormalization:n", "Mul:o")
"""Nodes of a model, of which two are taken apart into many."""


@pytest.fixture(scope="module")
def norms() -> Model:
    """A sum, a softmax, a norm and a product, one behind the other."""
    nodes = [
        node("Add", "x y", "a"),
        node("Softmax", "a", "s", axis=-1),
        node("LayerNormalization", "s g", "n"),
        node("Mul", "n y", "o"),
    ]
    given = [value("x", (64, 256)), value("y", (64, 256)), value("g", (256,))]
    return load(proto(nodes, given, "o").SerializeToString())


@pytest.mark.parametrize("pair", list(pairwise(NORMS)))
def test_the_ends_of_two_nodes_are_an_edge(norms: Model, pair: tuple[str, str]) -> None:
    """To fuse a norm with its reader is to fuse its last part: others may be far."""
    first, second = norms.ends(*pair)
    graph = norms.graph
    assert pair == tuple(norms.names[n][0] for n in (first, second))
    assert set(graph.by_name[first].outputs) & set(graph.by_name[second].inputs)
    assert norms.ends(pair[1], pair[0]) == (second, first)


@pytest.mark.parametrize("pair", list(combinations(NORMS, 2)))
def test_no_part_of_a_node_joins_what_it_is_kept_from(
    norms: Model, pair: tuple[str, str]
) -> None:
    """A pin speaks of the user's nodes, whatever they were taken apart into."""
    first, second = (norms.node_id(name) for name in pair)
    options = Options(pins=(Pin(fuse=False, nodes=(first, second)),))
    planner = Planner(model=norms, device=resolve_target("sm_90"), options=options)
    for choice in planner.solve().partition.choices:
        held = {name for n in choice.region.nodes for name in norms.names[n]}
        assert not held.issuperset(pair)


def test_unbound_dimensions_are_named() -> None:
    """A dynamic model without sizes says which dimensions it needs."""
    proto = onnx.load_from_string(small_model())
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    data = proto.SerializeToString()
    with pytest.raises(UnboundDimensions, match="rows"):
        load(data)
    bound = load(data, shapes={"rows": 32})
    assert bound.fingerprint == load(small_model()).fingerprint


def test_the_whole_knows_the_order(plan: Plan) -> None:
    """The kernels in their order take at least their launches.

    They take no magnitude more than priced alone; on `ideal`, where no cache is, they
    take the traffic of the kernels.
    """
    assert plan.whole_seconds > 0
    launches = sum(kernel.estimate.launch_seconds for kernel in plan.kernels)
    assert plan.whole_seconds >= launches * (1 - 1e-9)
    alone = sum(kernel.estimate.seconds for kernel in plan.kernels)
    assert plan.whole_seconds < 10 * alone


def test_ideal_counts_bytes_of_kernels_that_can_be_generated() -> None:
    """Rows that are normed, kept, turned and cut into windows are planned on `ideal`.

    One kernel would move the least, but no loop nest writes both of its outputs; a
    plan that nothing can be generated from is none.
    """
    window = [1, 2, 4, 2, 4, 16]
    nodes = [
        make_node("Reshape", ["w", "parts"], ["a"]),
        make_node("Transpose", ["a"], ["b"], perm=[0, 1, 3, 2, 4, 5]),
        make_node("Reshape", ["b", "image"], ["c"]),
        make_node("Add", ["x", "c"], ["sum"]),
        make_node("LayerNormalization", ["sum", "scale"], ["normed"]),
        make_node("Slice", ["normed", "two", "many", "one"], ["lower"]),
        make_node("Slice", ["normed", "zero", "two", "one"], ["upper"]),
        make_node("Concat", ["lower", "upper"], ["rolled"], axis=1),
        make_node("Reshape", ["rolled", "window"], ["d"]),
        make_node("Transpose", ["d"], ["windows"], perm=[0, 1, 3, 2, 4, 5]),
    ]
    constants = {
        "parts": [1, 2, 2, 4, 4, 16],
        "image": [1, 8, 8, 16],
        "window": window,
        "zero": [0],
        "one": [1],
        "two": [2],
        "many": [8],
    }
    float32 = TensorProto.FLOAT
    graph = make_graph(
        nodes,
        "g",
        [
            make_tensor_value_info("w", float32, [4, 16, 16]),
            make_tensor_value_info("x", float32, [1, 8, 8, 16]),
            make_tensor_value_info("scale", float32, [16]),
        ],
        [
            make_tensor_value_info("sum", float32, [1, 8, 8, 16]),
            make_tensor_value_info("windows", float32, [1, 2, 2, 4, 4, 16]),
        ],
        [from_array(np.array(v), name) for name, v in constants.items()],
    )
    data = make_model(graph, opset_imports=[make_opsetid("", 17)]).SerializeToString()
    model = load(data, "onnx")
    options = Options(legality="reference")
    plan = make_plan(model, "ideal", options)
    assert all(kernel.sources for kernel in plan.kernels)
