"""Work counted in lines that ran: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def lines_run(module: ModuleType, call: Callable[[], object]) -> int:
    """How many lines of a module ran during a call."""
    count = 0
    before = sys.gettrace()

    def local(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def trace(frame: FrameType, _: str, __: Any) -> Any:
        return local if frame.f_code.co_filename == module.__file__ else None

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
