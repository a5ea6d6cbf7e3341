"""Waiting for what other threads and processes do."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

NAP_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 240.0
"""Far longer than anything takes that will happen at all, on any machine."""
_ADDRESS: Final = re.compile(rb"^fuseplan: (http://\S+)", re.MULTILINE)
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for a condition, but not for ever.

    What is counted are naps: a machine that stands still meanwhile takes no time.
    """
    for _ in range(round(seconds / NAP_SECONDS)):
        if condition():
            return
        time.sleep(NAP_SECONDS)
    pytest.fail("it did not happen in time")


def when(condition: Callable[[], bool], action: Callable[[], object]) -> None:
    """Do something once a condition holds, in a thread of its own."""

    def watch() -> None:
        until(condition)
        action()

    threading.Thread(target=watch, daemon=True).start()


def address_of(process: subprocess.Popen[bytes], said: Path) -> str:
    """Where a service answers that chose its port itself.

    Args:
        process: the service.
        said: the file that holds what it says.
    """

    def found() -> bool:
        assert process.poll() is None, f"the service ended: {said.read_text()}"
        return _ADDRESS.search(said.read_bytes()) is not None

    until(found)
    told = _ADDRESS.search(said.read_bytes())
    assert told is not None
    return told.group(1).decode()


def processor_seconds(pid: int) -> float:
    """What all threads of a process have computed so far (proc(5), `stat`)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_A_SECOND


def when_busy(pid: int, action: Callable[[], object]) -> None:
    """Do something once a process that waits for a request works on one."""
    before = processor_seconds(pid)
    when(lambda: processor_seconds(pid) > before + 0.3, action)
