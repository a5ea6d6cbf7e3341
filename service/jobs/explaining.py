"""Why two nodes share a kernel or do not, and how two plans differ.

Both work on stored bodies alone: what they say is in the plan, or follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from cost_model.catalog import DEVICES
from service.errors import NodeNotFound
from service.jobs.opposite import VIEWS
from tuner.model import closest

Json = Mapping[str, Any]

_BYTES: Final = {
    "f64": 8,
    "i64": 8,
    "u64": 8,
    "f32": 4,
    "i32": 4,
    "u32": 4,
    "f16": 2,
    "bf16": 2,
    "i16": 2,
    "u16": 2,
}
"""Size of an element; all other types have one byte."""


@dataclass(frozen=True, kw_only=True)
class _View:
    """A body, with the questions that explanations ask of it.

    They are asked of each pair of the parts of two nodes: what needs a walk through
    the body is found once.
    """

    body: Json

    @cached_property
    def _nodes(self) -> dict[str, Json]:
        graphs = (self.body.get(graph, {}) for graph in ("graph", "prepare_graph"))
        nodes: dict[str, Json] = {}
        for graph in graphs:
            for node in graph.get("nodes", ()):
                nodes.setdefault(node["id"], node)
        return nodes

    @cached_property
    def _held(self) -> dict[str, dict[int, Json]]:
        """Node -> kernels that compute it, by their places in the plan."""
        held: dict[str, dict[int, Json]] = {}
        for place, kernel in enumerate(self.body["kernels"]):
            for id_ in kernel["nodes"]:
                held.setdefault(id_, {})[place] = kernel
        return held

    @cached_property
    def _views(self) -> dict[str, str]:
        """Node id -> the tensor that it renames, of those that are views."""
        nodes = self.body["graph"]["nodes"]
        return {node["id"]: node["inputs"][0] for node in nodes if node["op"] in VIEWS}

    @cached_property
    def _renamed(self) -> dict[str, str]:
        """Output of a view -> the tensor that it renames."""
        nodes = self._nodes
        return {
            name: tensor
            for id_, tensor in self._views.items()
            for name in nodes[id_]["outputs"]
        }

    @cached_property
    def _reads(self) -> dict[str, frozenset[str]]:
        """Node -> the tensors that it reads, by way of views or not."""
        return {
            id_: frozenset(map(self._home, node["inputs"]))
            for id_, node in self._nodes.items()
        }

    def _home(self, tensor: str) -> str:
        """The tensor whose memory another one renames; itself when it is no view."""
        while tensor in self._renamed:
            tensor = self._renamed[tensor]
        return tensor

    def node(self, id_: str) -> Json | None:
        """A node of the main graph or of the one that runs once at load."""
        return self._nodes.get(id_)

    def kernels(self, id_: str) -> list[Json]:
        """Kernels that compute a node; it may be computed more than once."""
        return list(self._held.get(id_, {}).values())

    def share(self, a: str, b: str) -> bool:
        """Whether some kernel computes both nodes."""
        return not self._held.get(a, {}).keys().isdisjoint(self._held.get(b, {}))

    def computed(self, ids: Sequence[str]) -> list[str]:
        """Those that a kernel computes and that are no views; all if none is."""
        found = [id_ for id_ in ids if id_ not in self._views and self.kernels(id_)]
        return found or list(ids)

    def idle(self, id_: str) -> str:
        """Why no kernel computes a node; empty where one does."""
        if self.kernels(id_):
            return ""
        prepared = self.body.get("prepare_graph", {}).get("nodes", ())
        at_load = any(node["id"] == id_ for node in prepared)
        return f"{id_} {'runs once at load' if at_load else 'only renames memory'}"

    def is_edge(self, a: str, b: str) -> bool:
        """Whether one of two nodes reads the other, by way of views or not."""
        first, second = self.node(a), self.node(b)
        return bool(
            first
            and second
            and not (
                self._reads[b].isdisjoint(first["outputs"])
                and self._reads[a].isdisjoint(second["outputs"])
            )
        )

    def size_bytes(self, tensor: str) -> int:
        """Bytes of a tensor; 0 when the body does not say."""
        told = self.body["graph"]["tensors"].get(tensor)
        if told is None:
            return 0
        size = _BYTES.get(told["dtype"], 1)
        for length in told["shape"]:
            size *= length
        return size

    def seconds(self, moved_bytes: int, launches: int) -> float | None:
        """At least what moving bytes and starting kernels takes on the target."""
        device = DEVICES.get(self.body["target"]["id"])
        if device is None:
            return None
        moving = moved_bytes / device.dram_bytes_per_second
        return moving + launches * device.launch_seconds

    def direct(self, first: Json, second: Json) -> list[str]:
        """Tensors that one of two nodes or kernels makes and the other one reads."""
        forth = [name for name in first["outputs"] if name in second["inputs"]]
        back = [name for name in second["outputs"] if name in first["inputs"]]
        return list(dict.fromkeys((*forth, *back)))


def priced_bytes(body: Json, tensor: str) -> int:
    """Bytes of a tensor as explanations count them; 0 when the body does not say."""
    return _View(body=body).size_bytes(tensor)


def priced_seconds(body: Json, moved_bytes: int, *, launches: int) -> float | None:
    """At least what moving bytes and starting kernels takes on the plan's target."""
    return _View(body=body).seconds(moved_bytes, launches)


