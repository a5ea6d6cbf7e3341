"""What asks: `wrk`, and what it saw."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ROUNDS: Final = 3
WARM_SECONDS: Final = 1.0
"""Of a run before the others that is not counted."""
CONNECTIONS: Final = 16
_UNITS: Final[Mapping[str, float]] = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What `wrk` saw."""

    per_second: float
    p99_seconds: float


def wrk(url: str, seconds: float, *headers: str, script: str = "") -> Load:
    """Ask a URL from as many connections as there may be, as fast as it answers.

    Raises:
        SystemExit: an answer was an error.
    """
    words = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{max(1, round(seconds))}s"]
    words += ["--latency", *(word for one in headers for word in ("-H", one))]
    words += ["-s", script] if script else []
    told = subprocess.run([*words, url], capture_output=True, text=True, check=True)
    if "Non-2xx" in told.stdout or "Socket errors" in told.stdout:
        raise SystemExit(f"{url}: {told.stdout}")
    rate = re.search(r"Requests/sec:\s+([\d.]+)", told.stdout)
    late = re.search(r"99%\s+([\d.]+)(us|ms|s|m)\b", told.stdout)
    if rate is None or late is None:
        raise SystemExit(f"wrk said: {told.stdout}")
    return Load(per_second=float(rate[1]), p99_seconds=float(late[1]) * _UNITS[late[2]])


def verdict(*, good: bool) -> str:
    """How a line ends."""
    return "ok" if good else "MISSED"
