"""The node tests of the ONNX standard, as values."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

_Any = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One node test.

    Attributes:
        name: as the standard gives it.
        model: of usually one node.
        inputs, outputs: arrays in the model's order; None where a value is no tensor.
        rtol, atol: how far outputs may lie from the expected ones.
    """

    name: str
    model: onnx.ModelProto
    inputs: tuple[_Any | None, ...]
    outputs: tuple[_Any | None, ...]
    rtol: float
    atol: float

    @property
    def operators(self) -> tuple[str, ...]:
        """Operators of the model's nodes, sorted."""
        return tuple(sorted({node.op_type for node in self.model.graph.node}))

    @property
    def is_plain(self) -> bool:
        """Whether every input is a tensor."""
        return all(array is not None for array in self.inputs)


def all_cases() -> tuple[Case, ...]:
    """Every node test of the installed package, in its order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases  # noqa: PLC0415

        found = collect_testcases()
    return tuple(
        Case(
            name=case.name,
            model=case.model,
            inputs=tuple(map(_array, case.data_sets[0][0])),
            outputs=tuple(map(_array, case.data_sets[0][1])),
            rtol=case.rtol,
            atol=case.atol,
        )
        for case in found
    )


def _array(value: Any) -> _Any | None:
    """A tensor as NumPy has it; None for sequences, maps and optionals."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    return None


def with_known_operands(case: Case, *, first_too: bool = False) -> bytes:
    """The model with its small operands as initializers.

    Shapes, axes, bounds and repeats decide what is generated, and in real models they
    are constants.

    Args:
        case: the node test.
        first_too: whether what the first node reads first may be known as well.
    """
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    first = {name for node in model.graph.node[:1] for name in node.input[:1]}
    first = set() if first_too else first
    for value, array in zip(list(model.graph.input), case.inputs, strict=True):
        if array is None or value.name in first:
            continue
        is_float = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        if array.dtype.kind in "iub" or (is_float and array.size <= 8):
            model.graph.input.remove(value)
            model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return model.SerializeToString()
