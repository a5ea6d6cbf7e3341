"""One kernel that the partition may choose, and how wide a space of them is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tuner.plan import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Breadth:
    """How wide the space of one zone is.

    Attributes:
        repeated: most units that a kernel computes again although others need them
            before it can run; None is no limit.
        optional: up to so many possible outputs every choice of outputs is tried, and
            every choice beside what the graph delivers; above, all of them, all but
            one, and one. With 0 a kernel writes all that
            others read.
    """

    repeated: int | None
    optional: int

    @property
    def words(self) -> str:
        """The rule in one line."""
        most = "any number of" if self.repeated is None else str(self.repeated)
        again = f"of what other kernels need first, {most} units are computed again"
        if not self.optional:
            return f"{again}; a kernel writes all that others read"
        return f"{again}; every choice of up to {self.optional} outputs"


BREADTHS: Final = (
    Breadth(repeated=None, optional=4),
    Breadth(repeated=1, optional=4),
    Breadth(repeated=1, optional=2),
    Breadth(repeated=0, optional=1),
    Breadth(repeated=0, optional=0),
)
"""Tried in this order; large graphs start with the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A legal kernel.

    Attributes:
        mask: nodes that it computes.
        outputs: tensors that it writes.
        needs: tensors of other kernels that it reads.
        family: who runs it.
    """

    mask: int
    outputs: int
    needs: int
    family: Family
