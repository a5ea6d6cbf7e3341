"""Tuning without a service: what it would take, what it takes, what is kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from service.cli import inputs, kernel_cache
from service.cli.tuning import said
from service.dashboard.formats import NO_FIGURE
from service.store import measurements
from tests.service.cli.conftest import Ended, Fuseplan, softmax_graph

ATTEMPTS = 8
"""A run whose whole plans other processes disturbed stores none; tune again."""


def _tune(fuseplan: Fuseplan, model: Path, *more: object) -> Ended:
    words = ("tune", model, "--budget-seconds", 4, "--budget-trials", 3, "--json")
    return fuseplan(*words, *more)


def _as_if_undisturbed() -> None:
    """What others disturbed counts for nothing later; say that nothing was."""
    with inputs.own_database() as database:
        with database.read() as session:
            until = measurements.last_id(session)
            found = measurements.known(session, "cpu", until=until)
        quiet = [
            kernel_cache.stored(key, "cpu", {**result, "contended": False})
            for key, result in found.items()
        ]
        with database.write() as session:
            measurements.add(session, quiet, now=datetime.now(UTC))


def test_a_dry_run_says_what_would_be_measured(
    fuseplan: Fuseplan, model: Path, tmp_path: Path
) -> None:
    """Kernels, schedules and time with its basis; nothing is measured or written."""
    ended = _tune(fuseplan, model, "--dry-run")
    assert ended.code == 0
    told = ended.json
    assert told["distinct_kernels"] == len(told["kernels"]) > 0
    assert told["known_kernels"] == 0
    assert all(row["schedules"] > 1 and row["operators"] for row in told["kernels"])
    assert 0 < told["trials"] <= 3
    assert 0 < told["seconds"] <= 4
    assert "no earlier ones" in told["basis"]
    assert not list((tmp_path / "data").rglob("*.db*"))
    assert "kernel runs" in fuseplan("tune", model, "--dry-run").out


def test_what_was_measured_is_kept_and_not_measured_again(
    fuseplan: Fuseplan, model: Path, tmp_path: Path
) -> None:
    """Kernels are known to the next run, to a dry run, and to a model that has them."""
    first = _tune(fuseplan, model).json["tuning"]
    assert first["trials"] > 0
    _as_if_undisturbed()
    dry = _tune(fuseplan, model, "--dry-run").json
    assert dry["known_kernels"] > 0
    other = softmax_graph()
    renamed = json.loads(json.dumps(other).replace("scores", "queries"))
    path = tmp_path / "renamed.json"
    path.write_text(json.dumps(renamed))
    assert _tune(fuseplan, path, "--dry-run").json["known_kernels"] > 0
    cold = _tune(fuseplan, model, "--dry-run", "--cache", "cold").json
    assert cold["known_kernels"] == 0
    alone = _tune(fuseplan, model, "--dry-run", "--no-store").json
    assert alone["known_kernels"] == 0


def test_a_tuned_plan_is_found_by_its_key(fuseplan: Fuseplan, model: Path) -> None:
    """What was measured as a whole is in the database, and nothing was before."""
    assert fuseplan("lookup", model, "--require", "measured").code != 0
    for _ in range(ATTEMPTS):
        told = _tune(fuseplan, model).json["tuning"]
        if told["stored"]:
            break
    assert told["stored"], told["partial_reason"]
    found = fuseplan("lookup", model, "--require", "measured", "--json")
    assert found.code == 0
    assert found.json["evidence"] == "measured"


def test_caches_are_cold_or_warm(fuseplan: Fuseplan, model: Path) -> None:
    """A cold run measures and verifies as a warm one; another word is refused."""
    ended = _tune(fuseplan, model, "--cache", "cold", "--no-store")
    assert ended.code == 0
    assert ended.json["tuning"]["trials"] > 0
    assert not ended.json["tuning"]["stored"]
    assert not ended.json["tuning"]["failures"]
    assert ended.json["measured"]["plan"]["seconds"] > 0
    refused = fuseplan("tune", model, "--cache", "tepid")
    assert refused.code == 2
    assert "tepid" in refused.err


def test_partitions_stand_side_by_side(fuseplan: Fuseplan, model: Path) -> None:
    """JSON has each plan that ran whole; the table too; nonsense is refused."""
    told = _tune(fuseplan, model, "--partitions", 2, "--no-store").json["tuning"]
    rows = told["partitions"]
    assert rows[0]["labels"][0] == "plan"
    assert sum(row["kept"] for row in rows) == 1
    assert all(row["whole"]["seconds"] > 0 and row["kernels"] for row in rows)
    words = ("tune", model, "--budget-seconds", 4, "--budget-trials", 3, "--no-store")
    shown = fuseplan(*words).out
    assert "run whole" in shown
    assert "without fusion" in shown
    for wrong in (0, 17, "two"):
        refused = fuseplan("tune", model, "--partitions", wrong)
        assert refused.code == 2
        assert "--partitions" in refused.err


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (
            {"trials": 3, "best_seconds": 2e-3, "gap": 0.0, "measured_gap": 0.25,
             "remaining_seconds": 95.0},
            "3 trials · best 2.00 ms · measured gap 25.0 % · 1 min 35 s left",
        ),
        (
            {"trials": 0, "best_seconds": 1e-5, "gap": 0.015, "measured_gap": None,
             "remaining_seconds": 0.0},
            "0 trials · best 10.0 µs · gap 1.50 % · 0 s left",
        ),
        ({}, f"0 trials · best {NO_FIGURE} · gap {NO_FIGURE} · {NO_FIGURE} left"),
    ],
)  # fmt: skip
def test_the_bar_says_how_far_it_is(progress: dict[str, float], text: str) -> None:
    """Trials, best so far, the gap that is known, and the time left."""
    assert said(progress) == text
