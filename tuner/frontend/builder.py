"""Collects primitives, types and known values while a model is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tuner.errors import InvalidModel
from tuner.frontend.sizes import Size, Sizes, Undecided
from tuner.ir.custom import RuleSet
from tuner.ir.graph import Attribute
from tuner.ir.interpreter import load, store
from tuner.ir.ops import OPS, Pattern
from tuner.ir.types import Array, Dim, DType, TensorType

Ref = int
"""A tensor of the graph that is being built."""
Extent = int | Size

FOLDED_BYTES: Final = 8192
"""Whole results up to this size are computed at once when all inputs are known."""
FOLDED_FLOAT_BYTES: Final = 256
"""The same for floats: what is larger would count as a weight."""
_SIZE_DTYPES: Final = (DType.I64, DType.I32, DType.BOOL)


class Decline(Exception):
    """This way cannot express the node; the next one may."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """A primitive that is being built; tensors are numbers."""

    op: str
    inputs: tuple[Ref, ...]
    outputs: tuple[Ref, ...]
    attributes: Mapping[str, Attribute]
    user: int
    guests: list[int] = field(default_factory=list)


class Builder:
    """The graph so far. Rules read types and values from it and add primitives.

    Attributes:
        user: index of the user's node that is being taken apart.
        where: its name, for errors.
        sizes: the arithmetic of symbolic extents.
        assumptions: what the symbolic extents must fulfil, as text.
        rules: operators of the user's own.
    """

    def __init__(self, rules: RuleSet | None = None) -> None:
        """Start with nothing."""
        self.rules = rules or RuleSet()
        self.user = -1
        self.where = ""
        self.sizes = Sizes()
        self.assumptions: dict[str, None] = {}
        self.drafts: list[Draft] = []
        self.types: list[TensorType] = []
        self.values: list[Array | None] = []
        self.partial: list[Any] = []
        self.makers: list[Draft | None] = []
        self._literals: dict[tuple[DType, tuple[int, ...], bytes], Ref] = {}

    # Reading

    def shape(self, ref: Ref) -> tuple[Dim, ...]:
        """Extents, numbers or names."""
        return self.types[ref].shape

    def extents(self, ref: Ref) -> list[Extent]:
        """Extents, to compute with."""
        return [self.sizes.of(dim) for dim in self.types[ref].shape]

    def static(self, ref: Ref) -> tuple[int, ...]:
        """The shape, if it is made of numbers; else the rule declines."""
        shape = self.types[ref].shape
        if any(isinstance(dim, str) for dim in shape):
            raise Decline(f"symbolic shape {shape}")
        return self.types[ref].static_shape

    def rank(self, ref: Ref) -> int:
        """Number of axes."""
        return len(self.types[ref].shape)

    def dtype(self, ref: Ref) -> DType:
        """Element type."""
        return self.types[ref].dtype

    def axis(self, ref: Ref, axis: int, *, extra: int = 0) -> int:
        """An axis counted from the front; a negative one counts from the end."""
        rank = self.rank(ref) + extra
        if not -rank <= axis < max(rank, 1):
            raise InvalidModel(self.where, f"axis {axis} is not within rank {rank}")
        return axis % rank if rank else 0

    def value(self, ref: Ref) -> Array:
        """The value of a known tensor; else the rule declines."""
        value = self.values[ref]
        if value is not None:
            return value
        kind = self.types[ref]
        if 0 in kind.shape and not kind.symbols:
            return np.empty(kind.static_shape, kind.dtype.numpy)
        raise Decline("a value is only known at run time")

    def ints(self, ref: Ref) -> tuple[int, ...]:
        """The value of a known integer tensor, flattened."""
        return tuple(int(v) for v in self.value(ref).reshape(-1))

    def counts(self, ref: Ref) -> list[Extent]:
        """The value of an integer tensor whose entries may be symbolic sizes."""
        if self.values[ref] is None and self.partial[ref] is not None:
            return [
                v if isinstance(v, Size) else int(v)
                for v in self.partial[ref].reshape(-1)
            ]
        return list(self.ints(ref))

    # Writing

    def source(self, kind: TensorType, value: Array | None = None) -> Ref:
        """A tensor that no primitive makes."""
        ref = len(self.types)
        self.types.append(kind)
        self.values.append(value)
        self.partial.append(None)
        self.makers.append(None)
        return ref

    def constant(self, value: Any, dtype: DType) -> Ref:
        """A known tensor; equal ones are one. `value` holds numbers, not bits."""
        return self.literal(store(np.asarray(value), dtype), dtype)

    def literal(self, stored: Array, dtype: DType) -> Ref:
        """A known tensor, given as it is stored."""
        key = (dtype, stored.shape, stored.tobytes())
        ref = self._literals.get(key)
        if ref is None:
            kind = TensorType(dtype=dtype, shape=stored.shape)
            ref = self._literals[key] = self.source(kind, stored)
        return ref

    def emit(self, op: str, *inputs: Ref, **attributes: Attribute) -> Ref:
        """Add a primitive with one result, or compute the result if it is known."""
        row = OPS[op]
        given = [self.types[ref] for ref in inputs]
        if row.infer is None:
            raise InvalidModel(self.where, f"{op} needs stated types")
        try:
            (kind,) = row.infer(given, attributes)
        except (ValueError, TypeError, LookupError) as error:
            raise self._refusal(given, error) from error
        known = [self.values[ref] for ref in inputs]
        values = [value for value in known if value is not None]
        if len(values) == len(known) and _is_small(kind):
            return self._fold(op, values, attributes, (given, kind))
        ref = self._append(op, inputs, attributes, (kind,))[0]
        if row.pattern <= Pattern.REDUCTION and kind.dtype in _SIZE_DTYPES:
            self._follow_sizes(op, inputs, attributes, ref)
            partial = self.partial[ref]
            if partial is not None and not _is_symbolic(partial):
                self.drafts.pop()
                return self.constant(partial, kind.dtype)
        return ref

    def opaque(
        self,
        inputs: Sequence[Ref],
        kinds: Sequence[TensorType],
        attributes: Mapping[str, Attribute],
    ) -> tuple[Ref, ...]:
        """Add a node that only a library can run."""
        return self._append("opaque", tuple(inputs), attributes, tuple(kinds))

    def reshape(self, ref: Ref, shape: Sequence[Extent | Dim]) -> Ref:
        """The same elements in another shape; nothing if it is the same shape."""
        target = tuple(
            dim if isinstance(dim, str) else self.sizes.dim(dim) for dim in shape
        )
        if target == self.shape(ref):
            return ref
        return self.emit("reshape", ref, shape=target)

    def cast(self, ref: Ref, dtype: DType) -> Ref:
        """Another element type; nothing if it is the same."""
        if self.dtype(ref) is dtype:
            return ref
        return self.emit("cast", ref, to=dtype.value)

    def scalar(self, value: float, like: Ref) -> Ref:
        """A number of the element type of another tensor."""
        return self.constant(value, self.dtype(like))

    def _append(
        self,
        op: str,
        inputs: tuple[Ref, ...],
        attributes: Mapping[str, Attribute],
        kinds: tuple[TensorType, ...],
    ) -> tuple[Ref, ...]:
        outputs = tuple(self.source(kind) for kind in kinds)
        draft = Draft(
            op=op,
            inputs=inputs,
            outputs=outputs,
            attributes=attributes,
            user=self.user,
        )
        self.drafts.append(draft)
        for ref in outputs:
            self.makers[ref] = draft
        return outputs

    def _refusal(self, given: Sequence[TensorType], error: Exception) -> Exception:
        if any(kind.symbols for kind in given):
            return Decline(str(error))
        return InvalidModel(self.where, str(error))

    def _fold(
        self,
        op: str,
        values: Sequence[Array],
        attributes: Mapping[str, Attribute],
        types: tuple[Sequence[TensorType], TensorType],
    ) -> Ref:
        given, kind = types
        loaded = [load(v, t.dtype) for v, t in zip(values, given, strict=True)]
        reference = OPS[op].reference
        assert reference is not None
        try:
            (result,) = reference(loaded, attributes)
        except (ValueError, IndexError, TypeError) as error:
            raise InvalidModel(self.where, str(error)) from error
        return self.literal(store(result, kind.dtype), kind.dtype)

    def _follow_sizes(
        self,
        op: str,
        inputs: Sequence[Ref],
        attributes: Mapping[str, Attribute],
        ref: Ref,
    ) -> None:
        """Compute with symbolic sizes where every input is made of them."""
        if not any(self.partial[i] is not None for i in inputs):
            return
        arrays: list[Any] = [
            self.partial[i] if self.values[i] is None else self.values[i]
            for i in inputs
        ]
        if any(array is None for array in arrays):
            return
        try:
            self.partial[ref] = _on_sizes(op, arrays, attributes)
        except (Undecided, TypeError, ValueError, AttributeError):
            return

    def follow(self, ref: Ref, counts: Sequence[Extent]) -> None:
        """State the symbolic value of a tensor of rank one."""
        boxed = np.empty(len(counts), dtype=object)
        boxed[:] = list(counts)
        self.partial[ref] = boxed


def _on_sizes(
    op: str, arrays: Sequence[Any], attributes: Mapping[str, Attribute]
) -> Any:
    """An operator on arrays whose entries may be symbolic sizes."""
    reference = OPS[op].reference
    if op == "cast" or reference is None:
        return arrays[0]
    boxed = [a if a.dtype == bool else a.astype(object) for a in arrays]
    return np.asarray(reference(boxed, attributes)[0])


def _is_small(kind: TensorType) -> bool:
    if any(isinstance(dim, str) for dim in kind.shape):
        return False
    limit = FOLDED_FLOAT_BYTES if kind.dtype.is_float else FOLDED_BYTES
    size = math.prod(kind.static_shape) * kind.dtype.bytes
    return size <= limit


def _is_symbolic(partial: Any) -> bool:
    return any(isinstance(v, Size) for v in partial.reshape(-1))
