"""Device files: what they give, and how a wrong one is refused."""

from __future__ import annotations

import pytest

from cost_model.catalog import find
from cost_model.device import NUMBER_FIELDS, RATE_FIELDS, TEXT_FIELDS, Device
from cost_model.device_file import InvalidDevice, load_device
from cost_model.work import Pipe


def as_toml(device: Device, leave_out: str = "") -> str:
    """A device written out in full, but for one field."""
    names = [*sorted(TEXT_FIELDS), *NUMBER_FIELDS]
    lines = [
        f"{name} = {getattr(device, name)!r}" for name in names if name != leave_out
    ]
    for name in RATE_FIELDS:
        lines.append(f"[{name}]")
        lines += [f"{pipe} = {rate!r}" for pipe, rate in getattr(device, name).items()]
    return "\n".join(lines)


def test_a_complete_file_needs_no_base() -> None:
    """A device written out in full comes back with the same numbers."""
    device = load_device(as_toml(find("a10")))
    assert device.digest == find("a10").digest
    assert set(device.sources) == {*NUMBER_FIELDS, *RATE_FIELDS}


def test_a_base_gives_what_the_file_leaves_out() -> None:
    """Only the numbers given change; each says that it is from the file."""
    device = load_device(
        'base = "sm_90"\nid = "mine"\nmultiprocessors = 100\n'
        "[operations_per_second]\nfma32 = 1e13\n"
        '[sources]\nmultiprocessors = "counted"\n'
    )
    base = find("sm_90")
    assert (device.id, device.multiprocessors) == ("mine", 100)
    assert device.operations_per_second[Pipe.FMA32] == 1e13
    assert (
        device.operations_per_second[Pipe.SPECIAL]
        == base.operations_per_second[Pipe.SPECIAL]
    )
    assert device.l2_bytes == base.l2_bytes
    assert device.sources["multiprocessors"] == "counted"
    assert device.sources["operations_per_second"] == "device file"
    assert device.sources["l2_bytes"] == base.sources["l2_bytes"]


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("a = [", "device file", "is not TOML"),
        ('base = "abacus"', "base", "no device 'abacus'; known: "),
        ('base = "h100"\ncores = 4', "cores", "is no field of a device"),
        (
            'base = "h100"\nmultiprocessors = 0',
            "multiprocessors",
            "0 must be a whole number from 1 to 4096 multiprocessors",
        ),
        (
            'base = "h100"\nmultiprocessors = 1.5',
            "multiprocessors",
            "1.5 must be a whole number",
        ),
        (
            'base = "h100"\nlaunch_seconds = 5',
            "launch_seconds",
            "5 must be a number from 0 to 0.01 seconds",
        ),
        ('base = "h100"\nlaunch_seconds = nan', "launch_seconds", "must be a number"),
        ('base = "h100"\nlaunch_seconds = true', "launch_seconds", "must be a number"),
        (
            'base = "h100"\ndram_bytes_per_second = 3350',
            "dram_bytes_per_second",
            "3350 must be a number from 1e+08 to 1e+15 bytes per second",
        ),
        (
            'base = "h100"\ndram_bytes_per_second = 4e12',
            "dram_bytes_per_second",
            "4e+12 is above dram_peak_bytes_per_second 3.35e+12",
        ),
        (
            'base = "h100"\nlibrary_floor_seconds = 1e-3',
            "library_floor_seconds",
            "is above library_call_seconds",
        ),
        (
            'base = "h100"\n[operations_per_second]\nfma32 = 9e15',
            "operations_per_second.fma32",
            "is above the peak",
        ),
        (
            'base = "h100"\n[operations_per_second]\nfma33 = 9e15',
            "operations_per_second.fma33",
            "is none of fma32",
        ),
        ('base = "h100"\noperations_per_second = 3', "operations_per_second", "table"),
        ('base = "h100"\nsources = 3', "sources", "must be a table"),
        ('base = "h100"\nkind = "tpu"', "kind", "'tpu' must be gpu or cpu"),
        ('base = "h100"\nname = 3', "name", "must be text"),
        ('id = "x"', "name", "is missing"),
        (
            as_toml(find("l4"), leave_out="l2_bytes"),
            "l2_bytes",
            "is missing; it must be a whole number from 1024 to",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_field_and_range(
    text: str, where: str, message: str
) -> None:
    """The error names the field, what was found, and what it must be."""
    with pytest.raises(InvalidDevice) as caught:
        load_device(text)
    assert caught.value.where == where
    assert message in str(caught.value)


def test_a_pipe_without_a_rate_is_refused() -> None:
    """A device that could not price some kernel is never made."""
    text = as_toml(find("l4")).replace("tensor = ", "# ", 1)
    with pytest.raises(InvalidDevice, match=r"operations_per_second\.tensor: is miss"):
        load_device(text)
