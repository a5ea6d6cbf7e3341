"""One ONNX node as the rules see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import onnx

from tuner.errors import InvalidModel
from tuner.frontend.builder import Builder, Decline, Ref

Results = Sequence[Ref | None]
Rule = Callable[[Builder, "Call"], Results]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A node whose inputs are tensors of a builder.

    Attributes:
        op: operator.
        domain: its domain; empty for the standard one.
        opset: version of the domain.
        inputs: None where an optional input is absent.
        outputs: whether each output is asked for.
        attributes: by name; strings decoded, tensors and graphs as protos.
        proto: the node.
    """

    op: str
    domain: str
    opset: int
    inputs: tuple[Ref | None, ...]
    outputs: tuple[bool, ...]
    attributes: Mapping[str, Any]
    proto: onnx.NodeProto

    def __getitem__(self, index: int) -> Ref:
        """A required input."""
        ref = self.optional(index)
        if ref is None:
            raise InvalidModel(
                self.proto.name or self.op, f"{self.op} lacks its input {index}"
            )
        return ref

    def optional(self, index: int) -> Ref | None:
        """An input that may be absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def given(self) -> list[Ref]:
        """The inputs that are there."""
        return [ref for ref in self.inputs if ref is not None]

    def whole(self, name: str, default: int) -> int:
        """An integer attribute."""
        return cast("int", self.attributes.get(name, default))

    def real(self, name: str, default: float) -> float:
        """A float attribute."""
        return cast("float", self.attributes.get(name, default))

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        return cast("str", self.attributes.get(name, default))

    def several(self, name: str) -> tuple[int, ...] | None:
        """An attribute of several integers, or None."""
        return cast("tuple[int, ...] | None", self.attributes.get(name))

    def asks(self, index: int) -> bool:
        """Whether an output is asked for."""
        return index < len(self.outputs) and self.outputs[index]

    def only(self, count: int) -> None:
        """Decline when an output beyond the first `count` is asked for."""
        if any(self.outputs[count:]):
            raise Decline(f"{self.op} with more than {count} outputs")
