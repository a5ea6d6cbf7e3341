"""What every group's text begins with: which block of it this is, values, stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tuner.kernel.render.collective import Collectives
from tuner.kernel.render.stores import Stores
from tuner.kernel.render.values import Values

if TYPE_CHECKING:
    from tuner.kernel.render.scope import Scope


class BlockText(ABC):
    """Writes one group of a kernel for the threads of a block.

    The names in the text: ``block`` of the grid, ``part`` of the group, ``lane`` and
    ``team`` of the thread, ``q``, ``i``, ``p``, ``r`` for positions in the outer loops,
    the rows, the inner and the serial loops, ``v3`` for value 3.

    Attributes:
        scope: the group.
        collectives: helper functions that its threads meet in.
        values, stores: what is computed, and what is written.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.group = scope.group
        self.mapping = scope.mapping
        self.dialect = scope.dialect
        self.lines = scope.lines
        self.collectives = Collectives(scope.mapping, scope.dialect, scope.suffix)
        self.values = Values(scope, self._partial)
        self.stores = Stores(scope, self.values)

    @abstractmethod
    def write(self) -> None:
        """Write the whole group."""

    @abstractmethod
    def _partial(self, reduction: int, copy: int) -> str:
        """Name of a reduction's partial result."""

    def _declare_part(self, first_block: int) -> None:
        text = f"block - {first_block}" if first_block else "block"
        self.scope.declare("part", text)
