"""The device on which node tests and random models run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tuner.errors import DeviceUnavailable
from tuner.runtime.opencl import OpenCLBackend


@pytest.fixture(scope="session")
def opencl() -> Iterator[OpenCLBackend]:
    """The best OpenCL device of this machine."""
    try:
        backend = OpenCLBackend()
    except DeviceUnavailable as error:
        pytest.skip(str(error))
    yield backend
    backend.close()
