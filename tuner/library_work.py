"""Work of a library call: the operators that the library runs, one after the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from cost_model.device import Device
from cost_model.work import Access, LibraryOperator, Pipe, Work
from tuner.fusion.library import swaps_last_two
from tuner.fusion.view import homes
from tuner.ir.expr import operations, parse
from tuner.ir.graph import Graph, Node, region_inputs
from tuner.ir.inference import ints
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import DType, TensorType
from tuner.runtime.onnx_calls import Shaped, Spelling
from tuner.runtime.onnx_patterns import spellings

_FUSED_BEHIND_CONV: Final = 2
"""ONNX Runtime's FusedConv takes a sum and an activation (`conv_add_act_fusion.cc`)."""
_SCALES: Final = frozenset({"mul", "div"})
"""FusedMatMul takes one number for all (`matmul_scale_fusion.cc`)."""
_GEMM_ACTIVATIONS: Final = frozenset({"relu", "sigmoid", "tanh"})
"""FusedGemm takes an activation behind the bias (`gemm_activation_fusion.cc`)."""
_BLOCKED: Final = frozenset({"conv", "max_pool", "add", "relu"})
"""Operators that ONNX Runtime runs on channels in blocks (`nchwc_transformer.cc`)."""
_BLOCK_CHANNELS: Final = 16
"""Channels of a block, with the widest vectors."""


@dataclass(slots=True)
class _Operator:
    """What one operator of a library call computes, makes and reads.

    Attributes:
        operations: by pipe.
        made: tensors.
        read: tensors, seen back through views.
        again_bytes: moved once more, by loops that take elements one by one.
    """

    operations: dict[Pipe, float] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    again_bytes: int = 0


def library_work(small: Graph, device: Device, *, alone: bool = False) -> Work:
    """Work of a library call that runs a small graph, operator by operator.

    Views are free. What runs inside another operator costs no call and no traffic of
    its own: on a GPU every epilogue (legality lets only those through that the library
    fuses), on a CPU what ONNX Runtime fuses: up to two element-wise operators behind a
    convolution; around a matrix product transposes, and a scale or a bias with an
    activation; and what it has one operator for, such as a softmax or attention, whose
    operands may have to be brought into its order. Every other tensor between two
    operators passes through memory. Convolutions on a CPU work on channels
    in blocks: what enters or leaves the call is put into that order and back.

    Args:
        small: what the call computes.
        device: whose library it is.
        alone: whether the call is all that a plan does.
    """
    home = homes(small)
    delivered = {home[name] for name in small.outputs}
    nodes = [node for node in small.nodes if node.op != "reshape"]
    is_blocked = device.kind == "cpu"
    groups = spellings(small) if device.kind != "gpu" else {}
    heads = (
        _heads_on_gpu(nodes)
        if device.kind == "gpu"
        else _heads(small, nodes, home, groups)
    )
    found = _operators(small, nodes, home, heads, device)
    reordered = _reorders(small, home, delivered, heads) if is_blocked else ()
    copied = _copies(small, groups) if is_blocked else ()
    accesses = [_whole(small, name) for name in _read(small)]
    accesses += [_whole(small, name, is_write=True) for name in small.outputs]
    elements = sum(small.types[name].elements for name in small.outputs)
    threads = device.subgroup_threads * 8
    return Work(
        accesses=tuple(accesses),
        blocks=max(1, math.ceil(elements / (threads * 8))),
        block_threads=threads,
        registers_per_thread=32,
        bytes_in_flight_per_thread=32,
        operators=(*_counted(small, delivered, found), *reordered, *copied)
        or (LibraryOperator(),),
        is_alone=alone,
    )


def _operators(
    small: Graph,
    nodes: Sequence[Node],
    home: Mapping[str, str],
    heads: Mapping[str, str],
    device: Device,
) -> Sequence[_Operator]:
    found: dict[str, _Operator] = {}
    for node in nodes:
        operator = found.setdefault(heads[node.name], _Operator())
        for pipe, count in _node_operations(small, node).items():
            operator.operations[pipe] = operator.operations.get(pipe, 0.0) + count
        operator.made.update(node.outputs)
        operator.read.update(home[name] for name in node.inputs)
        if heads[node.name] == node.name and _goes_one_by_one(node, device):
            operator.again_bytes += 2 * small.types[node.outputs[0]].bytes
    return tuple(found.values())


