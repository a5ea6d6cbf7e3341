"""Of a node that was taken apart, explanations look at the part that tells most."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from service.cli.explaining import explanation
from service.jobs.explaining import explain, pair, parts
from service.jobs.planning import Planner, Question
from tests.tuner.frontend.models import model, node, value
from tuner import document
from tuner.model import Model, closest, load
from tuner.pipeline import make_plan
from tuner.plan import Options, Pin


@pytest.fixture(scope="module")
def norms() -> Model:
    """A sum, a norm of its rows, and a product behind it."""
    nodes = [
        node("Add", "x y", "a"),
        node("LayerNormalization", "a g", "n"),
        node("Mul", "n y", "o"),
    ]
    given = [value("x", (64, 256)), value("y", (64, 256)), value("g", (256,))]
    return load(model(nodes, given, "o").SerializeToString())


def _parts(read: Model, name: str) -> list[str]:
    return [n.name for n in read.graph.nodes if name in read.names[n.name]]


def test_a_norm_in_two_kernels_is_fused_with_both_neighbours(norms: Model) -> None:
    """Sum and product are kept apart; the norm has a part with each of them."""
    ends = (_parts(norms, "Add:a")[0], _parts(norms, "Mul:o")[0])
    options = Options(pins=(Pin(fuse=False, nodes=ends),))
    plan = make_plan(norms, "sm_90", options)
    body: dict[str, Any] = document.body(plan, target={"id": "sm_90"}, toolchain={})
    norm = _parts(norms, "LayerNormalization:n")
    held = [set(kernel["nodes"]) for kernel in body["kernels"]]
    for end in ends:
        found = pair(body, [end], norm)
        together = any(end in nodes and nodes & set(norm) for nodes in held)
        assert explain(body, *found)["fused"] is together
    assert explain(body, *pair(body, [ends[0]], [ends[1]]))["fused"] is False


def test_apart_the_parts_between_which_something_crosses_are_told(
    norms: Model,
) -> None:
    """Neither part shares a kernel: those are taken of which one reads the other."""
    norm, end = _parts(norms, "LayerNormalization:n"), _parts(norms, "Mul:o")[0]
    options = Options(pins=(Pin(fuse=False, nodes=(norm[0], end)),))
    plan = make_plan(norms, "sm_90", options)
    body: dict[str, Any] = document.body(plan, target={"id": "sm_90"}, toolchain={})
    told = explain(body, *pair(body, norm, [end]))
    assert told["fused"] is False
    assert [tensor["bytes"] for tensor in told["tensors"]] == [64 * 256 * 4]


def test_the_closest_parts_are_taken() -> None:
    """Of two with the first tie, else the second, else any that are not the same."""
    parts = (("a", "b"), ("b", "c"))
    assert closest(*parts) == ("a", "b")
    assert closest(*parts, lambda a, b: (a, b) == ("b", "c")) == ("b", "c")
    never, always = (lambda *_: False), (lambda *_: True)
    assert closest(*parts, never, lambda a, _: a == "b") == ("b", "c")
    assert closest(*parts, lambda a, _: a == "b", always) == ("b", "c")
    assert closest(("a",), ("a",), always) == ("a", "a")


class Walked(list[dict[str, Any]]):
    """A list that counts how often somebody walks through it."""

    walks = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The entries, once more."""
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("tied", [True, False])
def test_a_pair_of_many_parts_takes_few_walks_through_a_plan(tied: bool) -> None:
    """As few as of two parts, whether two parts are tied, by way of a view, or none."""
    count = 20
    nodes = [
        {"id": f"{end}{n}", "op": "relu", "inputs": ["x"], "outputs": [f"{end}{n}o"]}
        for end in "ab"
        for n in range(count)
    ]
    view = {"id": "v", "op": "reshape", "inputs": ["a7o"], "outputs": ["vo"]}
    if tied:
        nodes[-1]["inputs"] = ["vo"]
    held = Walked({"name": f"k_{one['id']}", "nodes": [one["id"]]} for one in nodes)
    walked = Walked([*nodes, view])
    body = {"graph": {"nodes": walked}, "kernels": held}
    ends = [[f"{end}{n}" for n in range(count)] for end in "ab"]
    assert pair(body, *ends) == (("a7", "b19") if tied else ("a0", "b0"))
    assert walked.walks + held.walks <= 5


@pytest.mark.parametrize("fuse", [True, False])
def test_the_command_line_and_the_plan_speak_of_the_same_parts(fuse: bool) -> None:
    """Whether the norm is held together with its reader, or kept from it."""
    nodes = [
        node("Add", "x y", "a"),
        node("LayerNormalization", "a g", "n"),
        node("Flatten", "n", "f", axis=1),
        node("Mul", "f y", "o"),
    ]
    given = [value("x", (64, 256)), value("y", (64, 256)), value("g", (256,))]
    data = model(nodes, given, "o").SerializeToString()
    pins = [{"fuse": fuse, "nodes": ["LayerNormalization:n", "Mul:o"]}]
    question = Question(data=data, form="onnx", target="sm_90", options={"pins": pins})
    planner = Planner(plan_seconds=5.0)
    prepared = planner.prepare(question)
    told = explanation(prepared, "LayerNormalization:n", "Mul:o")
    body = json.loads(planner.analytic(prepared).body)
    names = prepared.model.names
    ends = pair(body, *(parts(body, names, name) for name in (told["a"], told["b"])))
    assert explain(body, *ends)["fused"] is told["fused"] is fuse
    assert told["other_objective_seconds"] is None  # the pin allows nothing else
    assert told["reason"]
