"""A stored plan body as a plan again: the same kernels with the same schedules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from service.cli.exits import BadArgument
from tuner.assembly import Tuned
from tuner.fusion.partition import Solution
from tuner.ir.graph import Region
from tuner.pipeline import Planner
from tuner.plan import (
    CandidateSpace,
    Choice,
    Family,
    Measurement,
    Partition,
    Plan,
    Schedule,
)

if TYPE_CHECKING:
    from service.jobs.planning import Prepared

Json = Mapping[str, Any]


def plan_of(body: Json, prepared: Prepared) -> Plan:
    """Make the plan that a body describes, for a model that was read.

    Args:
        body: a plan's body, in canonical ids.
        prepared: the model; its plan must have the same target and options.

    Raises:
        BadArgument: the body is none, or belongs to another model.
    """
    if body.get("plan_key", prepared.key.key) != prepared.key.key:
        raise BadArgument(
            "--plan", "it is a plan of another model, target or options", hint=_HINT
        )
    try:
        choices = tuple(_choice(kernel) for kernel in body["kernels"])
        partition = Partition(
            choices=choices,
            objective_seconds=float(body["objective_seconds"]),
            bound_seconds=float(body["bound_seconds"]),
            candidate_space=_space(body["candidate_space"]),
        )
        tuned = {kernel["fingerprint"]: _tuned(kernel) for kernel in body["kernels"]}
    except (KeyError, TypeError, ValueError) as error:
        raise BadArgument("--plan", f"is no plan body: {error}", hint=_HINT) from error
    _check(choices, prepared)
    planner = Planner(
        model=prepared.model, device=prepared.device, options=prepared.options
    )
    return planner.plan(Solution(partition=partition, baselines={}), tuned)


_HINT = "`fuseplan lookup KEY --json` prints one in canonical ids"


def _choice(kernel: Json) -> Choice:
    return Choice(
        region=Region(nodes=tuple(kernel["nodes"]), outputs=tuple(kernel["outputs"])),
        family=Family(kernel["family"]),
        seconds=float(kernel["estimate"]["seconds"]),
    )


def _tuned(kernel: Json) -> Tuned:
    measured = kernel.get("measurement") or {}
    return Tuned(
        schedule=Schedule.of(**kernel["schedule"]),
        measurement=Measurement(seconds=float(measured.get("seconds", math.inf))),
    )


def _space(space: Json) -> CandidateSpace:
    return CandidateSpace(**{**space, "families": tuple(space["families"])})


def _check(choices: Sequence[Choice], prepared: Prepared) -> None:
    """Every node of the body is one of the model."""
    known = prepared.model.graph.by_name
    for choice in choices:
        for node in choice.region.nodes:
            if node not in known:
                raise BadArgument("--plan", f"the model has no node {node}", hint=_HINT)