def parts(body: Json, names: Mapping[str, Sequence[str]], name: str) -> list[str]:
    """Canonical ids of what a node of the user's became, or of one given by its id.

    Args:
        body: stored body of a plan.
        names: canonical id -> names in the model that was handed in.
        name: a name, or an id.

    Raises:
        NodeNotFound: the plan's graph has no such node.
    """
    view = _View(body=body)
    if view.node(name) is not None:
        return [name]
    named = (str(id_) for id_, given in names.items() if name in given)
    found = [id_ for id_ in named if view.node(id_) is not None]
    if not found:
        raise NodeNotFound(
            name,
            "the graph of this plan has no such node",
            hint="take a node name of the model, or an id such as n12 of its plan",
        )
    return found


def pair(body: Json, first: Sequence[str], second: Sequence[str]) -> tuple[str, str]:
    """A part of each of two nodes of the user's: the parts that tell most of them.

    Args:
        body: stored body of a plan.
        first: canonical ids of the parts of a node.
        second: of another one.

    Returns:
        Two parts in one kernel, if there are such; else two of which one reads the
        other, else any two that are not the same. Parts that no kernel computes are
        taken where there are no others.
    """
    view = _View(body=body)
    ends = (view.computed(first), view.computed(second))
    return closest(*ends, view.share, view.is_edge)


def kernels(body: Json, nodes: Sequence[str]) -> list[str]:
    """Names of the kernels that compute one of some nodes, in the plan's order."""
    held = (k for k in body["kernels"] if not set(nodes).isdisjoint(k["nodes"]))
    return [kernel["name"] for kernel in held]


def no_choice(body: Json, a: str, b: str) -> str:
    """Why two nodes cannot be the other way round, as far as it is plain to see.

    Args:
        body: stored body of a plan.
        a: canonical id of a node of it.
        b: canonical id of another one.

    Returns:
        The reason; empty where only a solution of the problem can tell.
    """
    if a == b:
        return f"both are {a}, one node of the plan"
    idle = _idle(_View(body=body), a, b)
    return f"{idle}: no kernel computes it" if idle else ""


def _idle(view: _View, a: str, b: str) -> str:
    return view.idle(a) or view.idle(b)


def explain(body: Json, a: str, b: str) -> dict[str, Any]:
    """Whether two nodes share a kernel, why, and what the other choice would cost.

    Args:
        body: stored body of a plan.
        a: canonical id of a node of it.
        b: canonical id of another one.
    """
    view = _View(body=body)
    first, second = view.node(a), view.node(b)
    assert first is not None, "the caller looked"
    assert second is not None, "the caller looked"
    kernels_a, kernels_b = view.kernels(a), view.kernels(b)
    shared = [k for k in kernels_a if k in kernels_b]
    told = {
        "a": {"id": a, "op": first["op"], "kernels": [k["name"] for k in kernels_a]},
        "b": {"id": b, "op": second["op"], "kernels": [k["name"] for k in kernels_b]},
        "fused": bool(shared),
    }
    if shared:
        return {**told, **_split(view, first, second, shared[0])}
    if not kernels_a or not kernels_b:
        reason = f"{_idle(view, a, b)}: it needs no kernel"
        return {**told, "reason": reason, "tensors": [], "other": None}
    return {**told, **_join(view, kernels_a[0], kernels_b[0])}


