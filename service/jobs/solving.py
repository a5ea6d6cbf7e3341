"""What the other choice for two nodes costs: the same problem solved with one more pin.

A bound from bytes and launches is in the plan (`service.jobs.explaining`); this needs
the model again, which the database holds for whatever was ever tuned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.jobs.planning import Question
from service.store.plans import PlanRevision
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
        Both times, the latter None where no plan has the other choice, and then why.
    """
    nodes = [told["a"]["id"], told["b"]["id"]]
    pin = {"fuse": not told["fused"], "nodes": nodes}
    pins = [*question.options.get("pins", ()), pin]
    pinned = Question(
        data=question.data,
        form=question.form,
        target=question.target,
        options={**question.options, "pins": pins},
    )
    # Measured kernels have other costs than predicted ones: like is laid beside like.
    ours = body["objective_seconds"]
    if body["evidence"] == "measured":
        ours = plan(question).objective_seconds
    try:
        other, reason = plan(pinned).objective_seconds, ""
    except ConstraintsUnsatisfiable as error:
        other, reason = None, error.problem
    return {
        "fused": told["fused"],
        "objective_seconds": ours,
        "other_objective_seconds": other,
        "reason": reason,
    }
