"""What other strategies would choose, with the same kernels and the same prices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from tuner.errors import ConstraintsUnsatisfiable
from tuner.fusion.candidates import Candidate
from tuner.fusion.columns import Columns
from tuner.fusion.grouping import Grouping
from tuner.fusion.inductor import inductor_groups
from tuner.fusion.legality import Limits, Profile, Refusal, Rules
from tuner.fusion.order import launch_order
from tuner.fusion.pieces import Priced
from tuner.fusion.pins import Pins
from tuner.fusion.repair import repaired
from tuner.fusion.trim import SOLVER_TOLERANCE
from tuner.fusion.tvm import tvm_groups
from tuner.fusion.units import whole_composites
from tuner.fusion.view import View, bits
from tuner.fusion.xla import xla_groups
from tuner.ir.graph import Graph, Region
from tuner.plan import Choice, Family

Price = Callable[[Region, Family], float]
_HINT: Final = (
    "give it fewer operands, or take another device; under full legality a user's"
    " operator may be several kernels"
)
"""What to do where an operator alone is too much for a kernel."""


class Strategy(Protocol):
    """A way to group operators, some perhaps several times, into legal kernels."""

    def __call__(
        self, rules: Rules, base: Sequence[int], *, out_of_time: Callable[[], bool]
    ) -> Grouping:
        """Kernels in an order in which they can run."""


GREEDY: Final[Mapping[str, Strategy]] = MappingProxyType(
    {"xla": xla_groups, "inductor": inductor_groups}
)
"""Strategies that compute nodes again or write several results, by name."""


def greedy(
    rules: Rules,
    columns: Columns,
    base: Sequence[int],
    out_of_time: Callable[[], bool],
    *,
    known: dict[str, Grouping] | None = None,
) -> dict[str, list[Priced]]:
    """What each greedy strategy would choose, priced; none that time does not allow.

    Args:
        rules: which kernels are legal.
        columns: prices.
        base: operators, or groups of them.
        out_of_time: whether to end.
        known: what the strategies joined before; what was not cut short is added.
    """
    known = {} if known is None else known
    found = {}
    for name, strategy in GREEDY.items():
        if name not in known and not out_of_time():
            grouping = strategy(rules, base, out_of_time=out_of_time)
            found[name] = _priced(rules, columns, base, grouping)
            if not out_of_time():
                known[name] = grouping
        elif name in known:
            found[name] = _priced(rules, columns, base, known[name])
    return found


def _priced(
    rules: Rules, columns: Columns, base: Sequence[int], grouping: Grouping
) -> list[Priced]:
    """Kernels with prices; one that no kernel of ours can run falls apart."""
    found = []
    for mask, outputs in grouping:
        priced = _column(rules, columns, mask, outputs)
        if math.isfinite(priced.seconds) or mask in base:
            found.append(priced)
            continue
        parts = [unit for unit in base if unit & mask]
        found += columns.of_groups(parts)
    return found


def _column(rules: Rules, columns: Columns, mask: int, outputs: int) -> Priced:
    family = rules.judge(mask, outputs)
    assert not isinstance(family, Refusal), family
    needs = rules.view.needs(mask)
    return columns.price(
        Candidate(mask=mask, outputs=outputs, needs=needs, family=family)
    )


def cheapest(
    chosen: list[Priced],
    others: Mapping[str, list[Priced]],
    pins: Pins,
    moved_bytes: Callable[[Candidate], int],
) -> list[Priced]:
    """What was chosen, or a better strategy that keeps the user's pins.

    Better is cheaper; where costs are equal but for the solver's tolerance, fewer
    bytes, then fewer kernels.
    """

    def rank(kernels: Sequence[Priced]) -> tuple[int, int]:
        return sum(moved_bytes(k.candidate) for k in kernels), len(kernels)

    best = chosen
    for kernels in others.values():
        least, seconds = (
            math.fsum(kernel.seconds for kernel in each) for each in (best, kernels)
        )
        if not pins.keep([(k.candidate.mask, k.candidate.outputs) for k in kernels]):
            continue
        is_equal = abs(seconds - least) <= SOLVER_TOLERANCE * least
        if rank(kernels) < rank(best) if is_equal else seconds < least:
            best = kernels
    return best


def constrained(
    rules: Rules,
    columns: Columns,
    base: Sequence[int],
    pins: Pins,
    known: Mapping[str, Sequence[Priced]],
) -> dict[str, list[Priced]]:
    """What strategies would choose if they had to keep the user's pins, too.

    A kernel that breaks a pin or a ban is cut into the largest runs of operators that
    keep them; nodes that must share a kernel get one. A strategy that cannot be made
    to keep them is left as it is.
    """
    found = {}
    for name, kernels in known.items():
        found[name] = list(kernels)
        keys = [(k.candidate.mask, k.candidate.outputs) for k in kernels]
        if pins.keep(keys):
            continue
        grouping = repaired(rules, pins, base, keys)
        priced = [_column(rules, columns, *key) for key in grouping or ()]
        if priced and all(math.isfinite(kernel.seconds) for kernel in priced):
            found[name] = priced
    return found


def unfused(
    graph: Graph, price: Price, *, profile: Profile, limits: Limits
) -> tuple[Choice, ...]:
    """Every primitive that computes in a kernel of its own, in launch order.

    Composites are taken apart: this is what a run-time library without fusion does.
    Under the reference rules the user's nodes stay whole.
    """
    view = View(graph)
    rules = Rules(view, profile, limits)
    return choices_of(rules, unfused_groups(rules), price)


def tvm(
    graph: Graph, price: Price, *, profile: Profile, limits: Limits
) -> tuple[Choice, ...]:
    """Groups by the rules of TVM's FuseOps; see `tuner.fusion.tvm`."""
    rules = Rules(View(graph), profile, limits)
    return choices_of(rules, tvm_groups(rules, unfused_groups(rules)), price)


def choices_of(rules: Rules, groups: Sequence[int], price: Price) -> tuple[Choice, ...]:
    """Kernels of a grouping without recomputation, priced, in launch order."""
    view = rules.view
    found = []
    for mask in groups:
        outputs = view.wanted(mask)
        family = rules.judge(mask, outputs)
        assert not isinstance(family, Refusal), family
        region = view.region(mask, outputs)
        found.append(
            Choice(region=region, family=family, seconds=price(region, family))
        )
    return launch_order(view.graph, found)


def unfused_groups(rules: Rules) -> list[int]:
    """The finest grouping that the rules allow.

    Raises:
        ConstraintsUnsatisfiable: a group of it cannot be a kernel: nothing can run it.
    """
    view = rules.view
    if rules.profile == "reference":
        groups = whole_composites(view)
    else:
        groups = [1 << i for i in range(len(view.nodes))]
    for mask in groups:
        answer = rules.judge(mask, view.wanted(mask))
        if isinstance(answer, Refusal):
            raise ConstraintsUnsatisfiable(
                view.nodes[next(bits(mask))].name, answer.reason, hint=_HINT
            )
    return groups
