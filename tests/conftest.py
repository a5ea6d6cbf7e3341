"""What all tests share: models outside of the repository, a device, their order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import DeviceUnavailable
from tuner.runtime.opencl import OpenCLBackend

SHARED = Path(
    os.environ.get("FUSEPLAN_SHARED", str(Path(__file__).parents[2] / "shared"))
)
SOAK = os.environ.get("FUSEPLAN_SOAK") == "1"
ZOO = (
    "adamw_step",
    "bert_base",
    "bert_base_dynamic",
    "bert_mini_torchscript",
    "convnext_tiny",
    "gpt2",
    "llama_small",
    "mobilenet_v2",
    "resnet18",
    "resnet50",
    "sd_unet_small",
    "train_mlp",
    "train_transformer_layer",
    "vit_b_16",
)
"""Models of `zoo_dir`."""
GLANCE_SECONDS = 0.3
"""Timed samples of a run where what counts is that the results are right."""
LONGEST = (
    "tests/tuner/test_zoo.py",
    "tests/service/api/test_fuzzing.py",
    "tests/tuner/search/test_failing_kernels.py",
    "tests/tuner/search/test_known_results.py",
    "tests/tuner/fusion/test_least.py",
    "tests/browser/test_journeys.py",
    "tests/service/cli/test_exports.py",
    "tests/service/test_guides.py",
    "tests/test_readme.py",
    "tests/browser/test_pages.py",
    "tests/service/api/test_jobs.py",
    "tests/tuner/calibration/test_accuracy.py",
    "tests/service/cli/test_build.py",
    "tests/tuner/search/test_alternatives.py",
    "tests/release/test_wheel.py",
    "tests/service/cli/test_exchanging.py",
    "tests/tuner/fusion/test_optimisers.py",
    "tests/tuner/search/test_never_regress.py",
    "tests/tuner/fusion/test_patterns_targets.py",
    "tests/tuner/calibration/test_fit.py",
    "tests/conformance/test_node_cases.py",
    "tests/tuner/test_selftest.py",
    "tests/tuner/search/test_killed.py",
    "tests/tuner/search/test_winners.py",
    "tests/tuner/search/test_session.py",
    "tests/tuner/search/test_proofs.py",
)
"""Files that take longest. Processes that share the tests by file begin with them: one
that got a long file last would keep the others waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the others, and all tests within a file, in their order."""
    rank = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.partition("::")[0], len(LONGEST)))


def shared_folder(name: str) -> Path:
    """A folder of shared models; absent, the test skips, or fails in CI."""
    folder = SHARED / name
    if not folder.is_dir():
        reason = f"{folder} is not there; set FUSEPLAN_SHARED to the folder that is"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder


@pytest.fixture(scope="session")
def zoo_dir() -> Path:
    """Real model graphs without weights."""
    return shared_folder("zoo")


@pytest.fixture(scope="session")
def patterns_dir() -> Path:
    """Small graphs with golden facts about their best partition."""
    return shared_folder("patterns")


@pytest.fixture(scope="session")
def opencl() -> Iterator[OpenCLBackend]:
    """The best OpenCL device of this machine."""
    try:
        backend = OpenCLBackend()
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether tests run at full length."""
    return SOAK
