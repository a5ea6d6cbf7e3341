"""The page about the cost model is true."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from cost_model.catalog import DEVICES, cpu, find
from cost_model.device import Device
from cost_model.estimate import Estimate

PAGE = (Path(__file__).parents[2] / "docs" / "cost-model.md").read_text()


@pytest.mark.parametrize("device", [cpu(), find("sm_90"), find("a10"), find("b200")])
def test_every_assumption_is_on_the_page(device: Device) -> None:
    """Who reads a prediction can find which numbers nobody has published."""
    assumed = [n for n, text in device.sources.items() if text.startswith("assumption")]
    assert assumed
    assert [name for name in assumed if f"`{name}`" not in PAGE] == []


def test_every_term_is_on_the_page() -> None:
    """Each field in seconds of an estimate has a row."""
    terms = [each.name for each in fields(Estimate) if each.name.endswith("_seconds")]
    assert [name for name in terms if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.id)
def test_every_number_names_its_source(device: Device) -> None:
    """No number of the catalogue comes from nowhere."""
    assert [
        n for n in device.numbers if n != "kind" and not device.sources.get(n)
    ] == []
