"""What the order of kernels changes: which operands the last cache still holds.

A kernel's own price takes residency from the size of each operand alone, so that
prices add up and a partition can be searched. Here the kernels of a finished plan run
one after the other through a cache that forgets what was touched least recently, and
every kernel is priced again with what it then finds.

Source: R. L. Mattson et al., "Evaluation techniques for
storage hierarchies", IBM Systems Journal 9(2), 1970: an access hits when the bytes
touched since the last access to the same data fit in the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost_model.roofline import predict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cost_model.device import Device, LaunchMode
    from cost_model.work import Access, Work


def whole_seconds(
    works: Sequence[Work], device: Device, *, launch_mode: LaunchMode = "stream"
) -> float:
    """Predicted time of kernels in this order, run again and again.

    Args:
        works: in launch order; `Access.tensor` says which operands are the same.
        device: its caches.
        launch_mode: alone in a stream, or inside a recorded graph.
    """
    if device.kind == "ideal":
        return sum(predict(work, device).seconds for work in works)
    return sum(
        predict(work, device, launch_mode=launch_mode, held=held).seconds
        for work, held in zip(works, residency(works, device), strict=True)
    )


def residency(works: Sequence[Work], device: Device) -> tuple[tuple[float, ...], ...]:
    """Share of each operand in the last-level cache when its kernel starts.

    The sequence is walked twice and the second walk counts: what one run leaves in the
    cache, the next one finds.
    """
    cache = _Recency(device.l2_bytes)
    found: list[tuple[float, ...]] = []
    for _ in range(2):
        found = []
        for index, work in enumerate(works):
            names = [_name(access, index, k) for k, access in enumerate(work.accesses)]
            sizes = [max(a.sector_bytes, a.unique_bytes) for a in work.accesses]
            shares = map(cache.held, names, sizes)
            found.append(tuple(shares))
            for name, size in zip(names, sizes, strict=True):
                cache.touch(name, size)
    return tuple(found)


def _name(access: Access, kernel: int, operand: int) -> str:
    """An operand without a name is no other kernel's operand."""
    return access.tensor or f"#{kernel}.{operand}"


class _Recency:
    """Tensors in order of their last use, oldest first."""

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity = capacity_bytes
        self._sizes: dict[str, int] = {}

    def touch(self, name: str, nbytes: int) -> None:
        self._sizes.pop(name, None)
        self._sizes[name] = nbytes

    def held(self, name: str, nbytes: int) -> float:
        if name not in self._sizes or not nbytes:
            return 0.0
        if nbytes > self._capacity:
            # Walked from its start, it evicts each part just before that is needed.
            return 0.0
        since = 0
        for other in reversed(self._sizes):
            if other == name:
                break
            since += self._sizes[other]
        return min(1.0, max(0.0, (self._capacity - since) / nbytes))
