"""Devices that a user describes in a TOML file.

A file has the fields of `Device` at top level and one table of rates by pipe:

    base = "h100-sxm"            # optional: what is not given is taken from here
    id = "my-card"
    name = "My card"
    kind = "gpu"
    architecture = "sm_90"
    multiprocessors = 132
    dram_peak_bytes_per_second = 3.35e12

    [peak_operations_per_second]
    fma32 = 6.7e13

    [sources]                    # optional: field -> where its number is from
    multiprocessors = "nvidia-smi"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from cost_model.catalog import UnknownDevice, find
from cost_model.device import RATE_FIELDS, TEXT_FIELDS, Device
from cost_model.work import Pipe

if TYPE_CHECKING:
    from collections.abc import Mapping


class InvalidDevice(ValueError):
    """A device file cannot be used; the message names the field and its range."""

    def __init__(self, where: str, what: str) -> None:
        """Remember the field `where` and `what` is wrong with it."""
        super().__init__(f"{where}: {what}")
        self.where = where


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Values that a field may have, in its unit; `is_whole` asks for an integer."""

    low: float
    high: float
    unit: str
    is_whole: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        return f"{kind} from {self.low:g} to {self.high:g} {self.unit}".rstrip()


_RATE: Final = Range(low=1e8, high=1e15, unit="bytes per second")
_SECONDS: Final = Range(low=0.0, high=1e-2, unit="seconds")
_LATENCY: Final = Range(low=1e-10, high=1e-4, unit="seconds")
_SHARE: Final = Range(low=0.0, high=1.0, unit="of the whole")
_SOME_SHARE: Final = Range(low=0.01, high=1.0, unit="of the whole")
_SWITCH: Final = Range(low=0, high=1, unit="", is_whole=True)
_OPERATIONS: Final = Range(low=1e6, high=1e18, unit="operations per second")


def _whole(low: float, high: float, unit: str) -> Range:
    return Range(low=low, high=high, unit=unit, is_whole=True)


RANGES: Final[Mapping[str, Range]] = MappingProxyType(
    {
        "multiprocessors": _whole(1, 4096, "multiprocessors"),
        "clock_hertz": Range(low=1e7, high=1e10, unit="hertz"),
        "dram_bytes_per_second": _RATE,
        "dram_peak_bytes_per_second": _RATE,
        "dram_latency_seconds": _LATENCY,
        "dram_burst_bytes": _whole(1, 4096, "bytes"),
        "dram_bytes": _whole(1 << 20, 1 << 50, "bytes"),
        "l2_bytes_per_second": _RATE,
        "l2_peak_bytes_per_second": _RATE,
        "l2_latency_seconds": _LATENCY,
        "l2_bytes": _whole(1 << 10, 1 << 40, "bytes"),
        "l1_bytes_per_second": _RATE,
        "l1_peak_bytes_per_second": _RATE,
        "l1_bytes": _whole(1 << 9, 1 << 32, "bytes"),
        "nearest_bytes": _whole(0, 1 << 30, "bytes"),
        "keeps_l1": _SWITCH,
        "caches_writes": _SWITCH,
        "multiprocessor_bytes_per_second": _RATE,
        "prefetched_bytes_per_multiprocessor": _whole(0, 1 << 30, "bytes"),
        "sector_bytes": _whole(1, 4096, "bytes"),
        "scattered_share": _SOME_SHARE,
        "subgroup_threads": _whole(1, 1024, "threads"),
        "saturation_threads_per_multiprocessor": _whole(1, 1 << 20, "threads"),
        "launch_seconds": _SECONDS,
        "graph_launch_seconds": _SECONDS,
        "launch_floor_seconds": _SECONDS,
        "library_launch_seconds": _SECONDS,
        "library_operator_seconds": _SECONDS,
        "library_wake_seconds": _SECONDS,
        "library_serial_bytes": _whole(0, 1 << 30, "bytes"),
        "library_floor_seconds": _SECONDS,
        "library_efficiency": _SOME_SHARE,
        "library_memory_efficiency": _SOME_SHARE,
        "block_launch_seconds": _SECONDS,
        "barrier_seconds": _SECONDS,
        "shuffle_seconds": _SECONDS,
        "overlap": _SHARE,
        "pipe_overlap": _SHARE,
        "max_threads_per_multiprocessor": _whole(1, 1 << 20, "threads"),
        "max_blocks_per_multiprocessor": _whole(1, 4096, "blocks"),
        "registers_per_multiprocessor": _whole(1 << 8, 1 << 30, "registers"),
        "register_allocation_unit": _whole(1, 1 << 16, "registers"),
        "max_registers_per_thread": _whole(8, 1 << 16, "registers"),
        "shared_bytes_per_multiprocessor": _whole(1 << 10, 1 << 30, "bytes"),
        "max_shared_bytes_per_block": _whole(1 << 10, 1 << 30, "bytes"),
        "reserved_shared_bytes_per_block": _whole(0, 1 << 20, "bytes"),
        "max_block_threads": _whole(1, 1 << 20, "threads"),
        "max_argument_bytes": _whole(256, 1 << 20, "bytes"),
    }
)
"""Unit and range of each number of a device; beyond them a file is surely wrong."""

