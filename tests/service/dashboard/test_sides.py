"""Two partitions side by side: whose work each kernel does."""

from __future__ import annotations

from typing import Any

import pytest

from service.dashboard.sides import SIDE_BOXES, sides_view, without_fusion
from tests.service.dashboard import samples

BODY = samples.plan_body(layers=1)


def _joined() -> dict[str, Any]:
    """The same plan with its first two kernels as one."""
    other = samples.plan_body(layers=1)
    second = other["kernels"].pop(1)
    first = other["kernels"][0]
    first["nodes"] += second["nodes"]
    first["outputs"] = second["outputs"]
    return other


def test_what_is_cut_alike_is_the_same() -> None:
    """A kernel that was joined is not; all others are, on both sides."""
    view = sides_view(BODY, _joined(), {})
    before, after = view["sides"]
    assert [box["same"] for box in before["boxes"]] == [False, False] + [True] * 10
    assert [box["same"] for box in after["boxes"]] == [False] + [True] * 10
    held = {n for box in before["boxes"][:2] for n in box["nodes"]}
    assert held == set(after["boxes"][0]["nodes"])


def test_plans_of_other_graphs_are_not_matched() -> None:
    """Equal ids of different graphs are different nodes."""
    foreign = {**BODY, "graph": {**BODY["graph"], "outputs": []}}
    view = sides_view(BODY, foreign, {})
    assert not view["same_graph"]
    assert not any(box["same"] for side in view["sides"] for box in side["boxes"])


def test_a_large_plan_is_few_boxes_that_lose_no_node() -> None:
    """5,000 nodes: at most 60 boxes a side, and every node in one of them."""
    body = samples.plan_body(layers=130)
    for side in sides_view(without_fusion(body), body, {})["sides"]:
        assert 0 < len(side["boxes"]) <= SIDE_BOXES
        held = {node for box in side["boxes"] for node in box["nodes"]}
        assert held == {node["id"] for node in body["graph"]["nodes"]}


def test_without_fusion_every_operator_is_a_kernel() -> None:
    """One kernel a node; a reshape goes with what it renames; no time is invented."""
    plain = without_fusion(BODY)
    nodes = {node["id"]: node["op"] for node in BODY["graph"]["nodes"]}
    real = [node for node, op in nodes.items() if op != "reshape"]
    assert [kernel["name"] for kernel in plain["kernels"]] == [nodes[n] for n in real]
    assert sorted(n for k in plain["kernels"] for n in k["nodes"]) == sorted(nodes)
    families = {n: k["family"] for k in BODY["kernels"] for n in k["nodes"]}
    assert all(k["family"] == families[k["nodes"][0]] for k in plain["kernels"])
    boxes = sides_view(plain, BODY, {})["sides"][0]["boxes"]
    assert {(box["time"], box["seconds"]) for box in boxes} == {("", None)}


def test_a_reshape_of_an_input_goes_with_its_reader() -> None:
    """What renames an input of the model has no maker to go with."""
    nodes = [
        {"id": "n0", "op": "reshape", "inputs": ["t0"], "outputs": ["t1"]},
        {"id": "n1", "op": "reshape", "inputs": ["t1"], "outputs": ["t2"]},
        {"id": "n2", "op": "exp", "inputs": ["t2"], "outputs": ["t3"]},
        {"id": "n3", "op": "neg", "inputs": ["t1"], "outputs": ["t4"]},
        {"id": "n4", "op": "reshape", "inputs": ["t4"], "outputs": ["t5"]},
    ]
    kernels = [{"nodes": [node["id"] for node in nodes], "family": "pointwise"}]
    plan = {"graph": {"nodes": nodes}, "kernels": kernels, "prepare": []}
    made = without_fusion(plan)["kernels"]
    assert [kernel["nodes"] for kernel in made] == [["n2", "n0", "n1"], ["n3", "n4"]]
    assert [kernel["inputs"] for kernel in made] == [["t0"], ["t0"]]


def test_what_is_prepared_at_load_is_in_no_kernel() -> None:
    """Work that is done once stands on neither side."""
    plan = {**BODY, "prepare": ["n0"]}
    held = {
        node for kernel in without_fusion(plan)["kernels"] for node in kernel["nodes"]
    }
    assert "n0" not in held


def test_operators_that_a_run_timed_have_their_time() -> None:
    """Measured where it was, else predicted; boxes of a run of kernels add them up."""
    plain = without_fusion(BODY, samples.operator_rows(BODY))
    kinds = {kernel["name"]: kernel["evidence"] for kernel in plain["kernels"]}
    assert kinds["exp"] == "measured"
    assert kinds["rsqrt"] == "analytic"
    boxes = sides_view(plain, BODY, {})["sides"][0]["boxes"]
    expected = sum(2e-5 if k["name"] == "rsqrt" else 25e-6 for k in plain["kernels"])
    assert sum(box["seconds"] for box in boxes) == pytest.approx(expected)
    assert all(box["time"] for box in boxes)


def test_a_side_of_which_an_operator_is_unknown_has_no_times() -> None:
    """A sum that leaves something out would be compared with one that does not."""
    rows = [row for row in samples.operator_rows(BODY) if row["family"] != "library"]
    plain = without_fusion(BODY, rows)
    boxes = sides_view(plain, BODY, {})["sides"][0]["boxes"]
    assert {(box["time"], box["seconds"]) for box in boxes} == {("", None)}


def test_an_operator_whose_run_failed_counts_as_predicted() -> None:
    """A failure is no time."""
    rows = samples.operator_rows(BODY)
    for row in rows:
        row["measured"] = {"seconds": None, "failure": "crash", "contended": False}
    plain = without_fusion(BODY, rows)
    assert not plain["untimed"]
    assert {kernel["evidence"] for kernel in plain["kernels"]} == {"analytic"}
