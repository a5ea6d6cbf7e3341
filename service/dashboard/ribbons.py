"""Two plans as ribbons of time, one above the other: a drawing that needs no script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from service.dashboard.formats import duration, many
from service.dashboard.kernels import seconds_of

Json = Mapping[str, Any]

WIDTH: Final = 1000.0
"""Length of the longer plan, in drawing units."""

LEAST: Final = 3.0
"""Shorter kernels are drawn together with those behind them."""

MAX_NAMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A kernel, or a few short ones.

    Attributes:
        is_same: whether the other plan has the same kernels, doing the same nodes.
    """

    x: float
    width: float
    family: str
    is_same: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ribbon:
    """One plan from its first kernel to its last."""

    label: str
    pieces: tuple[Piece, ...]
    text: str


def ribbons(before: Json, after: Json) -> tuple[Ribbon, Ribbon]:
    """Both plans on one scale of time.

    Args:
        before: a plan's body.
        after: the body of another one, of the same graph or not.
    """
    sums = [sum(seconds_of(k) for k in plan["kernels"]) for plan in (before, after)]
    scale = WIDTH / (max(sums) or 1.0)
    nodes = [
        {tuple(sorted(k["nodes"])) for k in plan["kernels"]} for plan in (before, after)
    ]
    is_one_graph = before["graph"] == after["graph"]
    same = nodes[0] & nodes[1] if is_one_graph else set()
    return (
        _ribbon("before", before["kernels"], same, scale),
        _ribbon("after", after["kernels"], same, scale),
    )


def _ribbon(
    label: str, kernels: Sequence[Json], same: set[tuple[str, ...]], scale: float
) -> Ribbon:
    pieces: list[Piece] = []
    together: list[Json] = []
    x = 0.0
    for place, kernel in enumerate(kernels, start=1):
        together.append(kernel)
        width = scale * sum(map(seconds_of, together))
        if width >= LEAST or place == len(kernels):
            pieces.append(_piece(together, same, x, width))
            together, x = [], x + width
    whole = sum(map(seconds_of, kernels))
    text = f"{label}: {many(len(kernels), 'kernel')}, {duration(whole)}"
    return Ribbon(label=label, pieces=tuple(pieces), text=text)


def _piece(
    kernels: Sequence[Json], same: set[tuple[str, ...]], x: float, width: float
) -> Piece:
    longest = max(kernels, key=seconds_of)
    names = [kernel["name"] for kernel in kernels]
    told = ", ".join(names[:MAX_NAMES])
    if len(names) > MAX_NAMES:
        told += f" and {len(names) - MAX_NAMES} more"
    return Piece(
        x=round(x, 2),
        width=round(max(0.5, width - 0.6), 2),
        family=longest["family"],
        is_same=all(tuple(sorted(k["nodes"])) in same for k in kernels),
        text=f"{told}: {duration(sum(map(seconds_of, kernels)))}",
    )
