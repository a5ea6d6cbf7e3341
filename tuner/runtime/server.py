"""The child's side of the runner: answers one request after the other."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import MappingProxyType
from typing import Any, Final

from tuner.errors import (
    CompileFailed,
    KernelFailed,
    TunerError,
    VerificationFailed,
)
from tuner.plan import Measurement
from tuner.runtime import wire
from tuner.runtime.backend import ResourcesExceeded
from tuner.runtime.bench import Bench
from tuner.runtime.canary import sing
from tuner.runtime.devices import open_backend
from tuner.runtime.library import SessionOptions
from tuner.runtime.requests import MeasureRequest, PlanRequest
from tuner.runtime.whole import ReferenceRequest, measure_programs, time_reference

_KINDS: Final[Mapping[type[TunerError], str]] = MappingProxyType(
    {
        CompileFailed: "compile",
        ResourcesExceeded: "resources",
        VerificationFailed: "correctness",
        KernelFailed: "runtime",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of a child: its device is open and the canary sang, or why not.

    Attributes:
        problem: empty when the device works; else `where` and `hint` belong to it.
    """

    device_name: str = ""
    toolchain: str = ""
    where: str = ""
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and whether the device still works after what it took to give it."""

    answer: Any
    is_healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two kernels to time by turns."""

    requests: tuple[MeasureRequest, MeasureRequest]


def failed(kind: str, message: str) -> Measurement:
    """A measurement without samples."""
    return Measurement(seconds=math.inf, failure=kind, message=message)


def kind_of(error: TunerError) -> str:
    """Failure kind of an error."""
    return _KINDS.get(type(error), "runtime")


def serve(device: str, pipe: int, threads: int) -> None:
    """Open the device, greet, and answer until the pipe closes."""
    connection = Connection(pipe)
    try:
        backend = open_backend(device)
        sing(backend)
    except TunerError as error:
        refusal = Hello(where=error.where, problem=error.problem, hint=error.hint)
        wire.send(connection, refusal)
        return
    bench = Bench(backend, SessionOptions(threads=threads))
    wire.send(connection, Hello(device_name=backend.name, toolchain=backend.toolchain))
    while True:
        try:
            request = wire.receive(connection)
        except EOFError:
            return
        wire.send(connection, reply(bench, request))


def reply(bench: Bench, request: Any) -> Reply:
    """Answer; after a failed run, the canary says whether the error sticks."""
    given = answer(bench, request)
    if not isinstance(given, Measurement) or given.failure != "runtime":
        return Reply(answer=given)
    try:
        sing(bench.backend)
    except TunerError:
        return Reply(answer=given, is_healthy=False)
    return Reply(answer=given)


def answer(bench: Bench, request: Any) -> Any:
    """One answer. This is the child's top loop: every error becomes an answer."""
    try:
        return _answer(bench, request)
    except TunerError as error:
        return failed(kind_of(error), str(error))
    except MemoryError as error:
        return failed("resources", f"out of memory: {error}")
    except Exception:  # noqa: BLE001
        return failed("runtime", traceback.format_exc(limit=-4))


def _answer(bench: Bench, request: Any) -> Any:
    if isinstance(request, MeasureRequest):
        return bench.measure(request)
    if isinstance(request, Pair):
        return bench.measure_by_turns(request.requests)
    if isinstance(request, PlanRequest):
        return measure_programs(bench.backend, request, bench.options)
    if isinstance(request, ReferenceRequest):
        return time_reference(request)
    raise KernelFailed("runner", f"does not know {type(request).__name__}")