NOT_ABOVE: Final = (
    ("dram_bytes_per_second", "dram_peak_bytes_per_second"),
    ("l2_bytes_per_second", "l2_peak_bytes_per_second"),
    ("l1_bytes_per_second", "l1_peak_bytes_per_second"),
    ("dram_bytes_per_second", "l2_bytes_per_second"),
    ("l2_bytes_per_second", "l1_bytes_per_second"),
    ("dram_peak_bytes_per_second", "l2_peak_bytes_per_second"),
    ("l2_peak_bytes_per_second", "l1_peak_bytes_per_second"),
    ("launch_floor_seconds", "launch_seconds"),
    ("library_floor_seconds", "library_call_seconds"),
    ("max_shared_bytes_per_block", "shared_bytes_per_multiprocessor"),
    ("max_block_threads", "max_threads_per_multiprocessor"),
)
"""Pairs of which the first is never above the second; the bound rests on them."""


def load_device(text: str) -> Device:
    """Read and check a device file.

    Args:
        text: TOML, as the module describes it.

    Returns:
        The device; fields that neither the file nor its `base` gives are an error.

    Raises:
        InvalidDevice: not TOML, or a field is unknown, missing or out of its range.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidDevice("device file", f"is not TOML: {error}") from error
    base = _base(table.pop("base", None))
    sources = _sources(table.pop("sources", {}), table)
    given = {name: _value(name, value) for name, value in table.items()}
    if base is None:
        return check(_complete(given, sources))
    for name in RATE_FIELDS:
        if name in given:
            given[name] = MappingProxyType({**getattr(base, name), **given[name]})
    kept = MappingProxyType({**base.sources, **sources})
    return check(replace(base, **given, sources=kept))


def check(device: Device) -> Device:
    """Return a device whose numbers are in range and agree with each other.

    Raises:
        InvalidDevice: one of them is not; the message says which and why.
    """
    for name, limits in RANGES.items():
        _in_range(name, getattr(device, name), limits)
    operator = device.library_operator_seconds
    derived = {"library_call_seconds": device.library_launch_seconds + operator}
    for low, high in NOT_ABOVE:
        most = derived.get(high, getattr(device, high, 0))
        if getattr(device, low) > most:
            raise InvalidDevice(
                low, f"{getattr(device, low):g} is above {high} {most:g}"
            )
    for pipe in Pipe:
        _check_rates(device, pipe)
    return device


def _check_rates(device: Device, pipe: Pipe) -> None:
    where = f"operations_per_second.{pipe}"
    reached = device.operations_per_second.get(pipe)
    peak = device.peak_operations_per_second.get(pipe)
    if reached is None or peak is None:
        raise InvalidDevice(where, "is missing, or its peak is")
    if reached > peak:
        raise InvalidDevice(where, f"{reached:g} is above the peak {peak:g}")


def _base(name: object) -> Device | None:
    if name is None:
        return None
    try:
        return find(str(name))
    except UnknownDevice as error:
        raise InvalidDevice("base", str(error)) from error


def _sources(given: object, table: Mapping[str, object]) -> dict[str, str]:
    if not isinstance(given, dict):
        raise InvalidDevice("sources", "must be a table: field -> text")
    numbers = (name for name in table if name not in TEXT_FIELDS)
    return {**dict.fromkeys(numbers, "device file"), **given}


def _value(name: str, value: object) -> Any:
    if name in TEXT_FIELDS:
        return _text(name, value)
    if name in RATE_FIELDS:
        return _rates(name, value)
    limits = RANGES.get(name)
    if limits is None:
        raise InvalidDevice(name, "is no field of a device")
    number = _in_range(name, value, limits)
    return int(number) if limits.is_whole else float(number)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidDevice(name, "must be text")
    if name == "kind" and value not in ("gpu", "cpu"):
        raise InvalidDevice(name, f"{value!r} must be gpu or cpu")
    return value


def _rates(name: str, value: object) -> Mapping[Pipe, float]:
    if not isinstance(value, dict):
        raise InvalidDevice(name, "must be a table: pipe -> operations per second")
    known = {str(pipe): pipe for pipe in Pipe}
    unknown = [key for key in value if key not in known]
    if unknown:
        raise InvalidDevice(f"{name}.{unknown[0]}", f"is none of {', '.join(known)}")
    return MappingProxyType(
        {
            known[key]: float(_in_range(f"{name}.{key}", rate, _OPERATIONS))
            for key, rate in value.items()
        }
    )


def _in_range(name: str, value: object, limits: Range) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number:
        raise InvalidDevice(name, f"{value!r} must be {limits}")
    number = cast("float", value)
    if not limits.low <= number <= limits.high or (
        limits.is_whole and number != int(number)
    ):
        raise InvalidDevice(name, f"{value!r} must be {limits}")
    return number


def _complete(given: Mapping[str, Any], sources: Mapping[str, str]) -> Device:
    needed = [each.name for each in fields(Device) if each.name != "sources"]
    missing = [name for name in needed if name not in given]
    if missing:
        limits = RANGES.get(missing[0])
        wanted = f"; it must be {limits}" if limits else ""
        raise InvalidDevice(
            missing[0], f"is missing{wanted} (a `base` would give what is left out)"
        )
    return Device(**given, sources=MappingProxyType(dict(sources)))
