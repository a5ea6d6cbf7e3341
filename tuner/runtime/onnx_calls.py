"""Operators of the library that stand in place of groups of nodes, as values.

`onnx_patterns` finds the groups and says their calls, `onnx_writer` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

OWN_DOMAIN: Final = "com.microsoft"
"""Operators that are ONNX Runtime's own."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A vector of equal numbers."""

    count: int
    value: float


@dataclass(frozen=True, slots=True)
class Shaped:
    """A tensor, read under a shape."""

    tensor: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Extents:
    """A vector of whole numbers: a shape, or axes."""

    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """The first result of an earlier call of the same group."""

    call: int


Operand = str | float | Filled | Shaped | Extents | Made | None
"""A tensor under its own shape, a scalar constant, one of the above, or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator of the library.

    Attributes:
        op_type: ONNX name.
        domain: of the name; that of the standard when empty.
        inputs: its operands.
        attributes: of the ONNX operator.
        results: tensors of the graph that it makes, in the operator's order, an empty
            name for one that the graph has no tensor for.
        since: opset of the standard that has the operator; older ones if 0.
    """

    op_type: str
    inputs: tuple[Operand, ...]
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    results: tuple[str, ...] = ("",)
    since: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """Few operators of the library in place of a group of nodes.

    Attributes:
        nodes: names of the group's nodes.
        op_type: ONNX name of the operator that computes.
        calls: that operator, and what brings its operands and result into form.
    """

    nodes: frozenset[str]
    op_type: str
    calls: tuple[Call, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """The tensors of the graph that the group makes."""
        return tuple(name for call in self.calls for name in call.results if name)
