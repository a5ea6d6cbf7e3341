"""What a compiler made of a kernel's text, kept on disk for the next process.

A CPU runtime takes a quarter of a second for a kernel and a few milliseconds to load
what it made of it before. An entry is named by all that decides the machine code, so
a new compiler, driver, processor or option finds nothing; an entry that is damaged is
a miss. Nothing here ever fails a run: without a folder, every kernel is compiled.

Entries are native code that will run with the user's rights. A folder that somebody
else owns or may write into is therefore not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_MAGIC: Final = b"fuseplan compiled 1\n"
_DIGEST_BYTES: Final = 32
LIMIT_BYTES: Final = 512 << 20
"""What the folder may hold; kernels take 15 to 60 KB."""
_KEPT_SHARE: Final = 0.75
"""What of it is left when it was full, so that not every entry removes another."""
_STORES_BETWEEN_LOOKS: Final = 256
_PRIVATE: Final = 0o700
_FOREIGN_WRITES: Final = stat.S_IWGRP | stat.S_IWOTH


def user_folder() -> Path | None:
    """The user's folder for compiled kernels; None where the system names none."""
    try:
        import platformdirs  # noqa: PLC0415  # comes with PyOpenCL
    except ImportError:
        return None
    return platformdirs.user_cache_path("fuseplan", appauthor=False) / "compiled"


def processor() -> str:
    """What tells this processor's machine code from another's.

    A folder may be shared by hosts whose OpenCL devices have the same name and yet
    other instructions.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    told = ("flags", "Features", "model name", "CPU part")
    lines = {line for line in text.splitlines() if line.startswith(told)}
    return "\n".join(sorted(lines))


class CompiledStore:
    """Compiled kernels of one compiler for one device, in a folder."""

    def __init__(self, folder: Path | None, identity: Sequence[str]) -> None:
        """Name the folder, which is made with the first entry.

        Args:
            folder: None to keep nothing.
            identity: all that decides the machine code besides text and options.
        """
        self._folder = folder
        self._identity = tuple(identity)
        self._stored = 0

    def load(self, text: str, options: Sequence[str]) -> bytes | None:
        """What was made of a text; None if that is not known, or damaged."""
        path = self._path(text, options)
        if path is None or not is_private(path.parent):
            return None
        try:
            content = path.read_bytes()
            os.utime(path)  # the least recently used goes first
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST_BYTES
        payload = content[head:]
        expected = _MAGIC + hashlib.sha256(payload).digest()
        if content[:head] == expected and payload:
            return payload
        self.forget(text, options)
        return None

    def store(self, text: str, options: Sequence[str], payload: bytes) -> None:
        """Keep what was made of a text, whole or not at all."""
        path = self._path(text, options)
        if path is None or not payload:
            return
        with contextlib.suppress(OSError):  # no room, no right: compile again next time
            path.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            if not is_private(path.parent):
                return
            self._make_room()
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
                try:
                    draft.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
                    draft.close()
                    Path(draft.name).replace(path)
                except OSError:
                    Path(draft.name).unlink(missing_ok=True)

    def forget(self, text: str, options: Sequence[str]) -> None:
        """Drop an entry that a driver does not take any more."""
        path = self._path(text, options)
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()

    def _path(self, text: str, options: Sequence[str]) -> Path | None:
        if self._folder is None:
            return None
        told = hashlib.sha256()
        for part in (*self._identity, *options, text):
            encoded = part.encode()
            told.update(len(encoded).to_bytes(8, "little") + encoded)
        return self._folder / told.hexdigest()

    def _make_room(self) -> None:
        """Drop what was not used for longest, once the folder is full."""
        self._stored += 1
        if self._folder is None or self._stored % _STORES_BETWEEN_LOOKS != 1:
            return
        found = sorted(_sizes(self._folder))
        held = sum(size for _, size, _ in found)
        if held <= LIMIT_BYTES:
            return
        for _, size, path in found:
            if held <= _KEPT_SHARE * LIMIT_BYTES:
                break
            with contextlib.suppress(OSError):
                path.unlink()
            held -= size


def _sizes(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Last use, bytes and path of every entry, drafts that nobody finished too."""
    for path in folder.iterdir():
        with contextlib.suppress(OSError):
            known = path.stat()
            yield known.st_mtime, known.st_size, path


def is_private(folder: Path) -> bool:
    """Whether nobody else may put anything into a folder."""
    try:
        known = folder.stat()
    except OSError:
        return False
    return known.st_uid == os.getuid() and not known.st_mode & _FOREIGN_WRITES
