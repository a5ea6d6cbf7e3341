"""Two partitions of one graph as two drawings: whose work each kernel does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.dashboard.kernels import Names, seconds_of
from service.dashboard.partition import partition_view

Json = Mapping[str, Any]

SIDE_BOXES: Final = 60
"""Boxes of one drawing: two stand beside each other, and a person compares them."""


def sides_view(before: Json, after: Json, names: Names) -> Json:
    """Boxes and arrows of both plans, JSON-ready.

    Every box has the ids of its nodes, so that what does the same work on the other
    side can be marked; a box is `same` when the other plan cuts its kernels alike.

    Args:
        before: a plan's body, or what `without_fusion` makes of one.
        after: the body of another plan, of the same graph or not.
        names: canonical id -> the user's names; may be empty.
    """
    is_one_graph = before["graph"] == after["graph"]
    parts = [{frozenset(k["nodes"]) for k in one["kernels"]} for one in (before, after)]
    same = parts[0] & parts[1] if is_one_graph else set()
    return {
        "same_graph": is_one_graph,
        "sides": [_side(one, names, same) for one in (before, after)],
    }


def _side(plan: Json, names: Names, same: set[frozenset[str]]) -> Json:
    view = partition_view(plan, names, limit=SIDE_BOXES)
    kernels, timed = plan["kernels"], not plan.get("untimed")
    return {
        "kernels": view["kernels"],
        "boxes": [_box(box, kernels, same, timed=timed) for box in view["boxes"]],
        "edges": [
            {name: edge[name] for name in ("source", "target", "label")}
            for edge in view["edges"]
        ],
    }


def _box(
    box: Json, kernels: Sequence[Json], same: set[frozenset[str]], *, timed: bool
) -> Json:
    first, _, last = box["id"].partition("-")
    held = kernels[int(first) : int(last) + 1]
    return {
        "id": box["id"],
        "label": box["label"],
        "family": box["family"],
        "detail": box["detail"],
        "kernels": len(held),
        "time": box["time"] if timed else "",
        "seconds": sum(map(seconds_of, held)) if timed else None,
        "nodes": sorted({node for kernel in held for node in kernel["nodes"]}),
        "same": all(frozenset(kernel["nodes"]) in same for kernel in held),
    }


def without_fusion(plan: Json, operators: Sequence[Json] = ()) -> Json:
    """The graph of a plan with a kernel for every operator: what fusion starts from.

    A reshape is no kernel: it belongs to the one that makes what it renames, or where
    that is an input of the model, to the first one that reads it. What the plan
    prepares at load is in no kernel. What operators take by themselves is no part of a
    plan: a tuning run tells it. Without every one of their times none is shown.

    Args:
        plan: a plan's body.
        operators: what a tuning run tells of them, as the API gives it.
    """
    times = operator_times(operators)
    prepared = frozenset(plan.get("prepare", ()))
    nodes = [node for node in plan["graph"]["nodes"] if node["id"] not in prepared]
    root: dict[str, str] = {}
    for node in nodes:
        if node["op"] == "reshape":
            source = root.get(node["inputs"][0], node["inputs"][0])
            root.update(dict.fromkeys(node["outputs"], source))
    families = {n: k["family"] for k in plan["kernels"] for n in k["nodes"]}
    kernels = {
        node["id"]: _kernel(node, root, families, times.get(node["id"], {}))
        for node in nodes
        if node["op"] != "reshape"
    }
    makers = {t: kernel for kernel in kernels.values() for t in kernel["outputs"]}
    readers = {
        t: kernel for kernel in reversed(kernels.values()) for t in kernel["inputs"]
    }
    for node in nodes:
        tensor = root.get(next(iter(node["outputs"]), ""))
        owner = None if tensor is None else makers.get(tensor) or readers.get(tensor)
        if owner is not None:
            owner["nodes"].append(node["id"])
    untimed = not kernels or not kernels.keys() <= times.keys()
    return {**plan, "kernels": list(kernels.values()), "untimed": untimed}


def operator_times(operators: Sequence[Json]) -> dict[str, Json]:
    """Estimate and measurement of every node that has been priced by itself."""
    times: dict[str, Json] = {}
    for row in operators:
        measured = row["measured"]
        if measured is not None and measured["seconds"] is None:
            measured = None  # it failed
        if row["predicted_seconds"] is None and measured is None:
            continue
        told = {
            "estimate": {"seconds": row["predicted_seconds"] or 0.0},
            "measurement": measured,
            "evidence": "analytic" if measured is None else "measured",
        }
        times.update({nodes[0]: told for nodes in row["launches"] if len(nodes) == 1})
    return times


def _kernel(
    node: Json, root: Mapping[str, str], families: Mapping[str, str], times: Json
) -> dict[str, Any]:
    """A kernel of one operator, in the colour of the one that does its work now."""
    return {
        "name": node["op"],
        "family": families.get(node["id"], "opaque"),
        "nodes": [node["id"]],
        "inputs": list(dict.fromkeys(root.get(t, t) for t in node["inputs"])),
        "outputs": list(node["outputs"]),
        "estimate": {"seconds": 0.0},
        "traffic_bytes": 0,
        "evidence": "analytic",
        **times,
    }
