"""The same promises on every device."""

from __future__ import annotations

import pytest

from tests.tuner.runtime.contract import BackendContract
from tuner.errors import DeviceUnavailable, UnknownTarget
from tuner.runtime.backend import Backend
from tuner.runtime.cuda import CudaBackend, device_count
from tuner.runtime.devices import open_backend
from tuner.runtime.null import NullBackend
from tuner.runtime.opencl import OpenCLBackend


class TestNull(BackendContract):
    """The device without hardware."""

    @pytest.fixture
    def backend(self) -> Backend:
        """A null device."""
        return NullBackend()


class TestOpenCL(BackendContract):
    """A real OpenCL device."""

    @pytest.fixture
    def backend(self, opencl: OpenCLBackend) -> Backend:
        """The shared device."""
        return opencl


@pytest.mark.skipif(not device_count(), reason="no NVIDIA GPU on this machine")
class TestCuda(BackendContract):
    """A real GPU."""

    @pytest.fixture
    def backend(self) -> Backend:
        """The first GPU."""
        return CudaBackend()


@pytest.mark.skipif(device_count() > 0, reason="this machine has a GPU")
def test_no_gpu_is_said_with_a_cure() -> None:
    """Without a GPU, opening one says so and what to do."""
    with pytest.raises(DeviceUnavailable, match=r"0 GPUs|No module") as caught:
        open_backend("cuda")
    assert caught.value.hint


def test_unknown_devices_are_refused() -> None:
    """A name that is no device is told from a device that is not there."""
    with pytest.raises(UnknownTarget, match="one of"):
        open_backend("tpu")
    with pytest.raises(UnknownTarget):
        open_backend("cpu:first")


def test_devices_are_opened_by_number(opencl: OpenCLBackend) -> None:
    """The first device has the number 0; a number beyond the last is unavailable."""
    assert open_backend("cpu:0").name == opencl.name
    with pytest.raises(DeviceUnavailable, match="no number 99"):
        open_backend("cpu:99")
