"""A worker whose steps leave a line each, to be killed by a test.

Usage: `python -m tests.service.jobs.counting URL LOG STEPS SECONDS`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from service.app import now
from service.jobs.attempts import Attempts
from service.jobs.engine import VERSION, Engine, Step
from service.store import connect

QUEUE = "tune.test"


def new_engine(
    url: str,
    run: Callable[[str, Step], str],
    *,
    executor: str = "h/null",
    queue: str = QUEUE,
    version: str = VERSION,
) -> Engine:
    """An engine on a database that has all tables."""
    return Engine(
        url=url,
        executor=executor,
        queues=(queue,),
        run=run,
        attempts=Attempts(database=connect(url), clock=now),
        version=version,
    )


def main(url: str, log: Path, steps: int, seconds: float) -> None:
    """Serve the queue until the process is killed."""

    def run(job: str, step: Step) -> str:
        for number in range(steps):

            def write(number: int = number) -> int:
                time.sleep(seconds)
                with log.open("a") as file:
                    file.write(f"{job} {number}\n")
                return number

            assert step(f"step-{number}", write) == number
        with log.open("a") as file:
            file.write(f"{job} done\n")
        return "succeeded"

    engine = new_engine(url, run, executor="test/null")
    engine.start()
    sys.stdout.write("started\n")
    sys.stdout.flush()
    time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
