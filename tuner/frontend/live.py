"""A model without what none of its outputs depends on."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from tuner.frontend.opaque import captures


def without_dead(model: onnx.ModelProto, weights: Collection[str]) -> onnx.ModelProto:
    """The model without dead nodes, and without weights that only these read.

    What is left of it has a value for every weight: a weight that nothing needs is not
    read, so a library that is handed the model would wait for it in vain.

    Args:
        model: the model; it stays as it is.
        weights: inputs that are weights in truth.
    """
    graph = model.graph
    needed = {value.name for value in graph.output}
    live: list[onnx.NodeProto] = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            live.append(node)
            needed.update(node.input, captures(node))
            needed.discard("")  # inputs left out are no outputs left out
    idle = [v for v in graph.input if v.name in weights and v.name not in needed]
    if len(live) == len(graph.node) and not idle:
        return model
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.node.extend(reversed(live))
    for value in idle:
        changed.graph.input.remove(value)
    return changed
