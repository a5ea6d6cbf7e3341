"""The pattern graphs through the whole planner, for one target after another.

On `ideal` bytes are the cost: under `reference` a plan moves the golden's, under `full`
no more. On a device pairs that must share a kernel do, and pairs that must not do not,
unless the generator avoids the harm and the pair apart takes longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.tuner.fusion.pattern_plans import checker, checker_kernel, goldens
from tuner import document
from tuner.assembly import limits_for
from tuner.errors import ConstraintsUnsatisfiable
from tuner.frontend.onnx import read_onnx
from tuner.fusion.baselines import unfused
from tuner.fusion.legality import Profile
from tuner.fusion.view import homes
from tuner.model import Model
from tuner.pipeline import Planner, load, resolve_target
from tuner.plan import Options, Pin, Plan, PlannedKernel
from tuner.pricing import Pricer

TARGET = "sm_90"
TIME_LIMIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan of a pattern, and its kernels in the judge's words."""

    model: Model
    plan: Plan
    kernels: Sequence[Any]


@cache
def planned(
    path: Path, target: str, *, legality: Profile = "full", pins: tuple[Pin, ...] = ()
) -> Planned:
    """What the planner makes of a pattern's file; asked again, the same."""
    judged = checker(path.parent).Graph.load(path)
    training = "train" in path.stem
    model = load(path.read_bytes(), "onnx", training=training)
    options = Options(
        mode="training" if training else "inference",
        legality=legality,
        pins=pins,
    )
    planner = Planner(
        model=model,
        device=resolve_target(target),
        options=options,
        time_limit_seconds=TIME_LIMIT_SECONDS,
    )
    plan = planner.plan(planner.solve())
    view = document.joined(document.body(plan, target={}, toolchain={}), model.names)
    kernels = [
        checker_kernel(
            tuple(name for name in kernel["nodes"] if name in judged.ops),
            tuple(_tensors(judged, model, stored.region.outputs)),
        )
        for kernel, stored in zip(view["kernels"], plan.kernels, strict=True)
    ]
    return Planned(model=model, plan=plan, kernels=kernels)


def _tensors(judged: Any, model: Model, outputs: Sequence[str]) -> list[str]:
    """Tensors of a plan by names that the judge knows: their own, or a view's."""
    home = homes(model.graph)
    found = []
    for tensor in outputs:
        views = [view for view, source in home.items() if source == tensor]
        names = [n for id_ in (tensor, *views) for n in model.names.get(id_, ())]
        found.append(next((n for n in names if n in judged.tensors), tensor))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Bytes of plans on `ideal`.

    Attributes:
        reported: by the plan of the reference rules.
        judged: by the checker, of that plan.
        full: by the plan of all families, which may split a node of the user's: of
            such kernels the checker knows nothing.
        faults: rules of the checker that the plan of the reference rules breaks.
    """

    name: str
    reported: int
    judged: int
    full: int
    golden: int
    faults: Sequence[str]


def moved(path: Path) -> Moved:
    """What plans on `ideal` move."""
    module, found = checker(path.parent), planned(path, "ideal", legality="reference")
    report = module.check_plan(module.Graph.load(path), list(found.kernels))
    return Moved(
        name=path.stem,
        reported=found.plan.traffic_bytes,
        judged=report.traffic,
        full=planned(path, "ideal", legality="full").plan.traffic_bytes,
        golden=goldens(path.parent)[path.stem]["optimal_traffic_bytes"],
        faults=tuple(report.faults),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two nodes of a golden, and what a plan does with them.

    Attributes:
        must: whether they must share a kernel; else they must not.
        together: whether they do.
        unless: what a generator may do that makes them welcome in one kernel.
        seconds: of the plan.
        apart_seconds: of the best one with them apart, where they are together
            although they must not be.
        schedule: knobs of the kernel that holds both, in that case.
    """

    nodes: tuple[str, str]
    must: bool
    together: bool
    unless: str = ""
    seconds: float = 0.0
    apart_seconds: float = 0.0
    schedule: str = ""

    @property
    def is_kept(self) -> bool:
        """As the golden says, or better for it by the generator's means."""
        if self.must == self.together:
            return True
        return bool(not self.must and self.unless) and self.seconds < self.apart_seconds


def pairs(path: Path, target: str = TARGET) -> list[Pair]:
    """What a plan does with the pairs of a pattern."""
    golden = goldens(path.parent)[path.stem]
    wanted = [(pair, True) for pair in golden.get("must", ())]
    wanted += [(pair, False) for pair in golden.get("must_not", ())]
    if not wanted:
        return []
    found, sharing = planned(path, target), checker(path.parent).sharing
    told = []
    for pair, must in wanted:
        together = sharing(found.kernels, pair["nodes"])
        first, second = pair["nodes"]
        one = Pair(
            nodes=(first, second),
            must=must,
            together=together,
            unless=pair.get("unless", ""),
        )
        told.append(_defended(path, target, found, one) if _is_bad(one) else one)
    return told


def _is_bad(pair: Pair) -> bool:
    return pair.together and not pair.must


def _defended(path: Path, target: str, found: Planned, pair: Pair) -> Pair:
    """A pair that must not be together, with what speaks for it."""
    kernel = holder(found, pair.nodes)
    return Pair(
        nodes=pair.nodes,
        must=pair.must,
        together=pair.together,
        unless=pair.unless,
        seconds=found.plan.partition.objective_seconds,
        apart_seconds=apart_seconds(path, target, pair.nodes),
        schedule=" ".join(f"{k}={v}" for k, v in kernel.schedule.knobs),
    )


def holder(found: Planned, nodes: Sequence[str]) -> PlannedKernel:
    """The kernel of a plan that holds these nodes of the user's."""
    for kernel, judged in zip(found.plan.kernels, found.kernels, strict=True):
        if set(nodes) <= set(judged.nodes):
            return kernel
    raise AssertionError(f"no kernel holds {nodes}")


def apart_seconds(path: Path, target: str, nodes: Sequence[str]) -> float:
    """Cost of the best plan in which two nodes are apart.

    Where simplification has made them one node, that of the graph as it was written,
    each operator in a kernel of its own.
    """
    model = load(path.read_bytes(), "onnx", training="train" in path.stem)
    first, second = (model.node_id(name) for name in nodes)
    if first == second:
        return unsimplified_seconds(path, target)
    pin = Pin(fuse=False, nodes=(first, second))
    try:
        apart = planned(path, target, pins=(pin,))
    except ConstraintsUnsatisfiable:
        return unsimplified_seconds(path, target)
    return apart.plan.partition.objective_seconds


def unsimplified_seconds(path: Path, target: str) -> float:
    """The graph as written, each operator in a kernel of its own."""
    graph, device = read_onnx(path.read_bytes()).graph, resolve_target(target)
    pricer, limits = Pricer(graph, device, Options()), limits_for(device, Options())
    choices = unfused(graph, pricer.seconds, profile="full", limits=limits)
    return sum(choice.seconds for choice in choices)
