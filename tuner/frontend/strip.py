"""Models without weights: the light form that is handed in."""

from __future__ import annotations

from collections.abc import Collection

import onnx

from tuner.errors import InvalidOption
from tuner.frontend.model import (
    Metadata,
    constant_tensor,
    inline,
    lighten,
    metadata_of,
    parse,
    plain,
    write_metadata,
)
from tuner.frontend.opaque import subgraphs


def strip(data: bytes, *, keep: Collection[str] = (), anonymous: bool = False) -> bytes:
    """Turn the large float initializers of a model into graph inputs.

    Metadata `weights` names them; `input_ranges`, `dim_defaults` and `gain` stay as
    they are.

    Args:
        data: the serialised model.
        keep: tensors whose values stay in the model.
        anonymous: whether every node, tensor and dimension gets a new name, and all
            text that says where the model comes from is dropped. Names of operator
            domains stay, because they say what a node computes.

    Raises:
        InvalidModel: the bytes are not a model.
        InvalidOption: a tensor to be kept is none that the model holds.
        UnsupportedModel: the data lies in other files.
        ModelTooLarge: the model exceeds the limits.
    """
    model = parse(data)
    plain(model)
    metadata = metadata_of(model)
    _require(model, keep)
    values = lighten(model, keep)
    listed = {value.name for value in model.graph.input}
    weights = [name for name in metadata.weights if name in listed]
    weights += [name for name in values if name not in weights]
    write_metadata(model, "weights", weights)
    write_metadata(model, "input_ranges", dict(metadata.input_ranges))
    if metadata.dim_defaults:
        write_metadata(model, "dim_defaults", dict(metadata.dim_defaults))
    if anonymous:
        model = _anonymous(inline(model), metadata, weights)
    return bytes(model.SerializeToString(deterministic=True))


def _require(model: onnx.ModelProto, keep: Collection[str]) -> None:
    """Every tensor that is to be kept is one whose values the model holds."""
    held = {tensor.name for tensor in model.graph.initializer}
    held.update(n.output[0] for n in model.graph.node if constant_tensor(n) is not None)
    for name in keep:
        if name not in held:
            raise InvalidOption(
                name,
                "the model holds no values of such a tensor",
                hint="keep takes names of initializers and constants",
            )


class _Names:
    """New names, one for each old one."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.known: dict[str, str] = {}

    def __call__(self, old: str) -> str:
        if not old:
            return ""
        return self.known.setdefault(old, f"{self.prefix}{len(self.known)}")


def _anonymous(
    model: onnx.ModelProto, metadata: Metadata, weights: Collection[str]
) -> onnx.ModelProto:
    tensors, dims = _Names("t"), _Names("d")
    bare = onnx.ModelProto(ir_version=model.ir_version)
    bare.opset_import.extend(model.opset_import)
    bare.graph.CopyFrom(model.graph)
    _rename_graph(bare.graph, tensors, dims)
    ranges = {tensors(k): v for k, v in metadata.input_ranges.items()}
    defaults = {dims(k): v for k, v in metadata.dim_defaults.items()}
    write_metadata(bare, "weights", [tensors(name) for name in weights])
    write_metadata(bare, "input_ranges", ranges)
    if defaults:
        write_metadata(bare, "dim_defaults", defaults)
    if metadata.gain != 1:
        write_metadata(bare, "gain", metadata.gain)
    return bare


def _rename_graph(graph: onnx.GraphProto, tensors: _Names, dims: _Names) -> None:
    graph.name, graph.doc_string = "g", ""
    del graph.metadata_props[:]
    del graph.quantization_annotation[:]
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name, value.doc_string = tensors(value.name), ""
        del value.metadata_props[:]
        _rename_dims(value.type, dims)
    for tensor in graph.initializer:
        tensor.name, tensor.doc_string = tensors(tensor.name), ""
        del tensor.metadata_props[:]
    for position, node in enumerate(graph.node):
        node.name, node.doc_string = f"n{position}", ""
        del node.metadata_props[:]
        inputs, outputs = map(tensors, node.input), map(tensors, node.output)
        node.input[:], node.output[:] = list(inputs), list(outputs)
        for attribute in node.attribute:
            attribute.doc_string = ""
            if attribute.HasField("t"):
                attribute.t.name = attribute.t.doc_string = ""
        for part in subgraphs(node):
            _rename_graph(part, tensors, dims)


def _rename_dims(kind: onnx.TypeProto, dims: _Names) -> None:
    kind.denotation = ""
    for dim in kind.tensor_type.shape.dim:
        dim.denotation = ""
        if dim.dim_param:
            dim.dim_param = dims(dim.dim_param)
