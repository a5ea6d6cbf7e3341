"""What reading a model gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tuner.ir.graph import Graph
from tuner.ir.types import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A model, read.

    Attributes:
        graph: primitives, with the user's tensor names.
        values: weights whose values came along (bf16 as uint16).
        input_ranges: inclusive bounds of inputs that are not free floats.
        dim_defaults: sizes that the model suggests for symbolic dimensions.
        gain: factor on random convolution weights (see `tuner.frontend.fill`).
        dims: symbolic dimensions that were bound.
        symbols: symbolic dimensions of inputs that are still unbound.
        assumptions: what the unbound dimensions must fulfil, such as "seq <= 512";
            the model is only read right for such sizes.
        is_training: whether a node works in training mode.
        onnx: the model with the dimensions bound and every weight a graph input;
            operators of the user's own are functions of the model.
        operators: the operator of each node of the user's, by its name; one that is
            not in the standard's own domain as `domain::operator`.
    """

    graph: Graph
    values: Mapping[str, Array]
    input_ranges: Mapping[str, tuple[float, float]]
    dim_defaults: Mapping[str, int]
    gain: float
    dims: Mapping[str, int]
    symbols: tuple[str, ...]
    assumptions: tuple[str, ...]
    is_training: bool
    onnx: bytes
    operators: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
