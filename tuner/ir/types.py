"""Element types and tensor types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Dim = int | str
"""An extent, or the name of a symbolic dimension."""


class DType(StrEnum):
    """Element type of a tensor. bf16 arrays are held as uint16 bit patterns."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def bytes(self) -> int:
        """Size of one element in memory."""
        return _BYTES[self]

    @property
    def is_float(self) -> bool:
        """Whether the type is a floating-point type."""
        return self in (DType.F64, DType.F32, DType.F16, DType.BF16)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """NumPy type of stored arrays of this element type."""
        return np.dtype(_NUMPY[self])


_BYTES: Final = {
    DType.F64: 8,
    DType.F32: 4,
    DType.F16: 2,
    DType.BF16: 2,
    DType.I64: 8,
    DType.I32: 4,
    DType.I8: 1,
    DType.U8: 1,
    DType.BOOL: 1,
}
_NUMPY: Final = {
    DType.F64: "float64",
    DType.F32: "float32",
    DType.F16: "float16",
    DType.BF16: "uint16",
    DType.I64: "int64",
    DType.I32: "int32",
    DType.I8: "int8",
    DType.U8: "uint8",
    DType.BOOL: "bool",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """Element type and shape of a tensor."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbolic dimensions, in order of appearance."""
        return tuple(dict.fromkeys(d for d in self.shape if isinstance(d, str)))

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape, when every dimension is a number.

        Raises:
            ValueError: a dimension is symbolic.
        """
        return _static(self.shape)

    @property
    def elements(self) -> int:
        """Number of elements of a static tensor."""
        return _elements(self.shape)

    @property
    def bytes(self) -> int:
        """Size in memory of a static tensor."""
        return self.elements * self.dtype.bytes


@lru_cache(maxsize=1 << 12)
def _static(shape: tuple[Dim, ...]) -> tuple[int, ...]:
    if any(isinstance(d, str) for d in shape):
        raise ValueError(f"shape {shape} has symbolic dimensions")
    return tuple(d for d in shape if isinstance(d, int))


@lru_cache(maxsize=1 << 12)
def _elements(shape: tuple[Dim, ...]) -> int:
    return math.prod(_static(shape))
