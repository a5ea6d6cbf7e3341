"""Kernels cut where they wait for others, so that what does not wait can be joined."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.fusion.candidates import Candidate
from tuner.fusion.finishing import Finishing
from tuner.fusion.pieces import Priced
from tuner.fusion.view import View, bits, joined
from tuner.ir.ops import Pattern
from tuner.plan import Family


def parted(step: Finishing, kernels: Sequence[Priced]) -> list[Priced]:
    """Reductions without what waits for other kernels behind them, each by itself.

    A kernel that reduces, and then adds what others have reduced, waits for them: the
    norm of all gradients is such a chain. None of its kernels can run beside another.
    Cut behind the reductions they can, and what waits is joined with who reads it. By
    itself a cut costs a launch more.

    Args:
        step: which kernels may be, and what they cost.
        kernels: that can run in some order.
    """
    found: list[Priced] = []
    for kernel in kernels:
        found += _halves(step, kernel) or [kernel]
    return found


def _halves(step: Finishing, kernel: Priced) -> list[Priced]:
    """What of a kernel waits for no other, and what does; empty if it is not cut."""
    view, whole = step.view, kernel.candidate
    if whole.family is not Family.REDUCTION or not whole.needs:
        return []
    early = whole.mask & ~_waiting(view, whole)
    late, passed = _behind(view, whole.mask & ~early, early)
    first = whole.outputs & view.makes(early) | passed
    if not passed or not late:
        return []
    halves = (
        step.made(view.trimmed(early, first), first),
        step.made(late, whole.outputs & view.makes(late) & ~first),
    )
    return [half for half in halves if half is not None] if all(halves) else []


def _waiting(view: View, kernel: Candidate) -> int:
    """Nodes of a kernel that depend on what other kernels write."""
    found = 0
    for i in bits(kernel.mask):
        if view.reads[i] & kernel.needs or view.before[i] & found:
            found |= 1 << i
    return found


def _behind(view: View, late: int, early: int) -> tuple[int, int]:
    """Late nodes with what they need of the early ones, and the results that they read.

    Nothing is reduced twice: what was reduced is read, and all else computed again.
    """
    reads, passed = joined(view.reads, late), 0
    for i in reversed(list(bits(early))):
        if not view.made[i] & reads:
            continue
        if view.patterns[i] is Pattern.REDUCTION:
            passed |= view.made[i] & reads
        else:
            late |= 1 << i
            reads |= view.reads[i]
    return late, passed
