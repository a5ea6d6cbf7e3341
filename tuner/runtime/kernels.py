"""One kernel, generated or library, bound to memory: the unit that is run and timed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from tuner.ir.graph import Graph
from tuner.ir.types import Array, TensorType
from tuner.plan import Source
from tuner.runtime.backend import Backend, Enqueue, Memory
from tuner.runtime.library import Launch, SessionOptions, open_graph


def typed(memory_bytes: Any, kind: TensorType) -> Array:
    """The tensor that lies at the beginning of some bytes."""
    flat: Array = memory_bytes[: kind.bytes].view(kind.dtype.numpy)
    return flat.reshape(kind.static_shape)


def bind_generated(
    backend: Backend,
    source: Source,
    memories: Mapping[str, Memory],
    *,
    exactness: str = "strict",
) -> Enqueue:
    """The launches of a generated kernel on the memories of its tensors.

    Args:
        backend: whose memories they are.
        source: the kernel.
        memories: by tensor; scratch memory that is not among them is allocated, and
            lives as long as the result.
        exactness: what the compiler may reorder.
    """
    scratch = {
        name: backend.allocate(kind.bytes)
        for name, kind in source.scratch.items()
        if name not in memories
    }
    places = {**memories, **scratch}
    calls = tuple(
        backend.bind(
            launch,
            [places[argument.tensor] for argument in launch.arguments],
            exactness=exactness,
        )
        for launch in source.launches
    )
    return calls[0] if len(calls) == 1 else partial(_in_turn, calls)


def _in_turn(calls: tuple[Enqueue, ...]) -> None:
    for call in calls:
        call()


def bind_library(
    backend: Backend,
    graph: Graph,
    memories: Mapping[str, Memory],
    fixed: Mapping[str, Array],
    options: SessionOptions | None = None,
    *,
    waits: bool = True,
) -> Enqueue:
    """A library call on the memories of its tensors, after all earlier launches.

    Args:
        backend: whose memories they are; if the host cannot see them, they are
            copied there and back at every call.
        graph: what is computed.
        memories: by the graph's tensor names.
        fixed: stored arrays of inputs that never change.
        options: threads.
        waits: whether launches may be pending when it is called.
    """
    session = open_graph(graph, fixed, options)
    given = (*graph.inputs, *graph.weights)
    moving = [name for name in given if name not in fixed]
    touched = (*moving, *graph.outputs)
    views = {name: backend.host(memories[name]) for name in touched}
    arrays = {
        name: np.empty(graph.types[name].static_shape, graph.types[name].dtype.numpy)
        if view is None
        else typed(view, graph.types[name])
        for name, view in views.items()
    }
    launch = session.bind(arrays, graph.types)
    if all(view is not None for view in views.values()):
        return _after(backend, launch) if waits else launch

    def call() -> None:
        for name in moving:
            backend.read(memories[name], arrays[name])
        launch()
        for name in graph.outputs:
            backend.write(memories[name], arrays[name])

    return call


def _after(backend: Backend, launch: Launch) -> Enqueue:
    def call() -> None:
        backend.synchronise()
        launch()

    return call
