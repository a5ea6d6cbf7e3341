"""Commands of the pages, run as a reader would."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def run(text: str, folder: Path, environment: Mapping[str, str]) -> str:
    """Run commands in a shell that ends at the first one to fail.

    Returns:
        what they printed.
    """
    done = subprocess.run(
        ["bash", "-euc", text],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout
