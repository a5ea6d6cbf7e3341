"""Files that pages load."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

import service.dashboard
from service.dashboard.assets import load_assets

FOLDER = Path(service.dashboard.__file__).parent


def test_vendored_libraries_are_unchanged() -> None:
    """Every library has the hash that is written beside it, and none is unlisted."""
    vendor = FOLDER / "static" / "vendor"
    listed = dict(
        reversed(line.split())
        for line in (vendor / "SHA256SUMS").read_text().splitlines()
    )
    assert set(listed) == {path.name for path in vendor.glob("*.js")}
    for name, digest in listed.items():
        assert hashlib.sha256((vendor / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("library", ["htmx", "echarts", "cytoscape", "cytoscape-dagre"])
def test_vendored_libraries_bring_their_licence(library: str) -> None:
    """A licence text stands beside each library."""
    assert (FOLDER / "static" / "vendor" / f"{library}.LICENSE").stat().st_size > 100


def test_addresses_change_with_contents() -> None:
    """The stamp is a function of all contents, so that two loads agree."""
    assets = load_assets()
    assert assets.stamp == load_assets().stamp
    assert assets.address("page.js") == f"/static/{assets.stamp}/page.js"
    with pytest.raises(KeyError):
        assets.address("../routes.py")


@pytest.mark.parametrize("path", sorted((FOLDER / "templates").glob("*.html")))
def test_templates_hold_no_inline_script_or_style(path: Path) -> None:
    """What the policy would block is not written in the first place."""
    text = path.read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
    for tag in re.findall(r"<script[^>]*>", text):
        assert "src=" in tag
