"""Commands about this machine and the database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.service.cli.conftest import Fuseplan


def test_devices_lists_catalogue_and_machine(fuseplan: Fuseplan) -> None:
    """Targets with their aliases, and what can be measured on here."""
    listed = fuseplan("devices", "--json").json
    targets = {device["id"]: device for device in listed["devices"]}
    assert {"ideal", "cpu", "h100-sxm", "b200"} <= set(targets)
    assert "sm_90" in targets["h100-sxm"]["aliases"]
    assert {one["device"] for one in listed["local"]} == {"cpu", "cuda:0"}
    assert fuseplan("devices").code == 0


def test_doctor_names_every_part(fuseplan: Fuseplan) -> None:
    """One screen: loader, devices, compilers, database, disk."""
    checks = {
        check["name"]: check for check in fuseplan("doctor", "--json").json["checks"]
    }
    assert {"OpenCL loader", "OpenCL device", "NVRTC", "database", "disk"} <= set(
        checks
    )
    assert all(check["cure"] for check in checks.values() if not check["ok"])


def test_doctor_finds_a_corrupt_database(fuseplan: Fuseplan, tmp_path: Path) -> None:
    """The cure is told, and the exit code is the database's."""
    assert fuseplan("db", "upgrade").code == 0
    file = tmp_path / "data" / "fuseplan" / "fuseplan.db"
    for part in file.parent.glob("fuseplan.db*"):
        part.unlink()
    file.write_bytes(b"not a database" * 100)
    ended = fuseplan("doctor", "--json")
    assert ended.code == 7
    broken = next(c for c in ended.json["checks"] if c["name"] == "database")
    assert "backup" in broken["cure"]
    assert fuseplan("db", "upgrade").code == 7


def test_upgrade_makes_the_database_once(fuseplan: Fuseplan, tmp_path: Path) -> None:
    """The first call makes it, the second finds nothing to do."""
    first = fuseplan("db", "upgrade", "--json").json
    assert (tmp_path / "data" / "fuseplan" / "fuseplan.db").exists()
    assert fuseplan("db", "upgrade", "--json").json == first


def test_serving_elsewhere_is_refused(fuseplan: Fuseplan) -> None:
    """An address that others can reach needs more than a flag."""
    ended = fuseplan("serve", "--host", "0.0.0.0", "--port", 0)
    assert ended.code == 2
    assert "127.0.0.1" in ended.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_BUDGET_SECONDS", "inf"),
        ("DEAD_AFTER_SECONDS", "nan"),
        ("MAX_BUDGET_TRIALS", str(2**40)),
        ("PLANNER_PROCESSES", "many"),
    ],
)
def test_a_setting_without_end_is_refused(
    fuseplan: Fuseplan, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """It would be found out in the middle of a request; it is told at the start."""
    monkeypatch.setenv(f"FUSEPLAN_{name}", value)
    ended = fuseplan("serve", "--port", 0, "--no-worker")
    assert ended.code == 2
    assert name.lower() in ended.err
    assert ended.err.count("\n") == 1


def test_a_database_of_a_newer_version_is_left_alone(
    fuseplan: Fuseplan, tmp_path: Path
) -> None:
    """Every command says so, none proposes an upgrade, and no address is told."""
    assert fuseplan("db", "upgrade").code == 0
    file = tmp_path / "data" / "fuseplan" / "fuseplan.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    for words in (
        ("serve", "--port", 0, "--no-worker"),
        ("lookup", "0" * 64),
        ("db", "upgrade"),
    ):
        ended = fuseplan(*words)
        assert ended.code == 7, words
        assert "made by a newer version" in ended.err, words
        assert "db upgrade" not in ended.err, words
        assert "http://" not in ended.err + ended.out, words
