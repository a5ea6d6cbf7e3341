"""How a thread holds values: dtypes in registers, literals, identities."""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from tuner.ir.ops import OPS
from tuner.ir.types import Array, DType

if TYPE_CHECKING:
    from collections.abc import Mapping

HELD: Final[Mapping[DType, DType]] = MappingProxyType(
    {dtype: dtype for dtype in DType} | {DType.F16: DType.F32, DType.BF16: DType.F32}
)
"""The dtype in which a thread holds a value of a tensor's dtype."""

ACCUMULATED: Final[Mapping[DType, DType]] = MappingProxyType(
    dict(HELD) | {DType.I8: DType.I32, DType.U8: DType.I32, DType.BOOL: DType.I32}
)
"""The dtype in which a reduction adds up; wrapping is the same in both."""


def identity(op: str, dtype: DType) -> float | int:
    """What an empty reduction gives, in the dtype in which it is held."""
    value = float(OPS[op].identity)
    if dtype.is_float:
        return value
    if not math.isinf(value):
        return int(value)
    if dtype is DType.BOOL:
        return int(value > 0)
    info = np.iinfo(dtype.value.replace("i", "int").replace("u", "uint"))
    return int(info.max if value > 0 else info.min)


def literal(array: Array, dtype: DType) -> float | int:
    """The only element of a constant."""
    if dtype is DType.BF16:
        bits = np.asarray(array, dtype=np.uint16).astype(np.uint32) << 16
        return float(bits.view(np.float32).reshape(-1)[0])
    item = np.asarray(array).reshape(-1)[0].item()
    return float(item) if dtype.is_float else int(item)
