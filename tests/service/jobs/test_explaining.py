"""Of a node that was taken apart, explanations look at the part that tells most."""

from __future__ import annotations

from typing import Any

import pytest

from service.jobs.explaining import explain, pair
from tests.tuner.frontend.models import model, node, value
from tuner import document
from tuner.model import Model, load
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
