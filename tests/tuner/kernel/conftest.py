"""The device that the tests of the kernel generator share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tuner.errors import DeviceUnavailable
from tuner.runtime.opencl import OpenCLBackend

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def opencl() -> Iterator[OpenCLBackend]:
    """The best OpenCL device of this machine."""
    try:
        backend = OpenCLBackend()
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    yield backend
    backend.close()
