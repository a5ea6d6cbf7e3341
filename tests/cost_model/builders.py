"""Small counted works and devices that the tests of this folder share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cost_model.catalog import find
from cost_model.work import Access, Work

if TYPE_CHECKING:
    from cost_model.device import Device


MIB = 1 << 20
H100_TABLE = (
    (8 << 10, 1.4),
    (1 * MIB, 179),
    (4 * MIB, 639),
    (16 * MIB, 1584),
    (64 * MIB, 2343),
    (1024 * MIB, 3126),
)
"""Bytes moved by a copy, and the published bandwidth in GiB/s."""


def gpu(**changes: object) -> Device:
    """An H100 with some numbers changed."""
    return replace(find("h100-sxm"), **changes)  # type: ignore[arg-type]


def read(nbytes: int) -> Access:
    """A tensor read once, every sector whole."""
    return Access(unique_bytes=nbytes, sector_bytes=nbytes, requested_bytes=nbytes)


def write(nbytes: int) -> Access:
    """A tensor written once, every sector whole."""
    return replace(read(nbytes), is_write=True)


def copy(moved_bytes: int, *, threads: int = 256, vector: int = 4) -> Work:
    """A float32 copy: half of the bytes read, half written."""
    half = moved_bytes // 2
    return Work(
        accesses=(read(half), write(half)),
        blocks=max(1, half // (4 * threads * vector)),
        block_threads=threads,
        bytes_in_flight_per_thread=4 * vector,
    )
