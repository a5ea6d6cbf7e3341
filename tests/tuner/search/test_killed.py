"""Workers that die by SIGKILL: who comes after them goes on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.tuner.search.conftest import Log, digest_of
from tuner.search.session import TuningSession

ROOT = Path(__file__).parents[3]
DEATHS = 10
MOMENTS = ("before", "torn", "after")


def _worker(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.tuner.search.worker", str(path), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_killed_workers_lose_one_batch_each_at_most(
    tmp_path: Path, finished: tuple[TuningSession, Log], soak: bool
) -> None:
    """Deaths at seeded points, half-written results among them: the plan is the same.

    One after the other goes on in one run; nothing that was written is measured again.
    """
    whole, log = finished
    source = random.Random(6)
    deaths, path, batches = (DEATHS if soak else 2), tmp_path / "log", len(log)
    kept = 0
    for death in range(deaths):
        reach = max(1, (batches - kept) // (deaths - death + 1))
        at, moment = source.randrange(reach), source.choice(MOMENTS)
        assert _worker(path, str(at), moment).returncode == -signal.SIGKILL
        written = path.read_text().count("\n")
        assert written == kept + at + (moment == "after")
        kept = written
    ended = _worker(path)
    assert ended.stdout.split() == [str(batches - kept), digest_of(whole)], ended.stderr
    assert path.read_text().count("\n") == batches
