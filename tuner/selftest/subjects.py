"""What the test runs: a kernel written by hand, and generated ones of all families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cost_model.catalog import DEVICES, find
from cost_model.device import Device
from tuner.calibration.corpus import samples
from tuner.calibration.draft import Draft
from tuner.calibration.timing import generated
from tuner.errors import DeviceUnavailable
from tuner.ir.graph import Graph
from tuner.ir.interpreter import evaluate
from tuner.ir.types import Array, DType
from tuner.plan import Language, Source
from tuner.runtime.backend import Bytes
from tuner.runtime.canary import canary
from tuner.runtime.cuda import architecture

COMMON: Final = "sm_90"
_PRODUCTS: Final = ((96, 64, 80), (512, 768, 640), (2048, 2048, 2048))
_PICTURES: Final = ((2, 8, 15, 15, 12), (8, 64, 56, 56, 64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kernel to verify and time.

    Attributes:
        graph: what it computes.
        source: in the device's language.
        moved_bytes: bytes that it reads and writes, each once.
    """

    name: str
    graph: Graph
    source: Source
    moved_bytes: int


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
    return subject("raw kernel", graph, _renamed(source, renamed))


def _renamed(source: Source, names: dict[str, str]) -> Source:
    arguments = tuple(replace(a, tensor=names[a.tensor]) for a in source.arguments)
    return replace(source, arguments=arguments)


def subject(name: str, graph: Graph, source: Source) -> Subject:
    """A subject with its least traffic."""
    moved = sum(graph.types[n].bytes for n in (*graph.inputs, *graph.outputs))
    return Subject(name=name, graph=graph, source=source, moved_bytes=moved)


def copy_of(size_bytes: int, device: Device) -> Subject:
    """Reads and writes every byte once (a copy with the sign turned)."""
    draft = Draft()
    graph = draft.graph(draft.op("neg", draft.input(size_bytes // 4)))
    return _made("copy", graph, device)


def suite(device: Device) -> Iterator[Subject]:
    """Generated kernels of every family, the small sizes of all of them first."""
    rows: dict[str, list[Graph]] = {}
    for sample in samples():
        rows.setdefault(sample.name, []).append(sample.graph)
    for kind in (DType.F32, DType.F16, DType.BF16):
        rows[f"product {kind}"] = [_product(shape, kind) for shape in _PRODUCTS]
    rows["convolution"] = [_convolution(shape) for shape in _PICTURES]
    for size in range(max(map(len, rows.values()))):
        for name, graphs in rows.items():
            if size < len(graphs):
                yield _made(f"{name} {_shape(graphs[size])}", graphs[size], device)


def _made(name: str, graph: Graph, device: Device) -> Subject:
    source = generated(graph, device).source
    assert source is not None
    return subject(name, graph, source)


def _shape(graph: Graph) -> str:
    return "x".join(map(str, graph.types[graph.inputs[0]].static_shape))


def _product(shape: tuple[int, int, int], kind: DType) -> Graph:
    """A matrix product with an epilogue."""
    rows, columns, terms = shape
    draft = Draft()
    left = draft.input(rows, terms, dtype=kind)
    made = draft.op("matmul", left, draft.input(terms, columns, dtype=kind))
    return draft.graph(draft.op("relu", made))


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


def behaviour(graph: Graph, source: Source) -> Callable[[Sequence[Bytes]], None]:
    """What the null device does in a kernel's place: the reference."""

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
