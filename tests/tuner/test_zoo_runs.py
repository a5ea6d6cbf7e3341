"""Real models: every one runs, and agrees with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SHARED
from tuner.execution import run_plan
from tuner.model import load
from tuner.pipeline import make_plan
from tuner.plan import Options

MODELS = tuple(sorted(p.stem for p in (SHARED / "zoo").glob("*.onnx"))) or ("none",)


@pytest.mark.parametrize("name", MODELS)
def test_a_real_model_runs_and_agrees_with_the_library(
    zoo_dir: Path, name: str
) -> None:
    """The whole plan on this processor gives ONNX Runtime's outputs."""
    model = load((zoo_dir / f"{name}.onnx").read_bytes())
    report = run_plan(model, make_plan(model, "cpu", Options()))
    assert report.verified
