"""The fusion groups of a plan one by one, and the profile of its graph."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from service.cli import output
from service.dashboard.formats import count, duration, percent, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from service.cli.planning import Planned
    from tuner.plan import Choice

_ID: Final = re.compile(r"\b[nt]\d+\b")
Json = dict[str, Any]


def groups(planned: Planned) -> list[Json]:
    """Every fusion group: operators, tensors in and out, why it ends where it ends."""
    from tuner.assembly import limits_for
    from tuner.fusion import boundaries
    from tuner.pipeline import Planner

    prepared, plan = planned.prepared, planned.plan
    planner = Planner(
        model=prepared.model, device=prepared.device, options=prepared.options
    )
    choices = plan.partition.choices
    ends: dict[int, list[Json]] = {}
    for found in boundaries.boundaries(
        plan.graph,
        choices,
        planner.price,
        profile=prepared.options.legality,
        limits=limits_for(prepared.device, prepared.options),
    ):
        reader = None if found.reader is None else plan.kernels[found.reader].name
        ends.setdefault(found.group, []).append(
            {
                "tensor": _named(planned, found.tensor),
                "reader": reader,
                "reason": _in_names(planned, found.reason),
            }
        )
    nodes = {k["name"]: k["nodes"] for k in planned.joined()["kernels"]}
    return [
        {
            "group": number,
            "kernel": kernel.name,
            "family": str(kernel.family),
            "ops": boundaries.ops_in_words(plan.graph, choice),
            "nodes": nodes[kernel.name],
            "inputs": [_tensor(planned, name) for name in kernel.inputs],
            "outputs": [_tensor(planned, name) for name in kernel.region.outputs],
            "seconds": kernel.estimate.seconds,
            "traffic_bytes": kernel.traffic_bytes,
            "ends": ends.get(number, []),
        }
        for number, (kernel, choice) in enumerate(
            zip(plan.kernels, choices, strict=True)
        )
    ]


def profile(planned: Planned) -> Json:
    """Where the time of the graph goes without fusion, and what each level brings."""
    from tuner.assembly import limits_for
    from tuner.fusion import profile as profiling
    from tuner.pricing import Pricer

    prepared, plan = planned.prepared, planned.plan
    device, options = prepared.device, prepared.options
    before = Pricer(prepared.model.imported.graph, device, options)
    after = Pricer(plan.graph, device, options)
    found = profiling.profile(
        prepared.model.imported.graph,
        plan,
        (before.seconds, after.seconds),
        _launches(after),
        limits=limits_for(device, options),
    )
    return asdict(found)


def _launches(pricer: Any) -> Callable[[Choice], float]:
    def seconds(choice: Choice) -> float:
        found = pricer.priced(choice.region, choice.family)
        return 0.0 if found is None else float(found.estimate.launch_seconds)

    return seconds


def _tensor(planned: Planned, name: str) -> Json:
    kind = planned.plan.graph.types[name]
    return {
        "name": _named(planned, name),
        "type": f"{kind.dtype}[{', '.join(map(str, kind.shape))}]",
        "bytes": kind.bytes,
    }


def _named(planned: Planned, name: str) -> str:
    return next(iter(planned.prepared.model.names.get(name, ())), name)


def _in_names(planned: Planned, text: str) -> str:
    """A sentence about ids in the user's own names."""
    return _ID.sub(lambda found: _named(planned, found.group()), text)


def show_groups(found: Sequence[Mapping[str, Any]]) -> None:
    """Print groups the way a compiler's dump lists them."""
    for group in found:
        output.line(f"{group['kernel']} {group['family']}: {', '.join(group['nodes'])}")
        output.line(
            f"  group {group['group']}, {duration(group['seconds'])} predicted, "
            f"{size(group['traffic_bytes'])} moved"
        )
        output.line(f"  ops     {group['ops']}")
        for word, key in (("reads", "inputs"), ("writes", "outputs")):
            for tensor in group[key]:
                output.line(
                    f"  {word:7} {tensor['name']} {tensor['type']} "
                    f"{size(tensor['bytes'])}"
                )
        for end in group["ends"]:
            to = f"to {end['reader']}: " if end["reader"] else ""
            output.line(f"  ends    {end['tensor']} {to}{end['reason']}")


def show_profile(found: Mapping[str, Any]) -> None:
    """Print the profile as facts and one table with a row for each level."""
    chains = found["chains"]
    output.facts(
        {
            "launches": f"{percent(found['launch_share'])} of the unfused time "
            f"({duration(found['launch_seconds'])})",
            "chains": f"{count(chains['count'])} of three or more element-wise nodes, "
            f"{count(chains['nodes'])} nodes in all, longest {chains['longest']}, "
            f"{size(chains['inner_bytes'])} moved inside them",
            "memory planning": f"{size(found['arena_bytes'])} arena for "
            f"{size(found['separate_bytes'])} of tensors",
        }
    )
    levels = (
        ("as handed in", "imported"),
        ("algebraic simplification", "simplified"),
        ("fusion", "fused"),
    )
    output.table(
        ("level", ">kernels", ">traffic", ">predicted"),
        [
            (
                word,
                count(found[key]["kernels"]),
                size(found[key]["traffic_bytes"]),
                duration(found[key]["seconds"]),
            )
            for word, key in levels
        ],
    )
