"""Real models: every one is read, planned, run, and agrees with ONNX Runtime."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tuner.execution import run_plan
from tuner.model import Model, load
from tuner.pipeline import make_plan
from tuner.plan import Options, Plan

MODELS = tuple(sorted(p.stem for p in (SHARED / "zoo").glob("*.onnx"))) or ("none",)
TRANSFORMERS = ("bert_base", "gpt2", "llama_small")


@lru_cache(maxsize=2)
def loaded(path: Path) -> Model:
    """A model of the zoo."""
    return load(path.read_bytes())


@lru_cache(maxsize=2)
def planned(path: Path, target: str) -> Plan:
    """Its plan."""
    return make_plan(loaded(path), target, Options(), time_limit_seconds=300)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_a_real_model_is_planned_with_a_proof(
    zoo_dir: Path, name: str, target: str
) -> None:
    """Complete candidate space, gap of zero, never worse than the baselines."""
    plan = planned(zoo_dir / f"{name}.onnx", target)
    partition = plan.partition
    assert partition.gap <= 1e-2
    for baseline in plan.baselines.values():
        limit = baseline.objective_seconds * (1 + 1e-9)
        assert partition.objective_seconds <= limit


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("target", ["cpu", "sm_90"])
def test_transformers_need_fewer_kernels_and_bytes_than_tvms_rules(
    zoo_dir: Path, name: str, target: str
) -> None:
    """Kernels not above TVM's rules, traffic below."""
    plan = planned(zoo_dir / f"{name}.onnx", target)
    tvm = plan.baselines["tvm"]
    assert len(plan.kernels) <= tvm.kernels
    assert plan.traffic_bytes < tvm.traffic_bytes


@pytest.mark.parametrize("name", MODELS)
def test_a_real_model_runs_and_agrees_with_the_library(
    zoo_dir: Path, name: str
) -> None:
    """The whole plan on this processor gives ONNX Runtime's outputs."""
    path = zoo_dir / f"{name}.onnx"
    report = run_plan(loaded(path), planned(path, "cpu"))
    assert report.verified
