"""A small model with layers that repeat, and a runner with made-up times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from onnx import TensorProto, helper

from tuner import document
from tuner.model import Model, load
from tuner.plan import Options
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest
from tuner.search.budget import Budget
from tuner.search.session import TuningSession


def small_model(layers: int = 2, rows: int = 32) -> bytes:
    """Equal layers: product, bias, activation, residual, normalisation."""
    nodes, weights = [], []
    x = "x"
    for layer in range(layers):
        names = [f"w{layer}", f"b{layer}", f"s{layer}", f"t{layer}"]
        shapes = [[96, 96], [96], [96], [96]]
        weights += [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
            for n, s in zip(names, shapes, strict=True)
        ]
        n = f"l{layer}"
        nodes += [
            helper.make_node("MatMul", [x, names[0]], [f"{n}m"], name=f"{n}.matmul"),
            helper.make_node("Add", [f"{n}m", names[1]], [f"{n}a"], name=f"{n}.bias"),
            helper.make_node("Tanh", [f"{n}a"], [f"{n}h"], name=f"{n}.tanh"),
            helper.make_node("Add", [f"{n}h", x], [f"{n}r"], name=f"{n}.residual"),
            helper.make_node(
                "LayerNormalization",
                [f"{n}r", names[2], names[3]],
                [f"{n}o"],
                name=f"{n}.norm",
            ),
        ]
        x = f"{n}o"
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 96]), *weights],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [rows, 96])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    model.metadata_props.add(
        key="weights", value='["' + '","'.join(w.name for w in weights) + '"]'
    )
    return model.SerializeToString()


@pytest.fixture(scope="session")
def model() -> Model:
    """The small model, loaded."""
    return load(small_model())


def made_up_seconds(request: MeasureRequest) -> float:
    """A time that depends on the kernel's text alone: 10 to 100 microseconds."""
    text = request.source.text if request.source else repr(request.graph.nodes)
    digest = hashlib.sha256(text.encode()).digest()
    return 1e-5 + digest[0] / 255 * 9e-5


@pytest.fixture
def runner() -> NullRunner:
    """Answers with made-up times."""
    return NullRunner(made_up_seconds)


@pytest.fixture
def runner_with() -> Callable[[Callable[[MeasureRequest], float]], NullRunner]:
    """Answers with the times of a function."""
    return NullRunner


Log = list[tuple[dict[str, Any], list[dict[str, Any]]]]
LARGE = Budget(seconds=1e6, trials=80, trials_per_kernel=6)


def no_clock() -> float:
    """Time stands still, so that results do not depend on this machine."""
    return 0.0


def session_of(
    model: Model,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    budget: Budget = LARGE,
    *,
    seed: int = 7,
    incumbent: Mapping[str, Any] | None = None,
) -> TuningSession:
    """A session on the processor's model."""
    return TuningSession(
        model,
        "cpu",
        Options(),
        budget,
        known,
        seed,
        incumbent=incumbent,
        clock=no_clock,
    )


def through_json(value: Any) -> Any:
    """As a job's memory holds it."""
    return json.loads(json.dumps(value))


def run_to_end(tuning: TuningSession, device: Any) -> Log:
    """Tune to the end; returns batches and results."""
    log: Log = []
    while (batch := tuning.propose()) is not None:
        results = through_json(tuning.measure(batch, device))
        tuning.observe(batch, results)
        log.append((through_json(batch), results))
    return log


def replay(tuning: TuningSession, log: Log) -> None:
    """Take a session through what was proposed and observed before."""
    for batch, results in log:
        assert through_json(tuning.propose()) == batch
        tuning.observe(batch, results)


def body_of(tuning: TuningSession) -> dict[str, Any]:
    """The body of the session's plan, as it is stored."""
    key = tuning.key
    made = document.body(
        tuning.plan(), target=dict(key.target), toolchain=dict(key.toolchain)
    )
    stored: dict[str, Any] = json.loads(document.encode(made))
    return stored


def digest_of(tuning: TuningSession) -> str:
    """Digest of the session's plan."""
    return document.digest(document.encode(body_of(tuning)))


def results_by_key(log: Log) -> dict[str, dict[str, Any]]:
    """What the database would know after a run."""
    return {
        item["key"]: result
        for batch, results in log
        for item, result in zip(batch["items"], results, strict=True)
        if item["kind"] == "kernel"
    }


def kernel_runs(log: Log) -> list[tuple[str, str]]:
    """Kernel and schedule of every run."""
    return [
        (item["kernel"], json.dumps(item["schedule"]))
        for batch, _ in log
        for item in batch["items"]
        if item["kind"] == "kernel"
    ]
