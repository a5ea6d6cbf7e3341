"""Models that cannot be run, or not be verified, are told so."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.conftest import GLANCE_SECONDS
from tests.tuner.frontend.models import model, node, value
from tuner import execution, pipeline
from tuner.errors import KernelFailed, ModelTooLarge, TunerError, UnsupportedModel
from tuner.execution import run_plan
from tuner.plan import Options
from tuner.runtime import server
from tuner.runtime.bench import Bench
from tuner.runtime.devices import open_backend
from tuner.runtime.failures import failure_of
from tuner.runtime.library import ReferenceModel, SessionOptions
from tuner.runtime.runner import Runner


def _run(made: onnx.ModelProto, *, verify: bool = True) -> execution.RunReport:
    read = pipeline.load(made.SerializeToString(), "onnx")
    device = pipeline.resolve_target("cpu")
    plan = pipeline.make_plan(read, device, Options(), time_limit_seconds=1.0)
    return run_plan(
        read, plan, device="cpu", verify=verify, sample_seconds=GLANCE_SECONDS
    )


def _small(op: str, element: int = TensorProto.FLOAT) -> onnx.ModelProto:
    nodes = [node(op, "x", "r", name="made"), node("Sub", "r x", "y")]
    return model(nodes, [value("x", [4], element)], "y")


def _foreign() -> onnx.ModelProto:
    made = model([], [value("x", [4])], [value("y", [4])])
    made.opset_import.append(helper.make_opsetid("mine", 1))
    made.graph.node.append(helper.make_node("Odd", ["x"], ["y"], "a", domain="mine"))
    return made


@pytest.mark.parametrize("verify", [True, False])
def test_an_operator_that_the_library_lacks_is_named(verify: bool) -> None:
    """The model is at fault, not the plan; no traceback and no code is shown."""
    with pytest.raises(UnsupportedModel, match="mine:Odd") as error:
        _run(_foreign(), verify=verify)
    assert error.value.hint
    for word in ("Traceback", "ONNXRuntimeError", "\n"):
        assert word not in str(error.value)


def test_an_element_type_that_the_library_lacks_is_told() -> None:
    """The plan runs alone; what it is compared with does not."""
    made = _small("Sin", TensorProto.BFLOAT16)
    with pytest.raises(UnsupportedModel, match=r"Sub|Sin"):
        _run(made)
    assert _run(made, verify=False).seconds > 0


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike", "Bernoulli"])
def test_random_results_are_not_verified(op: str) -> None:
    """The message names the node and the operator; a run without comparing works."""
    with pytest.raises(UnsupportedModel, match=r"made: Random\w+ gives other numbers"):
        _run(_small(op))
    assert _run(_small(op), verify=False).seconds > 0


def test_random_results_inside_a_branch_are_not_verified() -> None:
    """Operators of subgraphs count."""
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, "x", name)], name, [], [value(name, [4])]
        )
        for name, op in (("then", "RandomNormalLike"), ("else", "Neg"))
    }
    made = model(
        [node("If", "c", "y", name="choice", **branches)],
        [value("x", [4]), value("c", [], TensorProto.BOOL)],
        [value("y", [4])],
    )
    with pytest.raises(UnsupportedModel, match="choice: RandomNormalLike"):
        _run(made)


@pytest.mark.parametrize("verify", [True, False])
def test_a_model_larger_than_the_machine_is_not_started(verify: bool) -> None:
    """The message names the largest tensor and the memory that is there."""
    made = model([node("Exp", "x", "y")], [value("x", [1 << 20, 1 << 20])], "y")
    with pytest.raises(ModelTooLarge, match=r"x: a run needs \d+ bytes"):
        _run(made, verify=verify)


def test_memory_that_runs_out_on_the_way_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The library's own intermediate values may be what does not fit."""
    monkeypatch.setattr(
        Runner,
        "measure_reference",
        lambda *_: failure_of(KernelFailed("library", "Failed to allocate memory")),
    )
    with pytest.raises(ModelTooLarge, match="Failed to allocate memory"):
        _run(_foreign(), verify=False)


def test_a_fault_of_ours_in_the_child_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer says what happened; where it happened goes to the child's log."""

    def fail(*_: object) -> None:
        msg = "odd\nin two lines"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(server, "_answer", fail)
    bench = Bench(open_backend("null"), SessionOptions(threads=1))
    found = server.answer(server.Desk(bench), None)
    assert found.message == "ZeroDivisionError: odd"
    assert "Traceback" in capsys.readouterr().err


def test_an_error_while_the_library_runs_is_a_failure_of_it() -> None:
    """Its errors while it runs are as foreign as those while it loads."""
    made = model(
        [node("Gather", "x i", "y", name="a")],
        [value("x", [4]), value("i", [1], TensorProto.INT64)],
        "y",
    )
    loaded = ReferenceModel(made.SerializeToString())
    feeds = {"x": np.zeros(4, np.float32), "i": np.array([9])}
    with pytest.raises(KernelFailed) as error:
        loaded.run(feeds)
    with pytest.raises(TunerError):
        loaded.launch(feeds)()
    assert "ONNXRuntimeError" not in str(error.value)
