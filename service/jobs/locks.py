"""One worker per device string on a host; core sets that overlap exclude each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from service.errors import DeviceBusy

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_.-]")

_CLOCK_SLACK_SECONDS: Final = 2.0
"""How exactly the moment at which a process began is known (proc(5): btime)."""


def process_lives(pid: int, seen_at: datetime) -> bool:
    """Whether the process that had a number at some moment still runs on this host.

    A process that began later has only its number. Where the system does not tell
    (proc(5)), none is known to live.
    """
    try:
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (OSError, AttributeError):
        return False
    state, started_ticks = told[0], int(told[19])
    age = uptime - started_ticks / os.sysconf("SC_CLK_TCK")
    began = time.time() - age
    return state not in "ZX" and began <= seen_at.timestamp() + _CLOCK_SLACK_SECONDS


class DeviceLock:
    """Holds a device for this process; the kernel lets go when the process dies.

    `cpu` is all cores: it excludes every `cpu:N`, and each of them excludes it.

    Args:
        folder: where the locks of this host lie; made when missing.
        device: device string, such as `cpu`, `cpu:0` or `cuda:0`.
    """

    def __init__(self, folder: Path, device: str) -> None:
        self._folder = folder
        self._device = device
        self._files: list[IO[str]] = []

    def acquire(self) -> None:
        """Take the device.

        Raises:
            DeviceBusy: another process has it, or a part of it.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        kind, _, part = self._device.partition(":")
        try:
            if kind == "cpu" and part:
                self._take(kind, shared=True)
            self._take(self._device, shared=False)
        except DeviceBusy:
            self.release()
            raise

    def release(self) -> None:
        """Give the device back."""
        while self._files:
            self._files.pop().close()

    def _take(self, name: str, *, shared: bool) -> None:
        file = (self._folder / f"{_UNSAFE.sub('-', name)}.lock").open("a+")
        how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read(20).strip() or "another one"
            file.close()
            raise DeviceBusy(
                f"device {self._device}",
                f"process {holder} measures on it already, or on a part of it",
                hint="stop that process, or serve with --no-worker",
            ) from error
        self._files.append(file)
        file.truncate(0)
        if not shared:
            file.write(str(os.getpid()))
            file.flush()


class NameLock:
    """Holds the name of a worker against other hosts that call themselves the same.

    Two workers of one name would take up each other's jobs.

    Args:
        claim: takes the name in the database; gives what lets go of it, or None when
            somebody else has it.
        name: the worker's name.
    """

    def __init__(
        self, claim: Callable[[str], Callable[[], None] | None], name: str
    ) -> None:
        self._claim = claim
        self._name = name
        self._held = contextlib.ExitStack()

    def acquire(self) -> None:
        """Take the name.

        Raises:
            DeviceBusy: a living worker has it.
        """
        let_go = self._claim(self._name)
        if let_go is None:
            raise DeviceBusy(
                f"worker {self._name}",
                "a worker of this name works on the database already",
                hint="give each host a name of its own",
            )
        self._held.callback(let_go)

    def release(self) -> None:
        """Give the name back."""
        self._held.close()