def _goes_one_by_one(node: Node, device: Device) -> bool:
    """Whether ONNX Runtime turns a tensor element by element.

    It copies runs where the last axis stays, and else moves single elements (measured:
    256 x 768 and 512 x 3072 take 2.0 to 2.2 times as long as a sum of one operand).
    """
    perm = ints(node.attributes, "perm") if node.op == "transpose" else ()
    return device.kind == "cpu" and bool(perm) and perm[-1] != len(perm) - 1


def _counted(
    small: Graph, delivered: set[str], found: Sequence[_Operator]
) -> tuple[LibraryOperator, ...]:
    """Bytes of each operator: of the call's operands, and of what is passed on."""
    made = {name for one in found for name in one.made}
    passed = {name for one in found for name in one.read - one.made} & made - delivered
    counted = []
    for one in found:
        outside = one.read - made - small.constants.keys()
        inside = ((one.read - one.made) & made) | (one.made & passed)
        counted.append(
            LibraryOperator(
                operations=one.operations,
                operand_bytes=sum(_needed_bytes(small, name) for name in outside)
                + sum(small.types[name].bytes for name in one.made & delivered),
                internal_bytes=sum(small.types[name].bytes for name in inside)
                + one.again_bytes,
            )
        )
    return tuple(counted)


def _reorders(
    small: Graph,
    home: Mapping[str, str],
    delivered: set[str],
    heads: Mapping[str, str],
) -> Iterator[LibraryOperator]:
    """Copies of activations between the user's order and blocks of channels."""
    blocked: set[str] = set()
    for node in small.nodes:
        head = small.by_name[heads.get(node.name, node.name)]
        if node.op not in _BLOCKED and head.op != "conv":
            continue
        first, out = home[node.inputs[0]], node.outputs[0]
        if node.op == "conv":
            if first not in blocked and _is_whole_blocks(small.types[first]):
                yield LibraryOperator(internal_bytes=2 * small.types[first].bytes)
                blocked.add(first)
        elif not any(home[name] in blocked for name in node.inputs):
            continue
        if not _is_whole_blocks(small.types[out]):
            continue
        blocked.add(out)
        if out in delivered:
            yield LibraryOperator(internal_bytes=2 * small.types[out].bytes)


def _copies(small: Graph, groups: Mapping[str, Spelling]) -> Iterator[LibraryOperator]:
    """Operands and results that are brought into the order of their operator."""
    for group in groups.values():
        for call in group.calls:
            given = call.inputs[0]
            if call.op_type == "Transpose" and isinstance(given, Shaped):
                yield LibraryOperator(
                    internal_bytes=2 * small.types[given.tensor].bytes
                )
        if len(group.calls) > 1 and group.calls[-2].op_type == "Transpose":
            made = small.types[group.results[0]].bytes
            yield LibraryOperator(internal_bytes=2 * made)


def _is_whole_blocks(kind: TensorType) -> bool:
    shape = kind.static_shape
    return len(shape) > 2 and shape[1] % _BLOCK_CHANNELS == 0  # noqa: PLR2004


def _read(small: Graph) -> tuple[str, ...]:
    names = region_inputs(small, [node.name for node in small.nodes])
    return tuple(name for name in names if name not in small.constants)


def _whole(small: Graph, name: str, *, is_write: bool = False) -> Access:
    count = _needed_bytes(small, name)
    return Access(
        unique_bytes=count,
        sector_bytes=count,
        requested_bytes=count,
        is_write=is_write,
        tensor=name,
    )


def _needed_bytes(small: Graph, name: str) -> int:
    """All of a tensor, but of a table only as much as its gathers deliver."""
    kind = small.types[name]
    readers = small.consumers.get(name, ())
    if not readers or any(
        reader.op != "gather" or reader.inputs[1] == name for reader in readers
    ):
        return kind.bytes
    taken = sum(small.types[reader.outputs[0]].bytes for reader in readers)
    return min(kind.bytes, taken)


