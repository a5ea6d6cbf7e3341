"""Calibrated targets are named apart from the catalogue."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from cost_model.catalog import cpu
from cost_model.device import Device
from cost_model.refining import scaled
from service.jobs import calibrated
from service.store.devices import Calibration
from tuner.errors import UnknownTarget

OLD = scaled(cpu(), "dram_bytes_per_second", 0.5)
NEW = scaled(cpu(), "dram_bytes_per_second", 0.25)


def stored(device: Device) -> Calibration:
    """A calibration as the store gives it back: its numbers went through JSON."""
    return Calibration(
        target="cpu",
        host="here",
        digest=device.digest,
        numbers=json.loads(json.dumps({"device": device.numbers})),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


KNOWN = (stored(NEW), stored(OLD))


def test_digits_choose_a_calibration() -> None:
    """The name says which numbers, and the device has exactly those."""
    found = calibrated.find(f"cpu@{OLD.digest[:8]}", KNOWN)
    assert found.numbers == OLD.numbers
    assert found.digest == OLD.digest
    assert found.id == f"cpu@{OLD.digest[:8]}"
    assert found.sources["dram_bytes_per_second"].startswith("calibrated")
    assert found.sources["barrier_seconds"] == cpu().sources["barrier_seconds"]


def test_latest_is_the_newest() -> None:
    """`latest` is resolved to digits, so that a plan names what it rests on."""
    assert calibrated.find("cpu@latest", KNOWN).id == f"cpu@{NEW.digest[:8]}"


@pytest.mark.parametrize("name", ["cpu@ffffffff", "cpu@", "h100@latest"])
def test_an_unknown_calibration_is_refused(name: str) -> None:
    """The message lists those that there are."""
    known = KNOWN if name.startswith("cpu") else ()
    with pytest.raises(UnknownTarget) as caught:
        calibrated.find(name, known)
    assert "cpu@" in str(caught.value.hint) or "calibrate" in str(caught.value.hint)


def test_plain_names_are_the_catalogue() -> None:
    """A name without `@` never changes with what was measured on a machine."""
    assert not calibrated.is_calibrated("cpu")
    assert calibrated.is_calibrated("cpu@latest")
    assert calibrated.base_of("cpu@latest") == "cpu"
