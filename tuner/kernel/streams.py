"""Stores that go past the caches.

A processor that writes a cache line fetches it first, unless the whole line is written
at once and nothing is to be kept: then a third of the traffic of ``a = b + c`` is gone.
It pays for results that no cache would hold until they are read again, and it needs
whole lines at line borders, which is proved here from the index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.ir.types import DType
from tuner.kernel.index import runs
from tuner.kernel.nest import Group, Kind, LoopNest, Store

if TYPE_CHECKING:
    from tuner.kernel.mapping import Mapping

STREAM_BYTES: Final = 1 << 24
"""Smallest result that is streamed: private caches hold a part of it at most."""
STREAM_LANES: Final = 16
"""Neighbouring lanes that write together: a line of elements of four bytes."""
STREAMED: Final = (DType.F64, DType.F32, DType.I64, DType.I32)
"""Elements of four bytes at least, so that 16 lanes fill lines."""


def any_streams(nest: LoopNest) -> bool:
    """Whether some store of a kernel may go past the caches, lanes permitting."""
    return any(
        may_stream(nest, group, store)
        for group in nest.groups
        for store in group.stores
    )


def streams(nest: LoopNest, group: Group, mapping: Mapping, store: Store) -> bool:
    """Whether a store goes past the caches under a mapping."""
    return (
        mapping.streams
        and mapping.vector == 1
        and mapping.lanes % STREAM_LANES == 0
        and may_stream(nest, group, store)
    )


def may_stream(nest: LoopNest, group: Group, store: Store) -> bool:
    """Whether 16 lanes always write 16 neighbours that begin at a line border."""
    tensor = nest.tensors[store.tensor]
    if (
        tensor.dtype not in STREAMED
        or tensor.elements * tensor.dtype.bytes < STREAM_BYTES
    ):
        return False
    if group.kind not in (Kind.POINTWISE, Kind.ROW) or store.per_row or store.guards:
        return False
    along = runs(group.atoms, store.index, group.inner)
    if len(along) != 1 or along[0].below != 1 or along[0].coefficient != 1:
        return False
    inner = set(group.inner)
    rest = [c for atom, c in store.index.terms if atom not in inner]
    sizes = (along[0].extent, group.inner_points, store.index.constant, *rest)
    return all(size % STREAM_LANES == 0 for size in sizes)
