"""What other strategies would choose, with the same kernels and the same prices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tuner.fusion.legality import Limits, Profile, Refusal, Rules
from tuner.fusion.order import launch_order
from tuner.fusion.tvm import tvm_groups
from tuner.fusion.units import whole_composites
from tuner.fusion.view import View
from tuner.ir.graph import Graph, Region
from tuner.plan import Choice, Family

Price = Callable[[Region, Family], float]


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
    """The finest grouping that the rules allow."""
    view = rules.view
    if rules.profile == "reference":
        return whole_composites(view)
    return [1 << i for i in range(len(view.nodes))]
