"""Who is run whole at the end of a tuning run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tuner.assembly import Tuned
from tuner.errors import TunerError
from tuner.fusion.partition import Solution
from tuner.ir.graph import Graph
from tuner.search.contest import Contestant
from tuner.search.kernels import KernelState, plain_of, tuned_of
from tuner.search.records import stored_partition
from tuner.search.rounds import Round

_KEEPS_ITS_LABEL: Final = {"incumbent": 0, "untuned": 1, "plan": 2}


@dataclass(frozen=True, kw_only=True)
class LineUp:
    """Distinct contestants by label.

    Attributes:
        aliases: every label, also of a plan that equals another -> who runs for it.
        plans: every label -> the plan; equal ones too.
    """

    contestants: Mapping[str, Contestant]
    aliases: Mapping[str, str]
    plans: Mapping[str, Contestant]


def line_up(
    rounds: Sequence[Round],
    kernels: Mapping[str, KernelState],
    *,
    untuned: Round,
    unfused: Solution | None,
    stored: Contestant | None,
    partitions: int,
    most_factor: float,
) -> LineUp:
    """Choose the contestants.

    Args:
        rounds: partitions worth running, the best first.
        kernels: everything known.
        untuned: the cost model's partition; it runs with default schedules.
        unfused: every operator by itself; None where the user demands fusion.
        stored: the plan that is to be beaten.
        partitions: how many of the rounds take part, at most.
        most_factor: how much slower than the best, by its kernels, one of them may be.
    """
    tuned, plain = tuned_of(kernels), plain_of(kernels)
    best = rounds[0]
    found = {"plan": Contestant(solution=best.solution, tuned=tuned)}
    most = (best.total_seconds or 0.0) * most_factor
    near = [each for each in rounds[1:] if (each.total_seconds or 0.0) <= most]
    for n, each in enumerate(near[: partitions - 1]):
        found[f"plan-{n + 2}"] = Contestant(solution=each.solution, tuned=tuned)
    found["untuned"] = Contestant(solution=untuned.solution, tuned=plain)
    if unfused is not None:
        found["unfused"] = Contestant(solution=unfused, tuned=plain)
    if stored is not None:
        found["incumbent"] = stored
    aliases = _aliases(found, [untuned, best, *near])
    kept = {label: found[label] for label in found if aliases[label] == label}
    return LineUp(contestants=kept, aliases=aliases, plans=found)


def _aliases(
    found: Mapping[str, Contestant], rounds: Sequence[Round]
) -> dict[str, str]:
    """The label under which each plan runs; equal plans run once."""
    names: dict[object, KernelState] = {}
    for each in rounds:
        for choice, state in zip(
            each.solution.partition.choices, each.states, strict=True
        ):
            names[choice.region, choice.family] = state
    first: dict[object, str] = {}
    aliases = {}
    for label in sorted(found, key=lambda name: _KEEPS_ITS_LABEL.get(name, 3)):
        mark = _mark(found[label], names)
        aliases[label] = first.setdefault(mark, label)
    return aliases


def _mark(contestant: Contestant, names: Mapping[object, KernelState]) -> object:
    """Equal for equal kernels under equal schedules."""
    found = []
    for choice in contestant.solution.partition.choices:
        state = names.get((choice.region, choice.family))
        tuned = contestant.tuned.get(state.name) if state is not None else None
        schedule = tuned.schedule if tuned is not None else None
        if state is not None and schedule is None:
            schedule = state.default
        found.append((choice.region, choice.family, schedule))
    return frozenset(found)


def stored_contestant(
    body: Mapping[str, Any] | None,
    graph: Graph,
    state_of: Any,
) -> Contestant | None:
    """The stored plan as a contestant; None if it is no plan of this graph.

    Args:
        body: of the stored plan.
        graph: the canonical graph.
        state_of: gives the state of a choice.
    """
    found = None if body is None else stored_partition(body, graph)
    if found is None:
        return None
    solution, ran = found
    tuned: dict[str, Tuned] = {}
    for choice in solution.partition.choices:
        try:
            state = state_of(choice)
        except (TunerError, KeyError):
            return None
        known = ran[choice.region.nodes]
        if known is None:
            return None
        tuned[state.name] = known
    return Contestant(solution=solution, tuned=tuned)
