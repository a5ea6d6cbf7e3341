"""What is said of the plan with the other choice is what the two plans hold."""

from __future__ import annotations

import re
from typing import Any

import pytest

from service.jobs.opposite import opposite
from tests.tuner.frontend.models import model, node, value
from tuner import document
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Options, Pin

Body = dict[str, Any]


def _body(data: bytes, target: str, *pins: Pin) -> Body:
    plan = make_plan(load(data), target, Options(pins=pins))
    return document.body(plan, target={}, toolchain={})


def _broadcast() -> bytes:
    """A row that two matrices are scaled by: cheap to compute in each of them."""
    nodes = [node("Exp", "r", "e"), node("Mul", "x e", "y"), node("Add", "z e", "o")]
    given = [value("r", (1, 512)), value("x", (512, 512)), value("z", (64, 512))]
    return model(nodes, given, "y o").SerializeToString()


def _numbers(line: str, word: str) -> int:
    """The number in front of a word."""
    found = re.search(rf"([+-]\d+) {word}", line)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("pair", [("exp", "mul"), ("exp", "add"), ("mul", "add")])
@pytest.mark.parametrize("target", ["sm_90", "cpu"])
def test_the_line_holds_the_differences(target: str, pair: tuple[str, str]) -> None:
    """Bytes, launches, work done again and memory: all of it, and nothing else."""
    data = _broadcast()
    ids = {n.op: n.name for n in load(data).graph.nodes}
    nodes = (ids[pair[0]], ids[pair[1]])
    ours = _body(data, target)
    together = any(set(nodes) <= set(k["nodes"]) for k in ours["kernels"])
    other = _body(data, target, Pin(fuse=not together, nodes=nodes))
    line = opposite(ours, other, nodes)
    again = [len([n for k in b["kernels"] for n in k["nodes"]]) for b in (ours, other)]
    told = {
        "bytes, launches": other["traffic_bytes"] - ours["traffic_bytes"],
        "kernels": len(other["kernels"]) - len(ours["kernels"]),
        "nodes again": again[1] - again[0],
        "bytes at its peak": other["peak_memory_bytes"] - ours["peak_memory_bytes"],
    }
    assert {word: _numbers(line, word) for word in told} == told
    for body, word in ((other, "there"), (ours, "here")):
        held = [k for k in body["kernels"] if not set(nodes).isdisjoint(k["nodes"])]
        slow = max(held, key=lambda k: k["estimate"]["seconds"])
        about = line.split(f" {word} ")[1]
        assert about.startswith(f"({slow['registers']} registers, ")
        assert f"is bound by {slow['estimate']['bound_by']}" in about


def test_a_library_call_has_no_registers_of_ours() -> None:
    """Its family is named in their place, and a plan differs in nothing from itself."""
    nodes = [node("MatMul", "x w", "h"), node("Relu", "h", "y")]
    given = [value("x", (2048, 2048)), value("w", (2048, 2048))]
    ours = _body(model(nodes, given, "y").SerializeToString(), "sm_90")
    (kernel,) = ours["kernels"]
    assert kernel["family"] == "library"
    said = f"(library) is bound by {kernel['estimate']['bound_by']}"
    assert opposite(ours, ours, kernel["nodes"]) == (
        "the other choice moves +0 bytes, launches +0 kernels;"
        f" the slowest kernel of the two there {said}, here {said}"
    )
