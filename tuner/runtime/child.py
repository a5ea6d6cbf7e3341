"""Start of the runner's child process; sets limits before anything heavy is loaded.

Run as ``python -m tuner.runtime.child DEVICE PIPE LIFELINE THREADS``, with two
inherited file descriptors.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Final

_SINGLE: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Pools that compute nothing that is timed; idle threads of theirs would disturb."""


def main(arguments: list[str]) -> int:
    """Serve one runner until its pipe closes."""
    device, pipe, lifeline, threads = arguments
    for name in _SINGLE:
        os.putenv(name, "1")
    threading.Thread(target=_follow, args=(int(lifeline),), daemon=True).start()
    server = importlib.import_module("tuner.runtime.server")
    server.serve(device, int(pipe), int(threads))
    return 0


def _follow(lifeline: int) -> None:
    """Die with the parent, whatever a kernel is doing: its end of the pipe closes."""
    os.read(lifeline, 1)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
