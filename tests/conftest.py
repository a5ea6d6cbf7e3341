"""Where tests find models that are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(
    os.environ.get("FUSEPLAN_SHARED", str(Path(__file__).parents[2] / "shared"))
)
SOAK = os.environ.get("FUSEPLAN_SOAK") == "1"


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
def soak() -> bool:
    """Whether tests run at full length."""
    return SOAK
