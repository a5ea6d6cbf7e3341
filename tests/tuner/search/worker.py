"""A worker that keeps the results of every batch in a file, and dies when it is told.

    python -m tests.tuner.search.worker FILE [BATCH MOMENT]

It goes on with what the file holds, and prints the digest of its plan in the end. It
kills itself with SIGKILL at a batch of its own: `before` its results are written, when
they are `torn`, or `after`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from tests.tuner.search.conftest import (
    digest_of,
    made_up_seconds,
    session_of,
    small_model,
)
from tuner.model import load
from tuner.runtime.null import NullRunner


def main(path: Path, dies_at: int, moment: str) -> None:
    """Tune to the end, or to death."""
    tuning = session_of(load(small_model()))
    with path.open("r+" if path.exists() else "w+") as file:
        whole = [line for line in file.read().splitlines(keepends=True) if "\n" in line]
        for line in whole:
            batch = tuning.propose()
            assert batch is not None
            tuning.observe(batch, json.loads(line))
        file.seek(sum(map(len, whole)))
        file.truncate()
        measured = 0
        while (batch := tuning.propose()) is not None:
            line = json.dumps(tuning.measure(batch, NullRunner(made_up_seconds)))
            _perhaps(dying=(measured, moment) == (dies_at, "before"))
            file.write(line[: len(line) // 2])
            file.flush()
            _perhaps(dying=(measured, moment) == (dies_at, "torn"))
            file.write(f"{line[len(line) // 2 :]}\n")
            file.flush()
            _perhaps(dying=(measured, moment) == (dies_at, "after"))
            tuning.observe(batch, json.loads(line))
            measured += 1
    sys.stdout.write(f"{measured} {digest_of(tuning)}\n")


def _perhaps(*, dying: bool) -> None:
    if dying:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    file, at, when = (*sys.argv[1:], "-1", "")[:3]
    main(Path(file), int(at), when)
