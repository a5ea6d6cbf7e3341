"""Style sheets, scripts and vendored libraries, served from memory.

Every address holds a stamp of all contents, so that a browser may keep a file for a
year and still never mixes two versions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from importlib.resources.abc import Traversable

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""Only these are served; licences and hashes stay on disk."""

CACHE_CONTROL: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file."""

    content: bytes
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """All files by name, and the stamp of their contents."""

    files: Mapping[str, Asset]
    stamp: str

    def address(self, name: str) -> str:
        """Where a page finds a file.

        Raises:
            KeyError: there is no such file.
        """
        if name not in self.files:
            raise KeyError(name)
        return f"/static/{self.stamp}/{name}"


def load_assets() -> Assets:
    """Read all files of the package's `static` folder."""
    found = dict(sorted(_walk(files("service.dashboard") / "static", "")))
    whole = hashlib.sha256()
    for name, asset in found.items():
        whole.update(name.encode() + b"\0" + asset.content)
    return Assets(files=MappingProxyType(found), stamp=whole.hexdigest()[:12])


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
            continue
        kind = _TYPES.get(entry.name.rpartition(".")[2])
        if kind is not None:
            asset = Asset(content=entry.read_bytes(), media_type=kind)
            found.append((prefix + entry.name, asset))
    return found
