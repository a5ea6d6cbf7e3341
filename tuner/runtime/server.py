"""The child's side of the runner: answers one request after the other."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from tuner.errors import DeviceUnavailable, KernelFailed, TunerError
from tuner.plan import Measurement
from tuner.runtime import library, wire
from tuner.runtime.backend import Backend
from tuner.runtime.bench import Bench
from tuner.runtime.canary import sing
from tuner.runtime.devices import open_backend
from tuner.runtime.failures import failed, failure_of
from tuner.runtime.library import SessionOptions
from tuner.runtime.requests import MeasureRequest, PlanRequest, Tell, silent
from tuner.runtime.whole import ReferenceRequest, measure_programs, time_reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of a child: its device is open and the canary sang, or why not.

    Attributes:
        toolchain: compiler, driver and library versions, and the library's threads.
        problem: empty when the device works; else `where` and `hint` belong to it.
    """

    device_name: str = ""
    toolchain: str = ""
    where: str = ""
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What the child is about to do, so that its death can be explained."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer, and whether the device still works after what it took to give it."""

    answer: Any
    is_healthy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two kernels to time by turns."""

    requests: tuple[MeasureRequest, MeasureRequest]


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
    library.share_threads()
    bench = Bench(backend, SessionOptions(threads=threads))
    wire.send(
        connection,
        Hello(device_name=backend.name, toolchain=_versions(backend, threads)),
    )

    def tell(text: str) -> None:
        wire.send(connection, Note(text=text))

    while True:
        try:
            request = wire.receive(connection)
        except EOFError:
            return
        wire.send(connection, reply(bench, request, tell))


def _versions(backend: Backend, threads: int) -> str:
    try:
        runtime = library.toolchain()
    except DeviceUnavailable:
        runtime = "no library"
    return f"{backend.toolchain}, {runtime}, {threads} threads"


def reply(bench: Bench, request: Any, tell: Tell = silent) -> Reply:
    """Answer; after a failed run, the canary says whether the error sticks."""
    given = answer(bench, request, tell)
    if not isinstance(given, Measurement) or given.failure != "runtime":
        return Reply(answer=given)
    try:
        sing(bench.backend)
    except TunerError:
        return Reply(answer=given, is_healthy=False)
    return Reply(answer=given)


def answer(bench: Bench, request: Any, tell: Tell = silent) -> Any:
    """One answer. This is the child's top loop: every error becomes an answer."""
    try:
        return _answer(bench, request, tell)
    except (TunerError, MemoryError) as error:
        return failure_of(error)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        told = str(error).strip().partition("\n")[0]
        return failed("runtime", f"{type(error).__name__}: {told}")


def _answer(bench: Bench, request: Any, tell: Tell) -> Any:
    if isinstance(request, MeasureRequest):
        return bench.measure(request)
    if isinstance(request, Pair):
        return bench.measure_by_turns(request.requests)
    if isinstance(request, PlanRequest):
        return measure_programs(bench.backend, request, bench.options, tell)
    if isinstance(request, ReferenceRequest):
        return time_reference(request)
    raise KernelFailed("runner", f"does not know {type(request).__name__}")
