"""A plan as a folder of files that need no Fuseplan: see `tuner.runtime.export`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from cost_model.device import base_of
from service.cli import lookups
from service.cli.exits import BadArgument, CacheMiss
from service.cli.inputs import settings, write_bytes
from service.store import blobs
from service.store.database import connect
from tuner import execution, pipeline
from tuner.errors import TunerError
from tuner.execution import scratch_of
from tuner.ir.graph import Graph, Node
from tuner.ir.types import DType, TensorType
from tuner.plan import Argument, Buffer, MemoryPlan, Source
from tuner.runtime.export import Exported, export
from tuner.runtime.requests import Program, Step

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from cost_model.device import Device
    from service.cli.planning import Planned

Format = Literal["cuda", "opencl"]
FORMATS: Final[tuple[Format, ...]] = ("cuda", "opencl")
COMMON: Final = "sm_80"
"""What nvcc compiles for when the plan's target is no GPU."""


def checked(text: str) -> Format | None:
    """The format that a word asks for; None when it leaves the choice to the target.

    Raises:
        BadArgument: there is no such format.
    """
    if not text:
        return None
    for known in FORMATS:
        if text == known:
            return known
    raise BadArgument(
        "--format", f"{text!r} is none of {', '.join(FORMATS)}", hint="--format cuda"
    )


def _spoken(device: Device) -> Format:
    """The format that a target speaks."""
    return "cuda" if device.kind == "gpu" else "opencl"


def of_planned(planned: Planned, asked: Format | None) -> Exported:
    """A package of a plan for a model that was read, with the values it came with."""
    prepared = planned.prepared
    model, device = prepared.model, prepared.device
    language = asked or _spoken(device)
    program = execution.program(model, planned.plan, language)
    values = model.imported.values
    weights = {
        tensor: values[name]
        for tensor in program.weights
        for name in model.names.get(tensor, ())
        if name in values
    }
    return export(
        program,
        language,
        weights=weights,
        architecture=_architecture(device),
        names=model.names,
        about={"plan": {"plan_key": prepared.key.key, **planned.stored}},
    )


def of_stored(key: str, asked: Format | None) -> Exported:
    """A package of a plan that the database of this machine holds.

    The database holds no values: constants and weights are the host's to give.

    Raises:
        CacheMiss: the plan, or a source that it names, is not stored.
    """
    body = lookups.find(key, "analytic", "").body
    device = _device(body)
    language = asked or _spoken(device)
    wanted = {k["sources"][language] for k in body["kernels"] if k["sources"]}
    return export(
        _program(body, language, _texts(wanted)),
        language,
        weights={},
        architecture=_architecture(device),
        about={"plan": {"plan_key": key, **body}},
        with_models=False,
    )


def _device(body: Mapping[str, Any]) -> Device:
    try:
        return pipeline.resolve_target(base_of(body["target"]["id"]))
    except TunerError:  # a device of a file that is not here
        return pipeline.resolve_target(COMMON)


def _architecture(device: Device) -> str:
    return device.architecture if device.kind == "gpu" else COMMON


def _texts(wanted: set[str]) -> Mapping[str, str]:
    database = connect(settings().url)
    try:
        with database.read() as session:
            held = {digest: blobs.find(session, digest) for digest in sorted(wanted)}
    finally:
        database.close()
    missing = [digest for digest, blob in held.items() if blob is None]
    if missing:
        raise CacheMiss(missing[0], "a kernel source is not stored", hint="tune again")
    return {digest: blob.content.decode() for digest, blob in held.items() if blob}


def _program(
    body: Mapping[str, Any], language: Format, texts: Mapping[str, str]
) -> Program:
    """What a stored body says, as the program of a host."""
    graph, prepare = (_graph(body[key]) for key in ("graph", "prepare_graph"))
    given = (*body["graph"]["constants"], *graph.weights)
    made = set(prepare.outputs)
    given = (*given, *prepare.weights, *prepare.inputs)
    steps = tuple(_step(k, graph, language, texts) for k in body["kernels"])
    return Program(
        steps=steps,
        inputs=graph.inputs,
        outputs=graph.outputs,
        weights=tuple(dict.fromkeys(name for name in given if name not in made)),
        types={**prepare.types, **graph.types, **scratch_of(steps)},
        memory=MemoryPlan(
            buffers=tuple(Buffer(**buffer) for buffer in body["buffers"]),
            aliases=body["aliases"],
            arena_bytes=body["arena_bytes"],
            peak_bytes=body["peak_memory_bytes"],
        ),
        prepare=prepare if prepare.nodes else None,
        exactness=body["options"]["exactness"],
    )


