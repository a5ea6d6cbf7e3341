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
from tuner.runtime.onnx_writer import WRITING_REVISION
from tuner.runtime.requests import Again, MeasureRequest, PlanRequest, Tell, silent
from tuner.runtime.whole import Programs, Reference, ReferenceRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """First message of a child: its device is open and the canary sang, or why not.

    Attributes:
        toolchain: compiler, driver and library versions, how models are written for the
            library, and its threads.
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
    desk = Desk(Bench(backend, SessionOptions(threads=threads)))
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
        wire.send(connection, reply(desk, request, tell))


def _versions(backend: Backend, threads: int) -> str:
    try:
        runtime = library.toolchain()
    except DeviceUnavailable:
        runtime = "no library"
    written = f"models of revision {WRITING_REVISION}"
    return f"{backend.toolchain}, {runtime}, {written}, {threads} threads"


@dataclass(slots=True)
class Desk:
    """What answers are given with.

    Attributes:
        bench: verifies and times kernels.
        kept: programs or a reference model that are to be timed again.
    """

    bench: Bench
    kept: Programs | Reference | None = None


def reply(desk: Desk, request: Any, tell: Tell = silent) -> Reply:
    """Answer; after a failed run, the canary says whether the error sticks."""
    given = answer(desk, request, tell)
    if not isinstance(given, Measurement) or given.failure != "runtime":
        return Reply(answer=given)
    try:
        sing(desk.bench.backend)
    except TunerError:
        return Reply(answer=given, is_healthy=False)
    return Reply(answer=given)


def answer(desk: Desk, request: Any, tell: Tell = silent) -> Any:
    """One answer. This is the child's top loop: every error becomes an answer."""
    try:
        return _answer(desk, request, tell)
    except (TunerError, MemoryError) as error:
        return failure_of(error)
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        told = str(error).strip().partition("\n")[0]
        return failed("runtime", f"{type(error).__name__}: {told}")


def _answer(desk: Desk, request: Any, tell: Tell) -> Any:
    bench, kept = desk.bench, desk.kept
    if isinstance(request, Again):
        if kept is None:
            raise KernelFailed("runner", "nothing is loaded that could be timed again")
        return kept.measure()
    del kept
    desk.kept = None
    if isinstance(request, MeasureRequest):
        return bench.measure(request)
    if isinstance(request, Pair):
        return bench.measure_by_turns(request.requests)
    loaded = _load(bench, request, tell)
    if request.rounds > 1:
        desk.kept = loaded
    return loaded.measure()


def _load(bench: Bench, request: Any, tell: Tell) -> Programs | Reference:
    if isinstance(request, PlanRequest):
        return Programs(bench.backend, request, bench.options, tell)
    if isinstance(request, ReferenceRequest):
        return Reference(request)
    raise KernelFailed("runner", f"does not know {type(request).__name__}")
