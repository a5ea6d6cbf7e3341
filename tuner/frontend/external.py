"""Models whose tensors lie in files beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, external_data_helper

from tuner.errors import InvalidModel
from tuner.frontend.model import is_weight
from tuner.frontend.opaque import subgraphs
from tuner.frontend.protos import is_external

_MARK: Final = b"location"
_ROOM: Final = 1 << 30
"""Bytes that are taken into a message, which itself ends at 2 GiB."""


def gather(data: bytes, folder: Path) -> bytes:
    """The model with the tensors that lie in files of a folder; other bytes as given.

    Weights stay outside where they are too many for one message, or where their file is
    not there: a plan does not depend on their values.

    Raises:
        InvalidModel: a place lies outside of the folder, or its file is too short.
    """
    if _MARK not in data:
        return data
    try:
        model = onnx.ModelProto.FromString(data)
    except (DecodeError, RecursionError, ValueError):
        return data
    outside = [t for t in _tensors(model.graph) if is_external(t)]
    room = _ROOM - len(data)
    for tensor in sorted(outside, key=is_weight):
        place = {entry.key: entry.value for entry in tensor.external_data}
        size = _length(folder, place)
        if size <= room and (folder / place.get("location", "")).is_file():
            _load(tensor, folder)
            room -= size
    return bytes(model.SerializeToString()) if outside else data


def _length(folder: Path, place: dict[str, str]) -> int:
    stated = place.get("length", "")
    if stated.isdecimal():
        return int(stated)
    file = folder / place.get("location", "")
    return file.stat().st_size if file.is_file() else 0


def _load(tensor: TensorProto, folder: Path) -> None:
    try:
        external_data_helper.load_external_data_for_tensor(tensor, str(folder))
    except (onnx.checker.ValidationError, ValueError, OSError) as error:
        raise InvalidModel(
            tensor.name,
            f"its data cannot be read from another file: {error}",
            hint="its file must lie in the model's folder, whole",
        ) from error
    tensor.data_location = TensorProto.DEFAULT
    del tensor.external_data[:]


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from (a.t for a in node.attribute if a.HasField("t"))
        for part in subgraphs(node):
            yield from _tensors(part)
