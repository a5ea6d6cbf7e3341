"""Reads ONNX models into graphs of primitive operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from types import MappingProxyType

import onnx

from tuner.errors import UnsupportedModel
from tuner.frontend.custom import with_functions
from tuner.frontend.imported import Imported
from tuner.frontend.islands import Enclosed, enclose
from tuner.frontend.live import without_dead
from tuner.frontend.model import (
    Limits,
    Metadata,
    bind,
    check_tensors,
    inline,
    lighten,
    metadata_of,
    parse,
    plain,
    symbols_of,
    write_metadata,
)
from tuner.frontend.reader import Reader
from tuner.ir.custom import RuleSet
from tuner.ir.graph import Graph
from tuner.ir.verify import verify


def read_onnx(
    data: bytes,
    *,
    dims: Mapping[str, int] = MappingProxyType({}),
    use_defaults: bool = False,
    limits: Limits | None = None,
    rules: RuleSet | None = None,
) -> Imported:
    """Read a model.

    Args:
        data: the serialised model.
        dims: sizes of symbolic dimensions.
        use_defaults: whether the model's own `dim_defaults` bind what `dims` does not.
        limits: what is read at most.
        rules: operators of the user's own.

    Raises:
        InvalidModel: the bytes are not a model, or it breaks its own standard.
        UnsupportedModel: it uses what is refused on purpose.
        ModelTooLarge: it exceeds the limits.
        InvalidOption: `dims` names a dimension that the model does not have.
    """
    model = parse(data, limits)
    plain(model)
    metadata = metadata_of(model)
    values = lighten(model)
    bound = _bound(model, metadata, dims, use_defaults=use_defaults)
    bind(model, bound)
    listed = {value.name for value in model.graph.input}
    given = {tensor.name for tensor in model.graph.initializer}
    weights = [n for n in metadata.weights if n in listed and n not in given]
    weights += [n for n in values if n not in metadata.weights]
    write_metadata(model, "weights", weights)
    reader, graph = _read(inline(model), set(weights), rules)
    graph = check_tensors(verify(graph), limits)
    return Imported(
        graph=graph,
        values=MappingProxyType({n: v for n, v in values.items() if v is not None}),
        input_ranges=MappingProxyType(dict(metadata.input_ranges)),
        dim_defaults=MappingProxyType(dict(metadata.dim_defaults)),
        gain=metadata.gain,
        dims=MappingProxyType(bound),
        symbols=symbols_of(model.graph),
        assumptions=tuple(reader.b.assumptions),
        is_training=reader.is_training,
        onnx=with_functions(without_dead(model, weights), rules or RuleSet()),
        operators=MappingProxyType(reader.operators),
    )


def _read(
    model: onnx.ModelProto, weights: Collection[str], rules: RuleSet | None
) -> tuple[Reader, Graph]:
    """Read a model; where it has foreign values, with these inside of islands."""
    reader = Reader(model, weights, rules)
    try:
        graph = reader.read()
    except UnsupportedModel:
        enclosed = enclose(model)
        if enclosed is None:
            raise
        reader, graph = _with_islands(enclosed, weights, rules)
    if not graph.symbols or symbols_of(model.graph):
        return reader, graph
    with suppress(UnsupportedModel):
        enclosed = enclose(model, reader.unsized())
        if enclosed is not None:
            within, sized = _with_islands(enclosed, weights, rules)
            return (reader, graph) if sized.symbols else (within, sized)
    return reader, graph


def _with_islands(
    enclosed: Enclosed, weights: Collection[str], rules: RuleSet | None
) -> tuple[Reader, Graph]:
    reader = Reader(enclosed.model, weights, rules, enclosed.members)
    return reader, reader.read()


def _bound(
    model: onnx.ModelProto,
    metadata: Metadata,
    dims: Mapping[str, int],
    *,
    use_defaults: bool,
) -> dict[str, int]:
    if not use_defaults:
        return dict(dims)
    known = symbols_of(model.graph)
    defaults = {k: v for k, v in metadata.dim_defaults.items() if k in known}
    return {**defaults, **dims}