def _readers(
    nodes: Sequence[Node], home: Mapping[str, str]
) -> Mapping[str, tuple[str, ...]]:
    """The nodes that read each tensor, under whatever shape."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        for name in dict.fromkeys(home[name] for name in node.inputs):
            found.setdefault(name, []).append(node.name)
    return {name: tuple(by) for name, by in found.items()}


def _heads(
    small: Graph,
    nodes: Sequence[Node],
    home: Mapping[str, str],
    spelled: Mapping[str, Spelling],
) -> Mapping[str, str]:
    """The operator in which the library computes each node, by one of its nodes."""
    readers = _readers(nodes, home)
    makers = {out: node for node in nodes for out in node.outputs}
    groups = _groups(spelled)
    chains: dict[str, tuple[str, ...]] = {}
    for node in nodes:
        own, joins = groups.get(node.name, (node.name, _is_pointwise(node)))
        chains[node.name] = (own,)
        for name in node.inputs if joins else ():
            before = makers.get(name)  # ONNX Runtime does not look through a reshape
            chain = chains[before.name] if before is not None else ()
            if own in chain:
                chains[node.name] = chain
            elif chain and chain[0] in spelled:
                continue  # an operator for a whole group takes nothing more
            elif chain and len(readers[name]) == 1 and _joins(small, chain, node):
                chains[node.name] = (*chain, own)
                break
    heads = {name: chain[0] for name, chain in chains.items()}
    return {**heads, **dict(_turned(small, nodes, home, heads))}


def _groups(spelled: Mapping[str, Spelling]) -> Mapping[str, tuple[str, bool]]:
    """What the library has one operator for: its name, and whether a chain takes it."""
    return {
        name: (last, group.op_type == "Clip")
        for last, group in spelled.items()
        for name in group.nodes
    }


def _is_pointwise(node: Node) -> bool:
    return OPS[node.op].pattern is Pattern.ELEMENTWISE


def _heads_on_gpu(nodes: Sequence[Node]) -> Mapping[str, str]:
    """Legality lets only such products and epilogues through as one call runs.

    Products side by side are one batch.
    """
    batched = (Pattern.CONTRACTION, Pattern.ELEMENTWISE)
    anchors = [n.name for n in nodes if OPS[n.op].pattern is Pattern.CONTRACTION]
    return {
        node.name: anchors[0]
        if anchors and OPS[node.op].pattern in batched
        else node.name
        for node in nodes
    }


def _joins(small: Graph, chain: tuple[str, ...], node: Node) -> bool:
    """Whether ONNX Runtime runs a node inside the operators of a chain."""
    first, last = small.by_name[chain[0]], small.by_name[chain[-1]]
    if OPS[first.op].pattern is not Pattern.CONTRACTION:
        return False
    if first.op == "conv":
        return len(chain) <= _FUSED_BEHIND_CONV
    if last is first:
        return node.op == "add" or _is_scale(small, node)
    return last.op == "add" and node.op in _GEMM_ACTIVATIONS


def _is_scale(small: Graph, node: Node) -> bool:
    """Whether a node multiplies by one number."""
    numbers = node.inputs if node.op == "mul" else node.inputs[1:]
    return node.op in _SCALES and any(
        name in small.constants and small.types[name].elements == 1 for name in numbers
    )


def _turned(
    small: Graph,
    nodes: Sequence[Node],
    home: Mapping[str, str],
    heads: Mapping[str, str],
) -> Iterator[tuple[str, str]]:
    """Transposes that matrix products read in place, and the operator of the first.

    Source: ONNX Runtime, `matmul_transpose_fusion.cc`.
    """
    readers = _readers(nodes, home)
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        perm = ints(node.attributes, "perm") if node.op == "transpose" else ()
        if not swaps_last_two(perm) or node.outputs[0] in small.outputs:
            continue
        found = [by_name[name] for name in readers.get(node.outputs[0], ())]
        if found and all(
            reader.op == "matmul" and node.outputs[0] in reader.inputs
            for reader in found
        ):
            yield node.name, heads[found[0].name]


def _node_operations(small: Graph, node: Node) -> Mapping[Pipe, float]:
    out = small.types[node.outputs[0]]
    pattern = OPS[node.op].pattern
    if pattern is Pattern.CONTRACTION:
        pipe = _contraction_pipe(small.types[node.inputs[0]].dtype)
        return {pipe: float(out.elements * _inner_extent(small, node))}
    if pattern is Pattern.WINDOW:
        kernel = cast("tuple[int, ...]", node.attributes["kernel"])
        return {Pipe.FMA32: float(out.elements * math.prod(kernel))}
    if pattern is Pattern.REDUCTION:
        return {Pipe.FMA32: float(small.types[node.inputs[0]].elements)}
    if pattern is Pattern.ELEMENTWISE:
        cost = operations(parse(OPS[node.op].expression))
        return {pipe: count * out.elements for pipe, count in cost.items()}
    return {Pipe.INTEGER: float(out.elements)}


def _contraction_pipe(dtype: DType) -> Pipe:
    if dtype in (DType.F16, DType.BF16):
        return Pipe.TENSOR
    return Pipe.FMA64 if dtype is DType.F64 else Pipe.FMA32


def _inner_extent(small: Graph, node: Node) -> int:
    """Multiply-adds per output element of a contraction."""
    if node.op == "matmul":
        return small.types[node.inputs[0]].static_shape[-1]
    return math.prod(small.types[node.inputs[1]].static_shape[1:])
