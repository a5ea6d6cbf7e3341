"""Which file is a SQLite database, and is it on a disk of this machine?

SQLite's locks are not safe elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, make_url

NETWORK: Final = frozenset(
    {
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "fuse.cephfs",
        "fuse.glusterfs",
        "fuse.s3fs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "smb3",
        "smbfs",
    }
)
"""Names, as Linux lists them, of file systems that other hosts share."""

MOUNTS: Final = Path("/proc/self/mountinfo")


def database_file(url: str | URL) -> Path | None:
    """The file that an address names; None for a server, and for a database in memory.

    A name that begins with `file:` is a URI where the address says so
    (sqlite.org/uri.html).
    """
    parsed = make_url(url)
    name = parsed.database or ""
    if parsed.get_backend_name() != "sqlite" or parsed.query.get("mode") == "memory":
        return None
    if name.startswith("file:") and parsed.query.get("uri"):
        name = unquote(urlsplit(name).path)
    return None if name in {"", ":memory:"} else Path(name).absolute()


def file_system(path: Path, mounts: str) -> str:
    """Type of the file system that holds `path`, or "" when it is not listed.

    Args:
        path: an absolute path without links; it need not exist.
        mounts: text of `/proc/self/mountinfo` (proc(5)).
    """
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:  # noqa: PLR2004 - field five is the mount point
            continue
        point = Path(_unescape(fields[4]))
        depth = len(point.parts)
        if depth >= best and (path == point or point in path.parents):
            best, kind = depth, right.split()[0]
    return kind


def network_file_system(path: Path, mounts: Path = MOUNTS) -> str:
    """Name of the network file system that `path` is on, or "" for a local one."""
    if not mounts.exists():
        return ""
    kind = file_system(path.resolve(), mounts.read_text(errors="replace"))
    return kind if kind in NETWORK else ""


def _unescape(field: str) -> str:
    """Undo the octal escapes that the kernel writes for blanks in a path."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field
