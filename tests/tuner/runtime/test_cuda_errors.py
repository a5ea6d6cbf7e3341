"""What CUDA refuses is an error of ours, of the right kind."""

from __future__ import annotations

import pytest

from tuner.errors import KernelFailed
from tuner.runtime.backend import ResourcesExceeded
from tuner.runtime.cuda import explained
from tuner.runtime.failures import failure_of

runtime = pytest.importorskip("cupy.cuda.runtime", exc_type=ImportError)

ILLEGAL_ADDRESS = 700
LAUNCH_OUT_OF_RESOURCES = 701
MEMORY_ALLOCATION = 2


@pytest.mark.parametrize(
    ("code", "kind", "failure"),
    [
        (ILLEGAL_ADDRESS, KernelFailed, "runtime"),
        (LAUNCH_OUT_OF_RESOURCES, ResourcesExceeded, "resources"),
        (MEMORY_ALLOCATION, ResourcesExceeded, "resources"),
    ],
)
def test_errors_are_told_apart(
    code: int, kind: type[KernelFailed], failure: str
) -> None:
    """What does not fit is no crash; the words of CUDA are kept."""
    error = runtime.CUDARuntimeError(code)
    found = explained("k0", error)
    assert type(found) is kind
    assert str(error) in str(found)
    assert failure_of(found).failure == failure
