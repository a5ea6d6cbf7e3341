"""What a rewrite rule is, what it may look at, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from tuner.ir.graph import Attribute, Node
from tuner.ir.types import Array, TensorType


@dataclass(frozen=True, slots=True)
class Known:
    """A value that is known; bf16 arrays are uint16 bit patterns."""

    type: TensorType
    value: Array


@dataclass(frozen=True, slots=True)
class Make:
    """A node to make. The rewritten node's output becomes the outermost one's.

    Attributes:
        composite: the composite that the node is a part of; None for that of the
            rewritten node.
    """

    op: str
    inputs: tuple[Value, ...]
    attributes: Mapping[str, Attribute] = field(
        default_factory=lambda: MappingProxyType({})
    )
    composite: str | None = None


Value = str | Known | Make
"""A tensor that is there, a value, or a node to make."""


class View(Protocol):
    """What a rule may ask about the graph around a node."""

    def maker(self, tensor: str) -> Node | None:
        """The node that makes a tensor; None for inputs, weights and constants."""

    def type(self, tensor: str) -> TensorType:
        """The type of a tensor."""

    def constant(self, tensor: str) -> Array | None:
        """The value of a constant."""

    def is_static(self, tensor: str) -> bool:
        """Whether a tensor depends on weights and constants alone."""

    def read_once(self, tensor: str) -> bool:
        """Whether a tensor has a single reader and is not delivered."""

    def only_read_by(self, tensor: str, op: str) -> bool:
        """Whether all readers of a tensor have an operator; it is not delivered."""

    def twin(self, node: Node) -> str | None:
        """The result of another node that does the same work on the same tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A named rewrite.

    Attributes:
        ops: operators at which the rule may fire; empty for all.
        rewrite: a pure function: what to put in place of the node's result, or None.
        exact: whether results keep every bit. Rules that are not exact stay out of
            training graphs.
    """

    name: str
    ops: frozenset[str]
    rewrite: Callable[[Node, View], Value | None]
    exact: bool = True
