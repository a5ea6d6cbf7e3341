"""What the other choice for two nodes costs: the same problem solved with one more pin.

A bound from bytes and launches is in the plan (`service.jobs.explaining`); this needs
the model again, which the database holds for whatever was ever tuned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from service.jobs.explaining import no_choice
from service.jobs.opposite import opposite
from service.jobs.planning import Question
from service.store.values import PlanRevision
from tuner.errors import ConstraintsUnsatisfiable

Json = Mapping[str, Any]


def solve_other(
    plan: Callable[[Question], PlanRevision],
    question: Question,
    body: Json,
    told: Json,
) -> dict[str, Any]:
    """The predicted time of the best plan, and of the best with the other choice.

    Args:
        plan: gives the analytic plan of a question.
        question: what the stored plan is the answer to.
        body: the stored plan.
        told: what `explain` says of the two nodes.

    Returns:
        Both times, the latter None where no plan has the other choice, and then why;
        else what the other plan does differently.
    """
    nodes = [told["a"]["id"], told["b"]["id"]]
    if reason := no_choice(body, *nodes):
        return _without(told, body["objective_seconds"], reason)
    pin = {"fuse": not told["fused"], "nodes": nodes}
    pins = [*question.options.get("pins", ()), pin]
    pinned = replace(question, options={**question.options, "pins": pins})
    # Measured kernels have other costs than predicted ones: like is laid beside like.
    ours, ours_seconds = body, body["objective_seconds"]
    if body["evidence"] == "measured":
        again = plan(question)
        ours, ours_seconds = json.loads(again.body), again.objective_seconds
    try:
        found = plan(pinned)
    except ConstraintsUnsatisfiable as error:
        return _without(told, ours_seconds, error.problem)
    return {
        **_without(told, ours_seconds, opposite(ours, json.loads(found.body), nodes)),
        "other_objective_seconds": found.objective_seconds,
    }


def _without(told: Json, seconds: float, reason: str) -> dict[str, Any]:
    """The answer where no plan has the other choice."""
    return {
        "fused": told["fused"],
        "objective_seconds": seconds,
        "other_objective_seconds": None,
        "reason": reason,
    }
