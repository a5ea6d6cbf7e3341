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
    from tuner.plan import Choice, PlannedKernel

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
            "launches": _launches_in_words(planned, kernel),
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


def edges(planned: Planned) -> list[Json]:
    """Every edge between two of the user's nodes: fused or cut, and why."""
    from tuner.fusion.view import homes

    plan = planned.plan
    home, graph = homes(plan.graph), plan.graph
    holding: dict[str, list[int]] = {}
    for number, kernel in enumerate(plan.kernels):
        for name in kernel.region.nodes:
            holding.setdefault(name, []).append(number)
    reasons = {
        (end["tensor"], end["reader"]): end["reason"]
        for group in groups(planned)
        for end in group["ends"]
    }
    stored = {name for kernel in plan.kernels for name in kernel.region.outputs}
    found: dict[tuple[str, str, str], Json] = {}
    for node in graph.nodes:
        for tensor in dict.fromkeys(home[name] for name in node.inputs):
            maker = graph.producer(tensor)
            if node.op == "reshape" or maker is None:
                continue
            told = _edge(planned, (maker.name, node.name, tensor), holding, reasons)
            if told["from"] != told["to"]:
                told["stored"] = tensor in stored
                found.setdefault((told["from"], told["to"], tensor), told)
    return list(found.values())


def parallel(planned: Planned) -> list[Json]:
    """Independent parts that share a kernel, and products that might and do not."""
    from tuner.assembly import limits_for
    from tuner.fusion.explain import side_by_side
    from tuner.pipeline import Planner

    prepared, plan = planned.prepared, planned.plan
    planner = Planner(
        model=prepared.model, device=prepared.device, options=prepared.options
    )
    found = side_by_side(
        plan.graph,
        planner.price,
        plan.partition,
        profile=prepared.options.legality,
        limits=limits_for(prepared.device, prepared.options),
    )
    return [
        {
            "nodes": [_named(planned, name) for name in one.nodes],
            "kernels": [plan.kernels[k].name for k in one.kernels],
            "together": one.together,
            "reason": _in_names(planned, one.reason),
            "seconds": one.seconds,
            "opposite_seconds": one.opposite_seconds,
        }
        for one in found
    ]


def _edge(
    planned: Planned,
    edge: tuple[str, str, str],
    holding: Mapping[str, Sequence[int]],
    reasons: Mapping[tuple[str, str], str],
) -> Json:
    """One edge: the kernels that hold both ends, or why none does."""
    maker, reader, tensor = edge
    kernels = planned.plan.kernels
    size_bytes = planned.plan.graph.types[tensor].bytes
    at = [k for k in holding.get(reader, ()) if k in holding.get(maker, ())]
    if at:
        copies = len(holding[maker]) - 1
        reason = f"{size(size_bytes)} that need not be read"
        reason += f", computed {copies + 1} times for that" if copies else ""
    else:
        name = _named(planned, tensor)
        told = (reasons.get((name, kernels[k].name)) for k in holding.get(reader, ()))
        reason = next(filter(None, told), "computed when the model is loaded")
    return {
        "from": _named(planned, maker),
        "to": _named(planned, reader),
        "tensor": _named(planned, tensor),
        "bytes": size_bytes,
        "fused": bool(at),
        "kernels": [kernels[k].name for k in at],
        "reason": reason,
    }


def show_edges(
    found: Sequence[Mapping[str, Any]], side_by_side: Sequence[Mapping[str, Any]]
) -> None:
    """Print a line for each edge, and one for parts that are or could be together."""
    for edge in found:
        where = f"fused in {', '.join(edge['kernels'])}" if edge["fused"] else "cut"
        output.line(f"{edge['from']} -> {edge['to']}  {where}: {edge['reason']}")
    fused = sum(edge["fused"] for edge in found)
    output.line(f"{count(fused)} of {count(len(found))} edges are fused.")
    for one in side_by_side:
        word = "side by side in" if one["together"] else "apart in"
        where = f"{word} {', '.join(one['kernels'])}"
        output.line(f"{', '.join(one['nodes'])}  {where}: {one['reason']}")


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


def _launches_in_words(planned: Planned, kernel: PlannedKernel) -> str | None:
    """How often a reduction is launched, and why; nothing to say of other kernels."""
    from tuner.ir.graph import extract
    from tuner.plan import Family
    from tuner.pricing import launches_in_words

    if kernel.family is not Family.REDUCTION:
        return None
    small = extract(planned.plan.graph, kernel.region)
    prepared = planned.prepared
    return _in_names(
        planned,
        launches_in_words(small, kernel.schedule, prepared.device, prepared.options),
    )


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
        if group["launches"]:
            output.line(f"  launch  {group['launches']}")
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
