"""A process that reads models, and finds two bounds refuted each time.

`tests.service.jobs.test_reader` starts it in the place of the service's own.
"""

from __future__ import annotations

import sys
import warnings
from multiprocessing.connection import Connection

from service.jobs.planning import Planner, Prepared, Question
from service.jobs.reader_child import Reader, serve
from tuner.fusion.soundness import believed


class Doubting(Planner):
    """A planner that warns as the real one does, and as a library that it uses may."""

    def prepare(self, question: Question) -> Prepared:
        """Read a model, and find the bound of something wrong."""
        for _ in range(2):
            believed(2.0, 1.0, where="bound of a test")
            warnings.warn("a sum overflows", RuntimeWarning, stacklevel=1)
        return super().prepare(question)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), Reader(Doubting(plan_seconds=5.0)))
