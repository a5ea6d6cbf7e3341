"""Whether tests run at full length is asked in one place."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def test_full_length_means_the_same_to_all_tests() -> None:
    """`FUSEPLAN_SOAK=0`, or an empty one, may not make some of them long."""
    asking = 'environ.get("' + 'FUSEPLAN_SOAK"'
    readers = [path for path in HERE.rglob("*.py") if asking in path.read_text()]
    assert readers == [HERE / "conftest.py"]
