"""What passes between kernels: tensors with their bytes, makers and readers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.ir.types import DType

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """One tensor from the point of view of a kernel that reads or writes it.

    Attributes:
        kernel: the kernel at the other end; empty for the model's own inputs, weights
            and outputs, which `place` names.
        a, b: the nodes that a question about fusing would be about.
    """

    tensor: str
    label: str
    shape: str
    bytes: int
    kernel: str
    place: str
    a: str
    b: str


def tensor_bytes(kind: Json | None) -> int:
    """Size of a tensor of the plan's graph; 0 where its type is not stored."""
    if kind is None:
        return 0
    elements: int = math.prod(kind["shape"])
    return DType(kind["dtype"]).bytes * elements


def shape_text(kind: Json | None) -> str:
    """Element type and lengths as people write them: `f32 [4, 128]`."""
    if kind is None:
        return ""
    return f"{kind['dtype']} {list(kind['shape'])}"


class Tensors:
    """Who makes and who reads each tensor of a plan.

    Args:
        plan: a plan's body.
    """

    def __init__(self, plan: Json) -> None:
        graph = plan["graph"]
        self._types: Json = graph["tensors"]
        self._nodes = {node["id"]: node for node in graph["nodes"]}
        self._readers: dict[str, list[str]] = defaultdict(list)
        self._maker = {}
        for node in graph["nodes"]:
            for tensor in node["outputs"]:
                self._maker[tensor] = node["id"]
            for tensor in node["inputs"]:
                self._readers[tensor].append(node["id"])
        self._places = {
            **dict.fromkeys(graph["inputs"], "model input"),
            **dict.fromkeys(graph["weights"], "weight"),
            **dict.fromkeys(graph.get("constants", ()), "constant"),
        }
        self._results = frozenset(graph["outputs"])

    def kind(self, tensor: str) -> Json | None:
        """Element type and shape, where they are stored."""
        return self._types.get(tensor)

    def maker(self, tensor: str) -> str:
        """The node that makes a tensor, seen back through reshapes; "" for an input."""
        node = self._maker.get(tensor)
        while node is not None and self._nodes[node]["op"] == "reshape":
            before = self._maker.get(self._nodes[node]["inputs"][0])
            if before is None:
                break
            node = before
        return node or ""

    def reader(self, tensor: str, inside: Sequence[str]) -> str:
        """The node of a kernel that reads a tensor, seen on through reshapes."""
        allowed, front, seen = set(inside), [tensor], set()
        while front:
            name = front.pop()
            for node in self._readers.get(name, ()):
                if node in seen:
                    continue
                seen.add(node)
                if self._nodes[node]["op"] == "reshape":
                    front += self._nodes[node]["outputs"]
                elif node in allowed:
                    return node
        return ""

    def place(self, tensor: str) -> str:
        """What a tensor is to the model: input, weight, constant, output, or ""."""
        return self._places.get(tensor) or (
            "model output" if tensor in self._results else ""
        )


def flows(
    plan: Json, kernel: Json, names: Mapping[str, Sequence[str]]
) -> tuple[tuple[Flow, ...], tuple[Flow, ...]]:
    """What a kernel reads and what it writes, with the kernels at the other ends."""
    tensors = Tensors(plan)
    makers = {t: one for one in plan["kernels"] for t in one["outputs"]}
    reads = tuple(
        _flow(tensors, names, t, makers.get(t), makers.get(t), kernel)
        for t in kernel["inputs"]
    )
    writes: list[Flow] = []
    for tensor in kernel["outputs"]:
        readers = [one for one in plan["kernels"] if tensor in one["inputs"]]
        writes += (
            _flow(tensors, names, tensor, one, kernel, one) for one in readers or [None]
        )
    return reads, tuple(writes)


def _flow(
    tensors: Tensors,
    names: Mapping[str, Sequence[str]],
    tensor: str,
    other: Json | None,
    maker: Json | None,
    reader: Json | None,
) -> Flow:
    kind = tensors.kind(tensor)
    return Flow(
        tensor=tensor,
        label=next(iter(names.get(tensor, ())), tensor),
        shape=shape_text(kind),
        bytes=tensor_bytes(kind),
        kernel="" if other is None else other["name"],
        place=tensors.place(tensor),
        a="" if maker is None else tensors.maker(tensor),
        b="" if reader is None else tensors.reader(tensor, reader["nodes"]),
    )
