"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def report() -> dict[str, Any]:
    """Processor, memory, system and revision, as far as the system tells."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "processor": _field("/proc/cpuinfo", "model name"),
        "flags": _field("/proc/cpuinfo", "flags"),
        "processors": len(os.sched_getaffinity(0)),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "huge_pages": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
        "caches": _caches(),
        "governor": _text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "load_before": list(os.getloadavg()),
        "revision": _revision(),
    }


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return "not told"


def _field(path: str, name: str) -> str:
    for line in _text(path).splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "not told"


def _caches() -> dict[str, str]:
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = _text(f"{folder}/type")[:1].lower().replace("u", "")
        name = f"L{_text(f'{folder}/level')}{kind}"
        found[name] = _text(f"{folder}/size")
    return found


def _revision() -> str:
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.CalledProcessError):
        return "not told"
    return found.stdout.strip()
