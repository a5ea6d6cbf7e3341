"""A program as a folder of files that builds and runs without Fuseplan.

The folder holds the kernel sources, the tables of `plan.c` (buffers, launches, order),
a small host in C with a CMake file, the values that are known, and ONNX models for
what a library must do. `manifest.json` says all of it to other hosts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np
from onnx import ModelProto, TensorProto

from tuner.ir.graph import Graph
from tuner.ir.types import Array
from tuner.plan import Language, Source
from tuner.runtime.executor import prepared
from tuner.runtime.onnx_writer import tensor, write_model
from tuner.runtime.requests import Program, Step

EXPORT_SCHEMA: Final = "fuseplan.export/2"
_HOST: Final = Path(__file__).parent / "host"
_COMMON: Final = ("device.h", "fuseplan.c", "fuseplan.h", "main.c")
_SUFFIX: Final[Mapping[Language, str]] = MappingProxyType(
    {"opencl": "cl", "cuda": "cu"}
)
ALIGNMENT_BYTES: Final = 128
"""Buffers begin at multiples of this: kernels read vectors of 16 bytes at once, write
lines of 64 past the caches, and devices of OpenCL cut memory at no other places."""
_DIGITS: Final = 16
_BUILD_OPTIONS: Final[Mapping[tuple[Language, str], str]] = MappingProxyType(
    {
        ("opencl", "strict"): "-cl-std=CL3.0",
        ("opencl", "relaxed"): "-cl-std=CL3.0 -cl-fast-relaxed-math",
        ("cuda", "strict"): "",
        ("cuda", "relaxed"): "--use_fast_math",
    }
)

Kind = Literal["input", "weight", "constant", "output", "arena"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Memory of a tensor.

    Attributes:
        offset: in the arena, or of a constant in `data.bin`; else 0.
    """

    tensor: str
    kind: Kind
    bytes: int
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What is written: files by their path in the folder."""

    manifest: Mapping[str, Any]
    files: Mapping[str, bytes]


@dataclass(slots=True)
class _Layout:
    """Numbers the buffers as they are met."""

    program: Program
    known: Mapping[str, Array]
    places: list[Place] = field(default_factory=list)
    number: dict[str, int] = field(default_factory=dict)
    data: list[bytes] = field(default_factory=list)
    size: int = 0

    def buffer(self, name: str) -> int:
        """Number of the buffer in which a tensor lies."""
        home = name
        while home in self.program.memory.aliases:
            home = self.program.memory.aliases[home]
        if home not in self.known and name in self.known:
            home = name
        if home not in self.number:
            self.number[home] = len(self.places)
            self.places.append(self._place(home))
        return self.number[home]

    def _place(self, home: str) -> Place:
        program = self.program
        size = program.types[home].bytes
        for buffer in program.memory.buffers:
            if buffer.tensor == home:
                return Place(
                    tensor=home, kind="arena", bytes=size, offset=buffer.offset
                )
        if home in program.inputs:
            return Place(tensor=home, kind="input", bytes=size)
        if home in self.known:
            offset = self._store(np.ascontiguousarray(self.known[home]).tobytes())
            return Place(tensor=home, kind="constant", bytes=size, offset=offset)
        made = program.prepare.outputs if program.prepare is not None else ()
        if home in program.weights or home in made:
            return Place(tensor=home, kind="weight", bytes=size)
        return Place(tensor=home, kind="output", bytes=size)

    def _store(self, content: bytes) -> int:
        gap = -self.size % ALIGNMENT_BYTES
        offset = self.size + gap
        self.data += [bytes(gap), content]
        self.size = offset + len(content)
        return offset


def export(
    program: Program,
    language: Language,
    *,
    weights: Mapping[str, Array],
    architecture: str = "",
    names: Mapping[str, Sequence[str]] = MappingProxyType({}),
    about: Mapping[str, Any] = MappingProxyType({}),
    with_models: bool = True,
) -> Exported:
    """Everything that a host needs to run a program.

    Args:
        program: the plan as the executor runs it.
        language: of the kernels.
        weights: stored values of the weights that are known; when they are enough,
            `prepare` is computed now, and its results are written.
        architecture: what nvcc compiles for, such as "sm_90".
        names: the user's names of tensors, for the manifest.
        about: what else the manifest says of the plan.
        with_models: whether ONNX models of library calls and of `prepare` are
            written; without, the graphs need no attributes.
    """
    known = _known(program, weights)
    layout = _Layout(program, known)
    for name in program.inputs:
        layout.buffer(name)
    steps = [
        row
        for step in program.steps
        for row in _rows(step, layout, language, with_models)
    ]
    outputs = [layout.buffer(name) for name in program.outputs]
    prepare = _prepare(program, layout, weights, with_models)
    files = {**(_library_files(program) if with_models else {}), **prepare.files()}
    manifest = {
        "schema": EXPORT_SCHEMA,
        "format": language,
        "exactness": program.exactness,
        "architecture": architecture,
        "alignment_bytes": ALIGNMENT_BYTES,
        "arena_bytes": program.memory.arena_bytes,
        "buffers": [_buffer_json(p, program, names) for p in layout.places],
        "inputs": [layout.buffer(name) for name in program.inputs],
        "outputs": outputs,
        "steps": steps,
        "library_calls": [s["name"] for s in steps if s["kind"] == "library"],
        "prepare": prepare.manifest,
        **about,
    }
    files |= {
        **_kernel_files(program, language),
        **_host_files(program, language, architecture),
        "plan.c": _tables(layout, steps, outputs, manifest).encode(),
        "manifest.json": (json.dumps(manifest, indent=2) + "\n").encode(),
    }
    if layout.size:
        files["data.bin"] = b"".join(layout.data)
    return Exported(manifest=manifest, files=files)


def _known(program: Program, weights: Mapping[str, Array]) -> Mapping[str, Array]:
    """Every value that is known: constants, weights, and what `prepare` makes."""
    given = {**program.constants, **weights}
    graph = program.prepare
    if graph is None:
        return given
    if all(name in weights for name in (*graph.inputs, *graph.weights)):
        return {**given, **prepared(program, weights)}
    return given


def _rows(
    step: Step, layout: _Layout, language: Language, with_models: bool
) -> list[dict[str, Any]]:
    """What a host does for a step: a library call, or the launches of a kernel."""
    if step.source is None:
        given = (*step.graph.inputs, *step.graph.weights)
        return [
            {
                "name": step.name,
                "kind": "library",
                "model": f"library/{step.name}.onnx" if with_models else None,
                "operators": _operators(step.graph),
                "inputs": [layout.buffer(step.tensor(name)) for name in given],
                "outputs": [layout.buffer(step.tensor(n)) for n in step.graph.outputs],
            }
        ]
    *before, last = (
        _launch(step, source, layout, language) for source in step.source.launches
    )
    for number, launch in enumerate(before):
        launch["name"] = f"{step.name}.{number}"
    return [*before, last]


def _launch(
    step: Step, source: Source, layout: _Layout, language: Language
) -> dict[str, Any]:
    return {
        "name": step.name,
        "kind": "kernel",
        "file": _file(source, language),
        "entry": source.entry,
        "grid": list(source.grid),
        "block": list(source.block),
        "shared_bytes": source.shared_bytes,
        "arguments": [layout.buffer(step.tensor(a.tensor)) for a in source.arguments],
    }


def _operators(graph: Graph) -> list[str]:
    """Operators by name; those that we do not know by that of the standard."""
    return sorted({str(n.attributes.get("op_type", n.op)) for n in graph.nodes})


def _file(source: Source, language: Language) -> str:
    return f"kernels/{source.digest[:_DIGITS]}.{_SUFFIX[language]}"


def _buffer_json(
    place: Place, program: Program, names: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    kind = program.types[place.tensor]
    return {
        "tensor": place.tensor,
        "names": list(names.get(place.tensor, ())),
        "kind": place.kind,
        "dtype": str(kind.dtype),
        "shape": list(kind.static_shape),
        "bytes": place.bytes,
        "offset": place.offset,
    }


# Files


def _kernel_files(program: Program, language: Language) -> dict[str, bytes]:
    sources = [step.source for step in program.steps if step.source is not None]
    return {_file(source, language): source.text.encode() for source in sources}


def _library_files(program: Program) -> dict[str, bytes]:
    return {
        f"library/{step.name}.onnx": _onnx(step.graph, {})
        for step in program.steps
        if step.source is None
    }


def _onnx(graph: Graph, fixed: Mapping[str, Array]) -> bytes:
    """A graph as an ONNX model that holds all of its values."""
    model: ModelProto = write_model(graph, fixed)
    values = {**graph.constants, **fixed}
    for place, proto in enumerate(model.graph.initializer):
        if proto.data_location == TensorProto.EXTERNAL:
            full = tensor(proto.name, values[proto.name], graph.types[proto.name])
            model.graph.initializer[place].CopyFrom(full)
    return bytes(model.SerializeToString())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepare:
    manifest: Mapping[str, Any] | None = None
    make: Callable[[], bytes] | None = None

    def files(self) -> dict[str, bytes]:
        return {} if self.make is None else {"prepare.onnx": self.make()}


def _prepare(
    program: Program, layout: _Layout, weights: Mapping[str, Array], with_models: bool
) -> _Prepare:
    """The model that turns weights into what the kernels read, where one is left."""
    graph = program.prepare
    if graph is None or all(name in layout.known for name in graph.outputs):
        return _Prepare()
    given = (*graph.inputs, *graph.weights)
    known = {name: weights[name] for name in given if name in weights}
    return _Prepare(
        manifest={
            "model": "prepare.onnx" if with_models else None,
            "operators": _operators(graph),
            "inputs": [name for name in given if name not in known],
            "outputs": list(graph.outputs),
        },
        make=(lambda: _onnx(graph, known)) if with_models else None,
    )


def _host_files(
    program: Program, language: Language, architecture: str
) -> dict[str, bytes]:
    names = (*_COMMON, f"device_{language}.c")
    files = {f"host/{name}": (_HOST / name).read_bytes() for name in names}
    text = (_HOST / f"CMakeLists.{language}.txt").read_text()
    stems = sorted(Path(name).stem for name in _kernel_files(program, language))
    text = text.replace("@KERNELS@", "\n".join(f"  {stem}" for stem in stems))
    text = text.replace("@ARCHITECTURE@", architecture)
    text = text.replace("@FLAGS@", _BUILD_OPTIONS[language, program.exactness])
    files["CMakeLists.txt"] = text.encode()
    return files


def _tables(
    layout: _Layout,
    steps: Sequence[Mapping[str, Any]],
    outputs: Sequence[int],
    manifest: Mapping[str, Any],
) -> str:
    """The plan as tables in C."""
    is_cuda = manifest["format"] == "cuda"
    options = _BUILD_OPTIONS[manifest["format"], manifest["exactness"]]
    buffers = [
        f'    {{"{p.tensor}", FP_{p.kind.upper()}, {p.bytes}u, {p.offset}u}},'
        for p in layout.places
    ]
    arrays = [
        f"static const int arguments_{i}[] = {{{_list(_touched(step))}}};"
        for i, step in enumerate(steps)
    ]
    rows = [_row(i, step, is_cuda=is_cuda) for i, step in enumerate(steps)]
    return "\n".join(
        [
            "/* Generated; see manifest.json. */",
            '#include "fuseplan.h"',
            "",
            "static const fp_buffer buffers[] = {",
            *(buffers or ['    {"", FP_ARENA, 0u, 0u},']),
            "};",
            *arrays,
            "static const fp_step steps[] = {",
            *(rows or ['    {"", 0, "", {0}, {0}, 0u, 0, 0, 0},']),
            "};",
            f"static const int outputs[] = {{{_list(outputs)}}};",
            "const fp_plan fp_the_plan = {",
            f"    buffers, {len(buffers)}, steps, {len(rows)},",
            f"    outputs, {len(outputs)}, {manifest['arena_bytes']}u,",
            f'    {int(manifest["prepare"] is not None)}, "{options}"}};',
            "",
        ]
    )


def _touched(step: Mapping[str, Any]) -> Sequence[int]:
    if step["kind"] == "library":
        return [*step["inputs"], *step["outputs"]]
    arguments: Sequence[int] = step["arguments"]
    return arguments


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers)) or "0"


def _row(number: int, step: Mapping[str, Any], *, is_cuda: bool) -> str:
    tail = f"arguments_{number}, {len(_touched(step))}"
    if step["kind"] == "library":
        model = f'"{step["model"]}"' if step["model"] else "0"
        return f'    {{"{step["name"]}", 0, "", {{0}}, {{0}}, 0u, {model}, {tail}}},'
    file = step["file"]
    if is_cuda:
        file = str(Path(file).with_suffix(".cubin"))
    grid, block = (_list(step[key]) for key in ("grid", "block"))
    return (
        f'    {{"{step["name"]}", "{file}", "{step["entry"]}", {{{grid}}}, {{{block}}},'
        f" {step['shared_bytes']}u, 0, {tail}}},"
    )
