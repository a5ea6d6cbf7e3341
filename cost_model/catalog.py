"""Known devices, by id and by alias. `gpus` and `cpus` name the source of each number.

`DEVICES["ideal"]` counts bytes and nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.cpus import cpu
from cost_model.device import NUMBER_FIELDS, RATE_FIELDS, Device
from cost_model.gpus import GPUS, nvidia

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALIASES", "DEVICES", "UnknownDevice", "cpu", "find"]


class UnknownDevice(KeyError):
    """No device of the catalogue has this name."""

    def __init__(self, name: str) -> None:
        """Remember the `name` that was asked for."""
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        known = ", ".join(sorted({*DEVICES, *ALIASES}))
        return f"no device {self.name!r}; known: {known}"


def find(name: str) -> Device:
    """The device of the catalogue with this id or alias.

    Raises:
        UnknownDevice: there is none; the message lists those that there are.
    """
    key = name.strip().lower()
    found = DEVICES.get(ALIASES.get(key, key))
    if found is None:
        raise UnknownDevice(name)
    return found


_LIMITS_OF_IDEAL: Final = next(gpu for gpu in GPUS if gpu.id == "a100-40")
_IDEAL_SOURCE: Final = "definition: only bytes count; limits are those of sm_80"


def _ideal() -> Device:
    """Counts bytes only; its limits are generous enough to stop no kernel."""
    return replace(
        nvidia(_LIMITS_OF_IDEAL),
        id="ideal",
        name="ideal (bytes only)",
        kind="ideal",
        architecture="ideal",
        sources=MappingProxyType(
            dict.fromkeys((*NUMBER_FIELDS, *RATE_FIELDS), _IDEAL_SOURCE)
        ),
    )


DEVICES: Final[Mapping[str, Device]] = MappingProxyType(
    {device.id: device for device in (_ideal(), cpu(), *(nvidia(gpu) for gpu in GPUS))}
)
"""Every known device, by id."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "sm_70": "v100",
        "sm_75": "t4",
        "sm_80": "a100-80",
        "sm_86": "a10",
        "sm_89": "l4",
        "sm_90": "h100-sxm",
        "sm_100": "b200",
        "sm_120": "rtx-5090",
        "a100": "a100-80",
        "h100": "h100-sxm",
    }
)
"""Other names of devices: architectures, and the usual member of a family."""
