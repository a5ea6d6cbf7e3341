"""The planner, step by step: one page that says in which order the parts work."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import Final

from cost_model.catalog import ALIASES, DEVICES, UnknownDevice, find
from cost_model.device import Device, base_of
from tuner.assembly import Assembler, Compile, Tuned, assemble, limits_for
from tuner.compilation import compiler_for
from tuner.errors import ConstraintsUnsatisfiable, UnknownTarget
from tuner.fusion.bans import Restriction
from tuner.fusion.baselines import unfused
from tuner.fusion.capped import solve_capped
from tuner.fusion.custom import wishes
from tuner.fusion.effort import STEPS
from tuner.fusion.partition import Partitioner, Solution
from tuner.fusion.traffic import traffic
from tuner.ir.custom import FusionRule
from tuner.ir.graph import Region
from tuner.keys import PlanKey
from tuner.keys import plan_key as key_of
from tuner.model import Model, load
from tuner.plan import CandidateSpace, Family, Options, Partition, Pin, Plan
from tuner.pricing import Pricer, floor_of

__all__ = ["Model", "Planner", "load", "make_plan", "plan_key", "resolve_target"]

CAPPED_STEPS: Final = 2 * STEPS
"""Work after which no further problem is solved for one memory cap."""
Price = Callable[[Region, Family], float]
_ID: Final = re.compile(r"\b[nt]\d+\b")
"""A canonical id of a node or a tensor."""


def resolve_target(name: str) -> Device:
    """A device of the catalogue by id or alias.

    Raises:
        UnknownTarget: there is none; the message lists them.
    """
    try:
        return find(name)
    except UnknownDevice as error:
        raise UnknownTarget(
            name, "no such device", hint=f"known targets: {known_targets()}"
        ) from error


def known_targets() -> str:
    """Ids and aliases of the catalogue, for messages."""
    return ", ".join([*DEVICES, *ALIASES])


def rule_targets() -> frozenset[str]:
    """What a fusion rule may call a device: id, alias or architecture."""
    architectures = (device.architecture for device in DEVICES.values())
    return frozenset((*DEVICES, *ALIASES, *architectures))


def holds_on(rule: FusionRule, device: Device) -> bool:
    """Whether a fusion rule holds on a device."""
    base = base_of(device.id)
    called = {base, device.architecture}
    called.update(alias for alias, name in ALIASES.items() if name == base)
    return not rule.targets or not called.isdisjoint(rule.targets)


def in_names(error: ConstraintsUnsatisfiable, model: Model) -> ConstraintsUnsatisfiable:
    """The same about the user's nodes and tensors, in place of canonical ids."""

    def name(id_: str) -> str:
        return next(iter(model.names.get(id_, ())), id_)

    problem, hint = (
        _ID.sub(lambda found: name(found[0]), text)
        for text in (error.problem, error.hint)
    )
    return ConstraintsUnsatisfiable(name(error.where), problem, hint=hint)


def plan_key(model: Model, target: str | Device, options: Options) -> PlanKey:
    """The key of a model's plan; pins must be canonical ids already."""
    device = target if isinstance(target, Device) else resolve_target(target)
    return key_of(model.fingerprint, device, options)