def _graph(stored: Mapping[str, Any]) -> Graph:
    """The structure of a stored graph; attributes are not stored."""
    return Graph(
        nodes=tuple(
            Node(
                name=node["id"],
                op=node["op"],
                inputs=tuple(node["inputs"]),
                outputs=tuple(node["outputs"]),
            )
            for node in stored["nodes"]
        ),
        inputs=tuple(stored["inputs"]),
        weights=tuple(stored["weights"]),
        outputs=tuple(stored["outputs"]),
        types=_types(stored["tensors"]),
    )


def _types(stored: Mapping[str, Any]) -> dict[str, TensorType]:
    return {
        name: TensorType(dtype=DType(kind["dtype"]), shape=tuple(kind["shape"]))
        for name, kind in stored.items()
    }


def _source(
    launch: Mapping[str, Any],
    kernel: Mapping[str, Any],
    language: Format,
    text: str,
    scratch: Mapping[str, TensorType],
) -> Source:
    """One launch of a stored kernel."""
    return Source(
        language=language,
        text=text,
        entry=launch["entry"],
        arguments=tuple(
            Argument(
                tensor=name,
                is_output=name in kernel["outputs"],
                scratch=scratch.get(name),
            )
            for name in launch["arguments"]
        ),
        grid=tuple(launch["grid"]),
        block=tuple(launch["block"]),
        shared_bytes=launch["shared_bytes"],
    )


def _step(
    kernel: Mapping[str, Any], graph: Graph, language: Format, texts: Mapping[str, str]
) -> Step:
    source = None
    if kernel["sources"]:
        launch = kernel["launch"]
        if "arguments" not in launch:
            raise CacheMiss(
                kernel["name"],
                "this plan was stored without the arguments of its launches",
                hint="export the model instead, with --plan for a tuned plan",
            )
        scratch = _types(launch.get("scratch", {}))
        text = texts[kernel["sources"][language]]
        first, *others = (
            _source(one, kernel, language, text, scratch)
            for one in (launch, *launch.get("before", ()))
        )
        source = replace(first, before=tuple(others))
    part = Graph(
        nodes=tuple(graph.by_name[name] for name in kernel["nodes"]),
        inputs=tuple(kernel["inputs"]),
        outputs=tuple(kernel["outputs"]),
        types=graph.types,
    )
    return Step(name=kernel["name"], graph=part, source=source)


def write(package: Exported, folder: Path) -> list[str]:
    """Write a package; equal kernels share one file.

    What an earlier export left in the folder, and this one does not have, is removed.

    Returns:
        Names of the files, relative to the folder.
    """
    try:
        for name in package.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(
            str(folder), f"cannot be made: {error.strerror}", hint="choose another -o"
        ) from error
    for name in _left(folder):
        if name not in package.files:
            (folder / name).unlink(missing_ok=True)
    for name, content in package.files.items():
        write_bytes(folder / name, content)
    return sorted(package.files)


def _left(folder: Path) -> list[str]:
    """Kernels and models of an export that the folder holds already."""
    if not (folder / "manifest.json").is_file():
        return []
    patterns = ("kernels/*.cu", "kernels/*.cl", "library/*.onnx", "prepare.onnx")
    found = (path for pattern in patterns for path in folder.glob(pattern))
    return [path.relative_to(folder).as_posix() for path in found]


def library_steps(package: Exported) -> list[str]:
    """Steps that no exported kernel runs, with their operators."""
    return [
        f"{step['name']} ({', '.join(step['operators'])})"
        for step in package.manifest["steps"]
        if step["kind"] == "library"
    ]
