"""Lines that appear at once, whoever reads them."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
