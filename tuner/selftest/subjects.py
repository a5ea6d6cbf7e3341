"""What the test runs: a kernel written by hand, and generated ones of all families.

Reductions of few long rows are there in one launch and in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from cost_model.catalog import DEVICES, find
from cost_model.device import Device
from tuner.calibration.corpus import samples
from tuner.calibration.draft import Draft
from tuner.calibration.timing import DIALECTS
from tuner.errors import DeviceUnavailable
from tuner.ir.graph import Graph
from tuner.ir.interpreter import evaluate
from tuner.ir.types import Array, DType
from tuner.kernel.lower import lower
from tuner.kernel.nest import LoopNest
from tuner.kernel.render import render
from tuner.kernel.schedule import default
from tuner.kernel.split import halves, joined, launches
from tuner.plan import Language, Schedule, Source
from tuner.runtime.backend import Bytes
from tuner.runtime.canary import canary
from tuner.runtime.cuda import architecture
from tuner.runtime.null import Behaviour, launch_key

COMMON: Final = "sm_90"
_PRODUCTS: Final = ((96, 64, 80), (512, 768, 640), (2048, 2048, 2048))
_PICTURES: Final = ((2, 8, 15, 15, 12), (8, 64, 56, 56, 64))
_ROWS_IN_PARTS: Final = (((3, 5003), 1, 4), ((2, 1 << 20), 1, 61))
_COLUMNS_IN_PARTS: Final = (((5003, 17), 0, 3), ((1 << 16, 40), 0, 64))
"""Shapes, the axis that is reduced, and into how many parts it is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kernel to verify and time.

    Attributes:
        graph: what it computes.
        source: in the device's language.
        launched: what each of its launches computes.
        moved_bytes: bytes that it reads and writes, each once.
    """

    name: str
    graph: Graph
    source: Source
    launched: tuple[Graph, ...]
    moved_bytes: int


class _Asked(NamedTuple):
    """A kernel of the suite.

    Attributes:
        parts: into which its reduced axis is cut.
    """

    graph: Graph
    parts: int = 1


def target(device: str) -> Device:
    """The device of the catalogue whose schedules are taken.

    For a GPU that is there, it is the newest that is not newer: what compiles for one
    compiles for the other. Without a GPU it is a common one.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return find("cpu")
    try:
        there = architecture(int(number or "0"))
    except DeviceUnavailable:
        return find(COMMON)
    return not_newer(there)


def not_newer(architecture_name: str) -> Device:
    """The newest GPU of the catalogue whose architecture is no later than this one."""
    most = _number(architecture_name)
    gpus = [d for d in DEVICES.values() if d.kind == "gpu"]
    older = [d for d in gpus if _number(d.architecture) <= most]
    return max(older or gpus[:1], key=lambda d: _number(d.architecture))


def _number(architecture_name: str) -> int:
    return int(architecture_name.removeprefix("sm_"))


def affine() -> Graph:
    """What the canary computes: y = 2 x + 1."""
    draft = Draft()
    doubled = draft.op("mul", draft.input(1024), draft.number(2.0))
    return draft.graph(draft.op("add", doubled, draft.number(1.0)))


def by_hand(language: Language) -> Subject:
    """The canary as a subject: its arguments are the graph's tensors."""
    graph, source = affine(), canary(language)
    renamed = dict(zip(("x", "y"), (*graph.inputs, *graph.outputs), strict=True))
    return subject("raw kernel", graph, _renamed(source, renamed), (graph,))


def _renamed(source: Source, names: dict[str, str]) -> Source:
    arguments = tuple(replace(a, tensor=names[a.tensor]) for a in source.arguments)
    return replace(source, arguments=arguments)


def subject(
    name: str, graph: Graph, source: Source, launched: tuple[Graph, ...]
) -> Subject:
    """A subject with its least traffic."""
    moved = sum(graph.types[n].bytes for n in (*graph.inputs, *graph.outputs))
    return Subject(
        name=name, graph=graph, source=source, launched=launched, moved_bytes=moved
    )


