"""What every cut of a plan costs: all tensors that pass between kernels, priced.

The price is the one that `explain` gives for the two kernels of a cut: at most what one
kernel in their place would save, before what holding both in it costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from service.jobs.explaining import priced_bytes, priced_seconds

Json = Mapping[str, Any]


def cuts(body: Json) -> list[dict[str, Any]]:
    """Every pair of kernels that exchange tensors, in launch order.

    Args:
        body: stored body of a plan.

    Returns:
        For each pair its kernels `a` and `b`, the tensors, their `bytes`, and the
        bytes, launches and seconds that one kernel in their place would change.
    """
    readers: dict[str, int] = defaultdict(int)
    for kernel in body["kernels"]:
        for tensor in kernel["inputs"]:
            readers[tensor] += 1
    maker: dict[str, str] = {}
    found = []
    for kernel in body["kernels"]:
        crossing: dict[str, list[str]] = defaultdict(list)
        for tensor in dict.fromkeys(kernel["inputs"]):
            if tensor in maker:
                crossing[maker[tensor]].append(tensor)
        found += [
            _cut(body, a, kernel["name"], tensors, readers)
            for a, tensors in crossing.items()
        ]
        maker.update(dict.fromkeys(kernel["outputs"], kernel["name"]))
    return found


def _cut(
    body: Json, a: str, b: str, tensors: Sequence[str], readers: Mapping[str, int]
) -> dict[str, Any]:
    sizes = {tensor: priced_bytes(body, tensor) for tensor in tensors}
    outputs = frozenset(body["graph"]["outputs"])
    saved = sum(
        size * (1 if tensor in outputs or readers[tensor] > 1 else 2)
        for tensor, size in sizes.items()
    )
    seconds = priced_seconds(body, saved, launches=1)
    return {
        "a": a,
        "b": b,
        "tensors": list(tensors),
        "bytes": sum(sizes.values()),
        "extra_bytes": -saved,
        "extra_launches": -1,
        "extra_seconds": None if seconds is None else -seconds,
    }
