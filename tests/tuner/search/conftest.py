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
from tuner.runtime.requests import Cache, MeasureRequest
from tuner.search.budget import Budget
from tuner.search.session import TuningSession


def small_model(layers: int = 2, rows: int = 32) -> bytes:
    """Equal layers: product, bias, activation, division by the row's maximum.

    All in one piece of some sixty candidates: every solve takes a few hundredths of a
    second, and there are dozens of them in a tuning run.
    """
    nodes, weights = [], []
    x = "x"
    for layer in range(layers):
        n = f"l{layer}"
        weights += [_tensor(f"w{layer}", 96, 96), _tensor(f"b{layer}", 96)]
        nodes += [
            helper.make_node("MatMul", [x, f"w{layer}"], [f"{n}m"], name=f"{n}.matmul"),
            helper.make_node(
                "Add", [f"{n}m", f"b{layer}"], [f"{n}a"], name=f"{n}.bias"
            ),
            helper.make_node("Tanh", [f"{n}a"], [f"{n}h"], name=f"{n}.tanh"),
            helper.make_node(
                "ReduceMax", [f"{n}h"], [f"{n}q"], name=f"{n}.max", axes=[-1]
            ),
            helper.make_node("Div", [f"{n}h", f"{n}q"], [f"{n}o"], name=f"{n}.norm"),
        ]
        x = f"{n}o"
    graph = helper.make_graph(
        nodes,
        "small",
        [_tensor("x", rows, 96), *weights],
        [_tensor(x, rows, 96)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    model.metadata_props.add(
        key="weights", value=json.dumps([each.name for each in weights])
    )
    return model.SerializeToString()


def _tensor(name: str, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.fixture(scope="session")
def model() -> Model:
    """The small model, loaded."""
    return load(small_model())


def made_up_seconds(request: MeasureRequest) -> float:
    """A time that depends on the kernel's text alone: 10 to 100 microseconds.

    A library call takes twice as much for each of its operators, so that generated
    kernels, which have schedules to search, are worth while. It takes as much within a
    plan, where its tensors have other names.
    """
    called = [(node.op, dict(node.attributes)) for node in request.graph.nodes]
    text = request.source.text if request.source else repr(called)
    digest = hashlib.sha256(text.encode()).digest()
    seconds = 1e-5 + digest[0] / 255 * 9e-5
    return seconds if request.source else 2 * seconds * len(request.graph.nodes)


@pytest.fixture
def runner() -> NullRunner:
    """Answers with made-up times."""
    return NullRunner(made_up_seconds)


@pytest.fixture
def runner_with() -> Callable[[Callable[[MeasureRequest], float]], NullRunner]:
    """Answers with the times of a function."""
    return NullRunner


Log = list[tuple[dict[str, Any], list[dict[str, Any]]]]
LARGE = Budget(seconds=1e6, trials=120, trials_per_kernel=6)
PATIENT = Budget(seconds=1e6, trials=400, trials_per_kernel=2)
"""Enough to run every kernel again and again."""


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
    cache: Cache = "warm",
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
        cache=cache,
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


@pytest.fixture(scope="session")
def finished(model: Model) -> tuple[TuningSession, Log]:
    """A run that is over, and all that it proposed and observed; for reading only."""
    tuning = session_of(model)
    return tuning, run_to_end(tuning, NullRunner(made_up_seconds))


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