def copy_of(size_bytes: int, device: Device) -> Subject:
    """Reads and writes every byte once (a copy with the sign turned)."""
    draft = Draft()
    graph = draft.graph(draft.op("neg", draft.input(size_bytes // 4)))
    return _made("copy", _Asked(graph), device)


def suite(device: Device) -> Iterator[Subject]:
    """Generated kernels of every family, the small sizes of all of them first."""
    rows: dict[str, list[_Asked]] = {}
    for sample in samples():
        rows.setdefault(sample.name, []).append(_Asked(sample.graph))
    for kind in (DType.F32, DType.F16, DType.BF16):
        made = [_Asked(_product(shape, kind)) for shape in _PRODUCTS]
        rows[f"product {kind}"] = made
    rows["convolution"] = [_Asked(_convolution(shape)) for shape in _PICTURES]
    for kind in (DType.F32, DType.F16, DType.I32):
        for name, table in (("rows", _ROWS_IN_PARTS), ("columns", _COLUMNS_IN_PARTS)):
            rows[f"{name} in parts {kind}"] = [
                _Asked(_reduced(shape, axis, kind), parts)
                for shape, axis, parts in table
            ]
    for size in range(max(map(len, rows.values()))):
        for name, asked in rows.items():
            if size < len(asked):
                one = asked[size]
                yield _made(f"{name} {_shape(one.graph)}", one, device)


def _made(name: str, asked: _Asked, device: Device) -> Subject:
    nest = lower(asked.graph)
    schedule = _cut(nest, asked.parts, device)
    source = render(nest, schedule, DIALECTS[device.kind])
    return subject(name, asked.graph, source, launched(nest, schedule))


def _cut(nest: LoopNest, parts: int, device: Device) -> Schedule:
    """The schedule that needs no tuning, in two launches where there are parts."""
    if parts == 1:
        return default(nest, device)
    first, second = halves(nest, parts)
    return joined(parts, default(first, device), default(second, device))


def launched(nest: LoopNest, schedule: Schedule) -> tuple[Graph, ...]:
    """What each launch of a kernel computes."""
    graphs = [one.graph for one, _ in launches(nest, schedule)]
    return tuple(graph for graph in graphs if graph is not None)


def _shape(graph: Graph) -> str:
    return "x".join(map(str, graph.types[graph.inputs[0]].static_shape))


def _product(shape: tuple[int, int, int], kind: DType) -> Graph:
    """A matrix product with an epilogue."""
    rows, columns, terms = shape
    draft = Draft()
    left = draft.input(rows, terms, dtype=kind)
    made = draft.op("matmul", left, draft.input(terms, columns, dtype=kind))
    return draft.graph(draft.op("relu", made))


def _reduced(shape: tuple[int, int], axis: int, kind: DType) -> Graph:
    """Sum and greatest of products, put together."""
    draft = Draft()
    scale = draft.input(1, 1, dtype=kind)
    source = draft.op("mul", draft.input(*shape, dtype=kind), scale)
    total, most = (
        draft.op(f"reduce_{op}", source, axes=(axis,), keepdims=0)
        for op in ("sum", "max")
    )
    return draft.graph(draft.op("sub", total, most), total)


def _convolution(shape: tuple[int, int, int, int, int]) -> Graph:
    batch, channels, height, width, made = shape
    draft = Draft()
    data = draft.input(batch, channels, height, width)
    result = draft.op(
        "conv",
        data,
        draft.input(made, channels, 3, 3),
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
        group=1,
    )
    return draft.graph(draft.op("relu", result))


def behaviours(source: Source, graphs: Sequence[Graph]) -> Mapping[str, Behaviour]:
    """What the null device does in the place of a kernel's launches."""
    return {
        launch_key(one): behaviour(graph, one)
        for one, graph in zip(source.launches, graphs, strict=True)
    }


def behaviour(graph: Graph, source: Source) -> Behaviour:
    """What the null device does in the place of a launch: the reference."""

    def run(arguments: Sequence[Bytes]) -> None:
        types = graph.types
        arrays: dict[str, Array] = {
            argument.tensor: place[: types[argument.tensor].bytes]
            .view(types[argument.tensor].dtype.numpy)
            .reshape(types[argument.tensor].static_shape)
            for argument, place in zip(source.arguments, arguments, strict=True)
        }
        for name, value in evaluate(graph, arrays).items():
            arrays[name][...] = value

    return run
