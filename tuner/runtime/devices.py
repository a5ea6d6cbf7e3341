"""Names of devices, and how to open them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tuner.errors import UnknownTarget
from tuner.runtime.backend import Backend

_CLASSES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "cpu": ("tuner.runtime.opencl", "OpenCLBackend"),
        "opencl": ("tuner.runtime.opencl", "OpenCLBackend"),
        "cuda": ("tuner.runtime.cuda", "CudaBackend"),
        "null": ("tuner.runtime.null", "NullBackend"),
    }
)
DEVICES: Final = tuple(_CLASSES)


def open_backend(device: str) -> Backend:
    """Open a device by name: cpu, opencl, cuda or null, and a number as in cuda:1.

    Raises:
        UnknownTarget: no back end has this name.
        DeviceUnavailable: the device or its driver is not there.
    """
    kind, _, number = device.partition(":")
    if kind not in _CLASSES or not (number or "0").isdecimal():
        raise UnknownTarget(
            device, "no such device", hint=f"one of {', '.join(DEVICES)}"
        )
    module, name = _CLASSES[kind]
    made: Any = getattr(importlib.import_module(module), name)
    backend: Backend = made.open(int(number or "0"))
    return backend
