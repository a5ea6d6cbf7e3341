"""Kernels that a model shares with an earlier one cost no run: with a real database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from onnx import parser

from service.cli.kernel_cache import keep_batch
from service.store import Database, connect, measurements
from tests.service.tables import place
from tests.tuner.search.conftest import (
    Log,
    kernel_runs,
    made_up_seconds,
    session_of,
    through_json,
)
from tuner import keys
from tuner.model import Model, load
from tuner.runtime.null import NullRunner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

DENSE = (
    "float[32,96] {n}x, float[96,96] {n}w, float[96] {n}b",
    ["{n}m = MatMul({n}x, {n}w)", "{n}y = Add({n}m, {n}b)"],
    "float[32,96] {n}y",
)
ROWS = (
    "float[64,128] {n}x",
    ["{n}y = Softmax<axis=-1>({n}x)"],
    "float[64,128] {n}y",
)
WINDOWS = (
    "float[1,8,16,16] {n}x, float[8,8,3,3] {n}w",
    ["{n}c = Conv<pads=[1,1,1,1]>({n}x, {n}w)", "{n}y = Relu({n}c)"],
    "float[1,8,16,16] {n}y",
)
Layer = tuple[str, list[str], str]
Layers = Sequence[tuple[str, Layer]]
AMPLE = Budget(seconds=1e6, trials=200, trials_per_kernel=1)


def _model(layers: Layers, *, turned: bool = False) -> Model:
    """Layers side by side, each with names of its own; turned: the last comes first."""
    given = [layer[0].format(n=name) for name, layer in layers]
    made = [layer[2].format(n=name) for name, layer in layers]
    steps = [[step.format(n=name) for step in layer[1]] for name, layer in layers]
    if turned:
        steps.reverse()
    most = max(map(len, steps))
    # Step by step through all layers, or one layer after the other.
    lines = (
        [own[n] for n in range(most) for own in steps if n < len(own)]
        if turned
        else [line for own in steps for line in own]
    )
    text = f"""<ir_version: 10, opset_import: ["":21]>
    g ({", ".join(given)}) => ({", ".join(made)}) {{ {"  ".join(lines)} }}"""
    model = parser.parse_model(text)
    names = (i.name for i in model.graph.input)
    weights = [name for name in names if name[-1] in "wb"]
    model.metadata_props.add(key="weights", value=json.dumps(weights))
    return load(model.SerializeToString())


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database with all tables."""
    path = tmp_path / "fuseplan.db"
    place(path)
    opened = connect(f"sqlite:///{path}")
    yield opened
    opened.close()


def _known(database: Database) -> Any:
    with database.read() as session:
        until = measurements.last_id(session)
        return measurements.known(session, "cpu", until=until)


def _tune(database: Database, model: Model) -> tuple[TuningSession, Log]:
    """Tune with what the database knows, and keep what is measured."""
    tuning = session_of(model, _known(database), AMPLE)
    device, log = NullRunner(made_up_seconds), []
    while (batch := tuning.propose()) is not None:
        results = through_json(tuning.measure(batch, device))
        events = tuning.observe(batch, results)
        keep_batch(database, "cpu", through_json(batch), results, events)
        log.append((through_json(batch), results))
    return tuning, log


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([("a", DENSE), ("b", DENSE)], [("other", DENSE), ("one", DENSE)]),
        ([("a", ROWS)], [("b", ROWS)]),
        ([("a", WINDOWS)], [("b", WINDOWS)]),
    ],
    ids=["dense", "rows", "conv"],
)
def test_the_same_layers_under_other_names_cost_no_run(
    database: Database, before: Layers, after: Layers
) -> None:
    """Renamed, and in another order: everything is known, and the plan is as fast."""
    first, log = _tune(database, _model(before))
    assert len(kernel_runs(log)) > 2
    assert first.served["runs"] == 0
    second, again = _tune(database, _model(after, turned=True))
    assert not kernel_runs(again)
    assert second.served["runs"] == len(kernel_runs(log))
    checks = [
        result["failure"]
        for batch, results in again
        for item, result in zip(batch["items"], results, strict=True)
        if item["kind"] == "verify"
    ]
    assert checks
    assert not any(checks)
    seconds = [t.progress()["best_seconds"] for t in (first, second)]
    assert seconds[0] == pytest.approx(seconds[1])


def test_another_batch_of_layers_runs_what_is_new_alone(database: Database) -> None:
    """More of the same layers beside others: no kernel that is known runs again."""
    _, log = _tune(database, _model([("a", DENSE)]))
    before = set(kernel_runs(log))
    wider = _model([("c", WINDOWS), ("d", DENSE)])
    tuning, again = _tune(database, wider)
    runs = set(kernel_runs(again))
    assert runs
    assert not before & runs
    known = {name for name, _ in before}
    assert set(tuning._run.served) == known & set(tuning._run.kernels)
    assert tuning.served["kernels"] > 2


def test_what_was_asked_for_early_is_served_too(database: Database) -> None:
    """Kernels that a forecast has looked at are known once the device is."""
    model = _model([("a", DENSE)])
    _, log = _tune(database, model)
    assert kernel_runs(log)
    tuning = session_of(model, _known(database), AMPLE)
    tuning.forecast()
    device = NullRunner(made_up_seconds)
    while (batch := tuning.propose()) is not None:
        assert all(item["kind"] != "kernel" for item in batch["items"])
        tuning.observe(batch, through_json(tuning.measure(batch, device)))


def test_what_was_measured_outlives_a_change_of_prices(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prediction decides no time: with another revision of prices nothing runs."""
    model = _model([("a", DENSE)])
    first, _ = _tune(database, model)
    monkeypatch.setattr(keys, "PRICE_REVISION", keys.PRICE_REVISION + 1)
    second, log = _tune(database, model)
    assert second.key.key != first.key.key
    assert not kernel_runs(log)
    monkeypatch.setattr(keys, "CODEGEN_REVISION", keys.CODEGEN_REVISION + 1)
    assert kernel_runs(_tune(database, model)[1])


def test_rows_of_a_database_have_their_times(database: Database) -> None:
    """What is spared is what the runs took when they were measured."""
    model = _model([("a", DENSE)])
    _, log = _tune(database, model)
    count = len(kernel_runs(log))
    now = datetime.now(UTC)
    rows = [
        measurements.StoredMeasurement.of(
            {**result, "cost_seconds": 0.25},
            subject=key,
            device="cpu",
            kernel=result["kernel"],
            schedule=result["schedule"],
        )
        for key, result in _known(database).items()
    ]
    with database.write() as session:
        measurements.add(session, rows, now=now)
    again, _ = _tune(database, model)
    assert again.served["seconds"] == pytest.approx(0.25 * count)