@dataclass
class Planner:
    """Solves and assembles plans of one model on one device, again and again.

    A planner remembers prices, generated kernels and all of a problem that no price
    changes, so that a second solve with other costs is quick.
    """

    model: Model
    device: Device
    options: Options
    compile_sources: Compile | None = None
    time_limit_seconds: float | None = None
    steps: float | None = None
    clock: Callable[[], float] = perf_counter

    def __post_init__(self) -> None:
        """Make the parts that are kept."""
        rules = [r for r in self.options.rules.fusion if holds_on(r, self.device)]
        self.wishes = wishes(self.model.graph, rules, self.model.kinds)
        self.required = [rule.name for rule in rules if rule.action == "require"]
        self.pricer = Pricer(self.model.graph, self.device, self.options)
        self.floor = floor_of(self.device, self.options, self.pricer)
        self.partitioner = Partitioner(
            self.model.graph,
            profile=self.options.legality,
            limits=limits_for(self.device, self.options),
            clock=self.clock,
        )
        self.assembler = Assembler(
            self.model.graph,
            self.device,
            self.options,
            compile_sources=self.compile_sources,
        )

    def price(self, region: Region, family: Family) -> float:
        """The objective: predicted seconds, or on `ideal` bytes moved.

        Infinite where no kernel can be generated, on `ideal` too.
        """
        if self.device.kind == "ideal":
            if math.isinf(self.pricer.seconds(region, family)):
                return math.inf
            return traffic(self.model.graph, region).total_bytes * 1e-12
        return self.pricer.seconds(region, family)

    def solve(self, price: Price | None = None) -> Solution:
        """The best partition under a price; by default the cost model's.

        Raises:
            ConstraintsUnsatisfiable: pins, rules or the memory cap leave none.
        """
        try:
            return self._solve_capped(price or self.price)
        except ConstraintsUnsatisfiable as error:
            raise in_names(error, self.model) from error

    def _solve_capped(self, price: Price) -> Solution:
        cap = self.options.memory_cap_bytes
        if cap is None:
            return self._solve(price)
        limit = self.time_limit_seconds
        end = self.clock() + limit if limit is not None else math.inf
        steps = CAPPED_STEPS if limit is None else math.inf
        most = self.partitioner.spent + (2 * self.steps if self.steps else steps)
        return solve_capped(
            self.model.graph,
            price,
            self._solve,
            cap_bytes=cap,
            fallbacks=self._unpinned,
            out_of_time=lambda: self.partitioner.spent > most or self.clock() > end,
        )

    def _solve(
        self, price: Price, restrictions: Sequence[Restriction] = ()
    ) -> Solution:
        """The best partition, whatever memory it takes."""
        try:
            return self.partitioner.solve(
                price,
                pins=(*self.options.pins, *self.wishes, *restrictions),
                time_limit_seconds=self.time_limit_seconds,
                steps=self.steps,
                floor=self.floor if price == self.price else None,
            )
        except ConstraintsUnsatisfiable as error:
            if not self.required:
                raise
            raise ConstraintsUnsatisfiable(
                f"rules {', '.join(self.required)}", str(error)
            ) from error

    @property
    def must_fuse(self) -> bool:
        """Whether pins or rules demand fusion, so that nobody may run without it."""
        pins = (*self.options.pins, *self.wishes)
        return any(isinstance(pin, Pin) and pin.fuse for pin in pins)

    def _unpinned(self) -> tuple[Solution, ...]:
        """The plan without fusion, where nothing must be fused."""
        return () if self.must_fuse else (self.unfused(),)

    def plan(
        self,
        solution: Solution,
        tuned: Mapping[str, Tuned] = MappingProxyType({}),
    ) -> Plan:
        """Generate code and lay out memory for a partition."""
        return assemble(self.assembler, self.model.prepare, solution, tuned)

    def unfused(self) -> Solution:
        """Every operator in a kernel of its own, as a solution like any other."""
        choices = unfused(
            self.model.graph,
            self.price,
            profile=self.options.legality,
            limits=limits_for(self.device, self.options),
        )
        total = math.fsum(choice.seconds for choice in choices)
        space = CandidateSpace(
            families=tuple(sorted({str(choice.family) for choice in choices})),
            legality=self.options.legality,
            max_nodes=1,
            candidates=len(choices),
            complete=True,
        )
        partition = Partition(
            choices=choices,
            objective_seconds=total,
            bound_seconds=total,
            candidate_space=space,
        )
        return Solution(partition=partition, baselines={})


def make_plan(
    model: Model,
    target: str | Device,
    options: Options,
    *,
    time_limit_seconds: float | None = None,
    steps: float | None = None,
) -> Plan:
    """A plan from the cost model alone.

    For a GPU, registers and spills come from NVRTC where it is installed.

    Args:
        model: what is planned.
        target: what it is planned for.
        options: what the plan has to keep.
        time_limit_seconds: a user's clock; by default the solver counts its work, so
            that the plan does not depend on how fast the machine is.
        steps: most work; by default any where there is a time limit.
    """
    device = target if isinstance(target, Device) else resolve_target(target)
    planner = Planner(
        model=model,
        device=device,
        options=options,
        compile_sources=compiler_for(device, options),
        time_limit_seconds=time_limit_seconds,
        steps=steps,
    )
    return planner.plan(planner.solve())