def _split(view: _View, first: Json, second: Json, kernel: Json) -> dict[str, Any]:
    """What it would cost to cut a kernel between two of its nodes."""
    kept = [t for t in view.direct(first, second) if t not in kernel["outputs"]]
    moved = 2 * sum(map(view.size_bytes, kept))
    between = "nothing lies between them directly"
    if kept:
        between = f"{', '.join(kept)} stays in registers and is never written"
    return {
        "reason": f"kernel {kernel['name']} computes both; {between}",
        "tensors": _told(view, kept),
        "other": {
            "choice": "separate kernels",
            "extra_bytes": moved,
            "extra_launches": 1,
            "extra_seconds": view.seconds(moved, 1),
        },
    }


def _join(view: _View, first: Json, second: Json) -> dict[str, Any]:
    """What crosses between two kernels, and what joining them would save at most."""
    crossing = view.direct(first, second)
    if not crossing:
        reason = (
            f"kernels {first['name']} and {second['name']} exchange no tensor, so that"
            " joining them saves no traffic, at most a launch"
        )
        saved = 0
    else:
        saved = sum(_saved(view, name) for name in crossing)
        reason = (
            f"{', '.join(crossing)} crosses from one kernel to the other through"
            " memory; no legal kernel that holds both was cheaper"
        )
    seconds = view.seconds(saved, 1)
    return {
        "reason": reason,
        "tensors": _told(view, crossing),
        "other": {
            "choice": "one kernel",
            "extra_bytes": -saved,
            "extra_launches": -1,
            "extra_seconds": None if seconds is None else -seconds,
        },
    }


def _saved(view: _View, tensor: str) -> int:
    """Bytes that need not move when one reader of a tensor joins its maker."""
    readers = sum(tensor in kernel["inputs"] for kernel in view.body["kernels"])
    is_output = tensor in view.body["graph"]["outputs"]
    stays = is_output or readers > 1
    return view.size_bytes(tensor) * (1 if stays else 2)


def _told(view: _View, names: Iterable[str]) -> list[dict[str, Any]]:
    return [{"id": name, "bytes": view.size_bytes(name)} for name in names]


_TOTALS: Final = (
    "objective_seconds",
    "bound_seconds",
    "gap",
    "traffic_bytes",
    "peak_memory_bytes",
)


def differences(a: Json, b: Json) -> dict[str, Any]:
    """How two plans differ; kernels are compared by the nodes that they compute.

    Args:
        a: stored body of a plan.
        b: stored body of another one. If it is of another graph, only the totals
            can be compared.
    """
    same_graph = a["graph"] == b["graph"]
    told: dict[str, Any] = {
        "same_graph": same_graph,
        "evidence": {"a": a["evidence"], "b": b["evidence"]},
        "differing": [
            part for part in ("target", "toolchain", "options") if a[part] != b[part]
        ],
        "totals": {
            name: {"a": a.get(name), "b": b.get(name)}
            for name in (*_TOTALS, "kernels")
            if name != "kernels"
        },
        "kernels": None,
    }
    told["totals"]["kernels"] = {"a": len(a["kernels"]), "b": len(b["kernels"])}
    if same_graph:
        told["kernels"] = _kernel_differences(a["kernels"], b["kernels"])
    return told


def _kernel_differences(a: list[Json], b: list[Json]) -> dict[str, Any]:
    first, second = _by_nodes(a), _by_nodes(b)
    both = [nodes for nodes in first if nodes in second]
    changed = [
        {"nodes": list(nodes), "a": _short(first[nodes]), "b": _short(second[nodes])}
        for nodes in both
        if _short(first[nodes]) != _short(second[nodes])
    ]
    return {
        "same": len(both) - len(changed),
        "changed": changed,
        "only_a": [_full(first[nodes]) for nodes in first if nodes not in second],
        "only_b": [_full(second[nodes]) for nodes in second if nodes not in first],
    }


def _by_nodes(kernels: list[Json]) -> dict[tuple[str, ...], Json]:
    return {tuple(sorted(kernel["nodes"])): kernel for kernel in kernels}


def _short(kernel: Json) -> dict[str, Any]:
    measured = kernel.get("measurement") or {}
    return {
        "name": kernel["name"],
        "family": kernel["family"],
        "schedule": kernel["schedule"],
        "predicted_seconds": kernel["estimate"]["seconds"],
        "measured_seconds": measured.get("seconds"),
        "traffic_bytes": kernel["traffic_bytes"],
    }


def _full(kernel: Json) -> dict[str, Any]:
    return {"nodes": list(kernel["nodes"]), **_short(kernel)}
