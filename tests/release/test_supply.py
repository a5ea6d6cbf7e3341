"""Tests of the list of what comes from others."""

from __future__ import annotations

import re

from release import supply


def test_the_list_is_that_of_the_lock() -> None:
    """Each package of the lock is there with its version and terms, and no other."""
    found = supply.parts()
    text = supply.table(found)
    assert supply.TABLE.read_text() == text, "run `python -m release.supply`"
    locked = re.findall(
        r"^([\w.-]+)==([^\s;\\]+)", supply.LOCK.read_text(), re.MULTILINE
    )
    assert sorted((one.name, one.version) for one in found) == sorted(locked)
    assert all(one.licence for one in found)


def test_what_is_not_open_source_is_optional() -> None:
    """The runtimes of Intel and NVIDIA come with extras, and their terms are told."""
    bound = [one for one in supply.parts() if one.terms]
    assert {one.extra for one in bound} == {"cpu", "cuda"}
    assert {"intel-opencl-rt", "nvidia-cuda-nvrtc"} <= {one.name for one in bound}


def test_the_bill_of_materials_is_whole() -> None:
    """Every part has version, digests, licence and address, and every edge two ends."""
    bill = supply.bill(supply.parts())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill == supply.bill(supply.parts())
    refs = {one["bom-ref"] for one in bill["components"]}
    assert len(refs) == len(bill["components"])
    for one in bill["components"]:
        assert one["licenses"]
        assert one["hashes"]
        assert one["purl"].startswith(("pkg:pypi/", "pkg:npm/"))
    own = bill["metadata"]["component"]["bom-ref"]
    for edge in bill["dependencies"]:
        assert edge["ref"] in refs | {own}
        assert set(edge["dependsOn"]) <= refs
