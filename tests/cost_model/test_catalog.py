"""Known devices: present, sourced, in range, and true to their data sheets."""

from __future__ import annotations

import pytest

from cost_model.catalog import ALIASES, DEVICES, UnknownDevice, cpu, find
from cost_model.device import NUMBER_FIELDS, RATE_FIELDS, Device
from cost_model.device_file import RANGES, check
from cost_model.work import Pipe

EVERY = pytest.mark.parametrize("device", DEVICES.values(), ids=list(DEVICES))

NAMED = {
    "ideal", "cpu", "v100", "t4", "a10", "a100-40", "a100-80", "rtx-3090", "rtx-4090",
    "rtx-5090", "l4", "l40s", "h100-pcie", "h100-sxm", "h200", "b200",
}  # fmt: skip


def test_the_catalogue_has_the_devices_that_people_rent() -> None:
    """Each device that the documentation names can be found by its id."""
    assert set(DEVICES) == NAMED
    assert all(find(name).id == name for name in NAMED)


@pytest.mark.parametrize(
    ("alias", "device"),
    [
        ("sm_80", "a100-80"),
        ("sm_89", "l4"),
        ("sm_90", "h100-sxm"),
        ("sm_100", "b200"),
        ("SM_90", "h100-sxm"),
    ],
)
def test_an_architecture_stands_for_its_usual_device(alias: str, device: str) -> None:
    """The aliases that plan keys rest on never change."""
    assert find(alias).id == device


def test_an_alias_of_an_architecture_has_that_architecture() -> None:
    """`sm_NN` gives a device that code for sm_NN runs on."""
    for alias, device in ALIASES.items():
        if alias.startswith("sm_"):
            assert DEVICES[device].architecture == alias


def test_an_unknown_device_names_those_that_exist() -> None:
    """The error of a typo shows what could have been meant."""
    with pytest.raises(UnknownDevice, match=r"no device 'h1OO'; known: .*h100-sxm"):
        find("h1OO")


@EVERY
def test_every_number_names_its_source(device: Device) -> None:
    """No field of a device is without a source, and no source without a field."""
    assert set(device.sources) == {*NUMBER_FIELDS, *RATE_FIELDS}
    assert all(text.strip() for text in device.sources.values())


@EVERY
def test_every_device_keeps_the_rules_of_a_device_file(device: Device) -> None:
    """All numbers are in range, and what is reached never exceeds its peak."""
    assert check(device) is device


@EVERY
def test_every_pipe_has_a_rate(device: Device) -> None:
    """Whatever a kernel counts can be priced."""
    assert set(device.operations_per_second) == set(Pipe)
    assert set(device.peak_operations_per_second) == set(Pipe)


def test_every_number_has_a_range() -> None:
    """A field that is added to a device gets a unit and a range too."""
    assert set(RANGES) == set(NUMBER_FIELDS)


@pytest.mark.parametrize(
    ("name", "tera_operations"),
    [("v100", 15.7), ("a100-40", 19.5), ("a10", 31.2), ("h100-sxm", 66.9),
     ("rtx-4090", 82.6), ("rtx-5090", 104.8), ("l4", 30.3), ("t4", 8.1)],
)  # fmt: skip
def test_peak_arithmetic_agrees_with_the_data_sheet(
    name: str, tera_operations: float
) -> None:
    """Lanes times clock give the FP32 figure of the data sheet, an FMA being two."""
    rate = 2 * find(name).peak_operations_per_second[Pipe.FMA32] / 1e12
    assert rate == pytest.approx(tera_operations, rel=0.02)


@pytest.mark.parametrize(
    ("name", "tera_operations"),
    [("v100", 125), ("a100-80", 312), ("a10", 125), ("rtx-4090", 165), ("t4", 65)],
)
def test_tensor_peaks_agree_with_the_data_sheet(
    name: str, tera_operations: float
) -> None:
    """Dense 16-bit products with 32-bit sums, as the data sheets give them."""
    rate = 2 * find(name).peak_operations_per_second[Pipe.TENSOR] / 1e12
    assert rate == pytest.approx(tera_operations, rel=0.03)


def test_digests_tell_devices_apart_by_their_numbers_alone() -> None:
    """Equal numbers, equal digest, whatever the name; another number, another one."""
    assert len({device.digest for device in DEVICES.values()}) == len(DEVICES)
    assert cpu("A").digest == cpu("B").digest
    assert cpu(threads=2).digest != cpu(threads=4).digest


def test_a_device_can_be_a_key() -> None:
    """Devices can be remembered in a dictionary."""
    assert {find("sm_90"): 1}[find("h100")] == 1


@pytest.mark.parametrize("instruction_set", ["avx512", "avx2", "sse", "neon"])
@pytest.mark.parametrize("threads", [1, 2, 16, 96])
def test_a_cpu_of_any_size_is_sane(instruction_set: str, threads: int) -> None:
    """Any instruction set and number of threads gives a device in range."""
    device = check(cpu("CPU", instruction_set, threads))
    assert device.multiprocessors == threads
    assert device.architecture == instruction_set


@pytest.mark.parametrize(("isa", "threads"), [("mmx", 2), ("avx2", 0)])
def test_an_impossible_cpu_is_refused(isa: str, threads: int) -> None:
    """The error lists the instruction sets that there are."""
    with pytest.raises(ValueError, match="instruction sets: avx512, avx2"):
        cpu("CPU", isa, threads)
