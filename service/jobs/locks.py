"""One worker per device string on a host."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import IO, Final

from service.errors import DeviceBusy

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")


class DeviceLock:
    """Holds a device for this process; the kernel lets go when the process dies.

    Args:
        folder: where the locks of this host lie; made when missing.
        device: device string, such as `cpu` or `cuda:0`.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self._path = folder / f"{_UNSAFE.sub('-', device)}.lock"
        self._device = device
        self._file: IO[str] | None = None

    def acquire(self) -> None:
        """Take the device.

        Raises:
            DeviceBusy: another process has it.
        """
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read(20).strip() or "unknown"
            file.close()
            raise DeviceBusy(
                f"device {self._device}",
                f"process {holder} measures on it already",
                hint="stop that process, or serve with --no-worker",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        """Give the device back."""
        if self._file is not None:
            self._file.close()
            self._file = None
