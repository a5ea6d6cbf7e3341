"""What the best plan with the other choice for two nodes does differently, in a line.

Both plans are stored bodies of one graph; what is said of them is in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = Mapping[str, Any]

VIEWS: Final = ("reshape",)
"""Operators that compute nothing."""
CALLED: Final = ("library", "opaque")
"""Families whose kernels are a library's: what they hold is not known."""
ONE_TO_ONE: Final = 1.05
"""Up to so many times the bytes of its tensors a kernel draws from memory: no more is
said of its accesses."""


def opposite(ours: Json, other: Json, nodes: Sequence[str]) -> str:
    """Bytes, launches, repeated work and memory, and the kernels of the two nodes.

    Args:
        ours: the plan as it is.
        other: the best one in which the two nodes are the other way round.
        nodes: canonical ids of the two.
    """
    moved = other["traffic_bytes"] - ours["traffic_bytes"]
    launched = len(other["kernels"]) - len(ours["kernels"])
    told = [f"moves {moved:+d} bytes", f"launches {launched:+d} kernels"]
    repeated = _repeated(other) - _repeated(ours)
    if repeated:
        told.append(f"computes {repeated:+d} nodes again")
    held = other["peak_memory_bytes"] - ours["peak_memory_bytes"]
    if held:
        told.append(f"holds {held:+d} bytes at its peak")
    there, here = _slowest(other, nodes), _slowest(ours, nodes)
    return (
        f"the other choice {', '.join(told)}; the slowest kernel of the two there"
        f" {_kernel(there)}, here {_kernel(here)}"
    )


def _repeated(body: Json) -> int:
    """How often some node is computed beyond the first time."""
    views = {node["id"] for node in body["graph"]["nodes"] if node["op"] in VIEWS}
    computed = [n for k in body["kernels"] for n in k["nodes"] if n not in views]
    return len(computed) - len(set(computed))


def _slowest(body: Json, nodes: Sequence[str]) -> Json:
    """The kernel that takes longest of those that hold one of the nodes."""
    held = [k for k in body["kernels"] if not set(nodes).isdisjoint(k["nodes"])]
    return max(held, key=lambda kernel: kernel["estimate"]["seconds"])


def _kernel(kernel: Json) -> str:
    """What a kernel is short of."""
    estimate = kernel["estimate"]
    if kernel["family"] in CALLED:
        return f"({kernel['family']}) is bound by {estimate['bound_by']}"
    occupancy = (
        f"{estimate['occupancy']:.0%} occupied ({estimate['occupancy_limiter']})"
    )
    told = [f"{kernel['registers']} registers", occupancy]
    drawn = estimate["dram_bytes"] / max(1, kernel["traffic_bytes"])
    if drawn > ONE_TO_ONE:
        told.append(f"{drawn:.1f} bytes drawn for one that is used")
    if estimate["spill_bytes"]:
        told.append(f"{estimate['spill_bytes']} bytes spilled")
    return f"({', '.join(told)}) is bound by {estimate['bound_by']}"
