"""The bandwidth that plain C reaches: STREAM's triad on two threads or more.

Source: J. McCalpin, "Memory Bandwidth and Machine Balance in Current High Performance
Computers", IEEE TCCA Newsletter, 1995.
"""

from __future__ import annotations

import ctypes
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.worker import aligned

_FLAGS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")
_SOURCE = Path(__file__).with_name("triad.c")


class Library:
    """The system's C compiler."""

    def __init__(self) -> None:
        found = subprocess.run(
            ["gcc", "--version"],  # noqa: S607 - whichever the system has
            capture_output=True,
            text=True,
            check=True,
        )
        self.version = found.stdout.splitlines()[0]
        self.setting = " ".join(_FLAGS[:3])

    def load(self, folder: Path, about: dict[str, Any]) -> Loaded:
        """Compile, and lay out three arrays of the case's bytes together."""
        made = folder / "triad.so"
        command = ["gcc", *_FLAGS, str(_SOURCE), "-o", str(made)]
        subprocess.run(command, check=True)
        return Loaded(ctypes.CDLL(str(made)), about["total_bytes"], about["threads"])


class Loaded:
    """Three arrays."""

    def __init__(self, library: Any, total_bytes: int, threads: int) -> None:
        count = max(total_bytes // 12, 1)
        self._arrays = [aligned(np.ones(count, np.float32)) for _ in range(3)]
        self._triad = library.triad
        self._triad.restype = None
        places = [ctypes.c_void_p(array.ctypes.data) for array in self._arrays]
        self._arguments = (*places, ctypes.c_long(count), ctypes.c_int(threads))
        self.details = {"moved_bytes": 12 * count}

    def elapsed(self, calls: int) -> float:
        """Run so often."""
        start = time.perf_counter()
        for _ in range(calls):
            self._triad(*self._arguments)
        return time.perf_counter() - start

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Nobody checks them."""
        return []


def open_library(peer: str) -> Library:
    """Look for the compiler."""
    del peer
    return Library()
