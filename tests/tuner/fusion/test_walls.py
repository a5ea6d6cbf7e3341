"""How many tensors a kernel may take, also where nobody can take it apart."""

from __future__ import annotations

from dataclasses import replace

import onnx
import pytest
from onnx import helper

from cost_model.catalog import find
from tests.tuner.frontend.models import model, value
from tests.tuner.fusion.random_graphs import Builder
from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.legality import (
    POINTER_BYTES,
    LibraryKind,
    Limits,
    Profile,
    Refusal,
    Rules,
)
from tuner.fusion.view import View
from tuner.ir.graph import Graph
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Family, Options

TARGETS = ("sm_90", "cpu")


def wide_sum(count: int) -> onnx.ModelProto:
    """One operator with many operands, which becomes a line of additions."""
    names = [f"x{k}" for k in range(count)]
    total = helper.make_node("Sum", names, ["y"], name="total")
    return model([total], [value(name, (3, 4)) for name in names], "y")


def wide(op: str, count: int) -> Graph:
    """One node with many operands."""
    b = Builder()
    names = [b.given(f"x{k}", (2, 4)) for k in range(count)]
    attributes = {"axis": 0} if op == "concat" else {}
    return b.build([b.node(op, *names, **attributes)])


@pytest.mark.parametrize("target", TARGETS)
def test_an_operator_that_no_launch_can_take_is_named(target: str) -> None:
    """Under the reference rules it stays whole, so there is no plan."""
    most = find(target).max_argument_bytes // POINTER_BYTES
    found = load(wide_sum(most).SerializeToString())
    with pytest.raises(ConstraintsUnsatisfiable) as caught:
        make_plan(found, target, Options(legality="reference"))
    assert caught.value.where == "total"
    assert caught.value.problem == f"{most + 1} tensors; a kernel may take {most}"
    assert "full legality" in caught.value.hint


@pytest.mark.parametrize("profile", ["reference", "full"])
def test_one_node_may_take_what_a_launch_takes(profile: Profile) -> None:
    """Beyond the wall for fused kernels: somebody has to run it, if a device can."""
    graph = wide("concat", 20)
    view = View(graph)
    limits = Limits(max_arguments=10, max_launch_arguments=21)
    judge = Rules(view, profile, limits).judge
    assert judge(view.everything, view.delivered) is Family.POINTWISE
    tight = replace(limits, max_launch_arguments=20)
    found = Rules(view, profile, tight).judge(view.everything, view.delivered)
    assert found == Refusal(reason="21 tensors; a kernel may take 20")


@pytest.mark.parametrize("library", ["session", "epilogue"])
def test_what_a_library_runs_alone_takes_any_number(library: LibraryKind) -> None:
    """A call of one operator is no launch of ours, with whatever it takes."""
    graph = wide("opaque", 20)
    view = View(graph)
    limits = replace(Limits.of(find("cpu")), max_launch_arguments=4, library=library)
    assert Rules(view, "full", limits).judge(1, view.delivered) is Family.OPAQUE
