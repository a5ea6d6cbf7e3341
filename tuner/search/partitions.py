"""Plans that were run whole, side by side: what was expected, and what they took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from tuner.fusion.partition import Solution
from tuner.fusion.view import ALIAS
from tuner.pipeline import Planner
from tuner.plan import Choice, Measurement
from tuner.search.contest import Contestant
from tuner.search.kernels import KernelState
from tuner.search.lineup import LineUp
from tuner.search.records import Json, to_json

SHOWN_KERNELS: Final = 12
"""Kernels that are named of those that the first plan does not have."""
_WHOLE: Final = ("seconds", "low_seconds", "high_seconds", "failure", "contended")


def partition_rows(
    planner: Planner,
    line: LineUp,
    *,
    whole: Mapping[str, Measurement],
    winner: str,
) -> list[Json]:
    """One row for each distinct plan: the partitions first, the best of them first.

    Args:
        planner: prices kernels by the cost model alone.
        line: who was to be run.
        whole: what ran, by label.
        winner: label of the plan that is kept.

    Returns:
        Of each: `labels`; the number of its `kernels`; `predicted_seconds`, the cost
        model's sum over default schedules; `kernel_seconds`, the sum of its kernels'
        own runs, None if one has none; `whole`, its run as a whole, None without one;
        whether it is `kept`; how many kernels the first row's plan does not have
        (`differing`), and the largest of them (`kernels_only_here`). The prediction is
        None where a stored plan has a kernel that is not priced any more.
    """
    labels: dict[str, list[str]] = {}
    for label in line.plans:
        labels.setdefault(line.aliases[label], []).append(label)
    first = line.plans[next(iter(line.plans))]
    return [
        {
            "labels": same,
            **_times(planner, line.plans[ran]),
            "whole": _shown(whole.get(ran)),
            "kept": ran == winner,
            **_differences(line.plans[ran], first),
        }
        for ran, same in labels.items()
    ]


def _times(planner: Planner, plan: Contestant) -> Json:
    choices = plan.solution.partition.choices
    names = [planner.assembler.form(choice).fingerprint for choice in choices]
    runs = [plan.tuned.get(name) for name in names]
    times = [tuned.measurement.seconds for tuned in runs if tuned is not None]
    prices = [planner.price(choice.region, choice.family) for choice in choices]
    return {
        "kernels": len(choices),
        "predicted_seconds": _sum(prices),
        "kernel_seconds": _sum(times) if len(times) == len(choices) else None,
    }


def _sum(seconds: Sequence[float]) -> float | None:
    """The sum, or None where it is not known what a part takes."""
    total = math.fsum(seconds)
    return total if math.isfinite(total) else None


def _shown(measurement: Measurement | None) -> Json | None:
    if measurement is None:
        return None
    told = to_json(measurement)
    return {name: told[name] for name in _WHOLE}


def _differences(plan: Contestant, first: Contestant) -> Json:
    """Kernels that another plan does not have, those of most time first."""
    theirs = {_identity(choice) for choice in first.solution.partition.choices}
    own = [
        choice
        for choice in plan.solution.partition.choices
        if _identity(choice) not in theirs
    ]
    largest = sorted(own, key=lambda choice: -choice.seconds)[:SHOWN_KERNELS]
    return {
        "differing": len(own),
        "kernels_only_here": [
            {"family": str(choice.family), "nodes": list(choice.region.nodes)}
            for choice in largest
        ],
    }


def _identity(choice: Choice) -> object:
    return choice.region, choice.family


def operator_rows(
    planner: Planner, unfused: Solution, kernels: Mapping[str, KernelState]
) -> list[Json]:
    """What every operator takes in a kernel of its own; equal ones share a row.

    Args:
        planner: prices kernels by the cost model alone.
        unfused: every operator by itself.
        kernels: everything known.

    Returns:
        Of each distinct kernel the nodes of every launch (`launches`), `family`,
        `predicted_seconds`, and `measured`: its own run with the default schedule,
        None if it has none. Reshapes are in no launch.
    """
    rows: dict[str, Json] = {}
    nodes = planner.model.graph.by_name
    for choice in unfused.partition.choices:
        name = planner.assembler.form(choice).fingerprint
        if name not in rows:
            state = kernels.get(name)
            plain = state.plain if state is not None else None
            rows[name] = {
                "launches": [],
                "family": str(choice.family),
                "predicted_seconds": _sum([choice.seconds]),
                "measured": _shown(plain.measurement if plain is not None else None),
            }
        launched = [n for n in choice.region.nodes if nodes[n].op != ALIAS]
        rows[name]["launches"].append(launched)
    return list(rows.values())
