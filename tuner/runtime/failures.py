"""From an error to the failure kind of a measurement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from tuner.errors import CompileFailed, KernelFailed, TunerError, VerificationFailed
from tuner.plan import Measurement
from tuner.runtime.backend import ResourcesExceeded

_KINDS: Final[Mapping[type[TunerError], str]] = MappingProxyType(
    {
        CompileFailed: "compile",
        ResourcesExceeded: "resources",
        VerificationFailed: "correctness",
        KernelFailed: "runtime",
    }
)


def failed(kind: str, message: str) -> Measurement:
    """A measurement without samples."""
    return Measurement(seconds=math.inf, failure=kind, message=message)


def kind_of(error: TunerError) -> str:
    """Failure kind of an error."""
    return _KINDS.get(type(error), "runtime")


def failure_of(error: TunerError | MemoryError) -> Measurement:
    """The failed measurement that an error stands for, with what it says in numbers."""
    if isinstance(error, MemoryError):
        return failed("resources", f"out of memory: {error}")
    measurement = failed(kind_of(error), str(error))
    if isinstance(error, VerificationFailed):
        return replace(
            measurement,
            max_abs_error=_finite(error.max_abs_error),
            max_rel_error=_finite(error.max_rel_error),
        )
    return measurement


def _finite(error: float) -> float:
    """What is no number is told in words alone."""
    return error if math.isfinite(error) else 0.0
