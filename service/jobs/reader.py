"""Reads and plans models in processes that a hostile model may kill.

A process is started before it is needed, is used for many models, and is replaced
when it dies, hangs, or has served long enough.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

import structlog

from service.errors import ModelNotReadable
from service.jobs.planning import Outline, Question
from service.store.values import Blob, PlanIdentity, PlanRevision
from tuner.errors import TunerError
from tuner.ir.custom import RuleSet

log = structlog.get_logger(__name__)

START_SECONDS: Final = 120.0
USES: Final = 200
"""Models that one process reads before it is replaced: leaks end with it."""

_MARGIN_SECONDS: Final = 60.0
"""What pricing and rendering may take beside the solver's own time limit."""

_ROOT: Final = Path(__file__).resolve().parents[2]
_MODULE: Final = "service.jobs.reader_child"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """What one process may take.

    Attributes:
        memory_bytes: most memory.
        read_seconds: time for reading a model and finding its key.
        plan_seconds: time limit of the partition solver.
    """

    memory_bytes: int
    read_seconds: float
    plan_seconds: float


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    pipe: Connection
    is_ready: bool = False
    uses: int = 0

    def kill(self) -> int:
        """End it; gives its exit code."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self.pipe.close()
        return code


@dataclass(slots=True)
class _Pool:
    idle: list[_Child] = field(default_factory=list)
    is_closed: bool = False


class ReaderPool:
    """A `Planning` in child processes; safe to use from many threads.

    Args:
        processes: how many models are read at once; others wait.
        limits: what each process may take.
        rules: operators and fusion rules of whoever runs this.
    """

    def __init__(
        self, *, processes: int, limits: ReaderLimits, rules: RuleSet | None = None
    ) -> None:
        self._limits = limits
        self._rules = json.dumps((rules or RuleSet()).as_json)
        self._free = threading.BoundedSemaphore(processes)
        self._lock = threading.Lock()
        self._pool = _Pool()

    def warm(self) -> None:
        """Start one process, so that the first model need not wait for it."""
        self._give_back(self._spawn())

    def close(self) -> None:
        """End all processes that are idle, and the others once they are."""
        with self._lock:
            self._pool.is_closed = True
            idle, self._pool.idle = self._pool.idle, []
        for child in idle:
            child.kill()

    def outline(self, question: Question) -> Outline:
        """Read a model and find its key.

        Raises:
            TunerError: the model, target or an option is refused.
            ModelNotReadable: the process died of it, or took too long.
        """
        told, _ = self._ask("outline", question, self._limits.read_seconds)
        return Outline(
            identity=PlanIdentity(
                key=told["key"],
                graph_hash=told["graph_hash"],
                target=told["target"],
                parts=told["parts"],
                options=told["options"],
            ),
            names=told["names"],
            nodes=told["nodes"],
            tensors=told["tensors"],
        )

    def plan(self, question: Question) -> PlanRevision:
        """The analytic plan of a question; errors as of `outline`."""
        limits = self._limits
        seconds = limits.read_seconds + limits.plan_seconds + _MARGIN_SECONDS
        told, parts = self._ask("plan", question, seconds)
        sources = zip(told["media_types"], parts[1:], strict=True)
        return PlanRevision(
            evidence=told["evidence"],
            body=parts[0],
            seconds=told["seconds"],
            objective_seconds=told["objective_seconds"],
            bound_seconds=told["bound_seconds"],
            kernels=told["kernels"],
            blobs=tuple(Blob.of(content, kind) for kind, content in sources),
        )

    def _ask(
        self, what: str, question: Question, seconds: float
    ) -> tuple[dict[str, Any], list[bytes]]:
        head = {
            "ask": what,
            "form": question.form,
            "target": question.target,
            "options": question.options,
            "numbers": question.numbers,
        }
        with self._child() as child:
            child.uses += 1
            deadline = time.monotonic() + seconds
            try:
                child.pipe.send_bytes(json.dumps(head).encode())
                child.pipe.send_bytes(question.data)
                told, parts = _receive(child.pipe, deadline)
            except (EOFError, ConnectionError, TimeoutError) as error:
                raise _died(child, error, seconds) from error
            if "died" in told:
                raise _died(child, MemoryError(), seconds)
        for kind, problem in told["warnings"]:
            log.warning("warning", kind=kind, problem=problem, place=f"reader {what}")
        if "error" in told:
            raise _refused(told["error"])
        return told, parts

    @contextmanager
    def _child(self) -> Iterator[_Child]:
        with self._free:
            child = self._ready()
            try:
                yield child
            except BaseException:
                child.kill()
                raise
            self._give_back(child)

    def _ready(self) -> _Child:
        with self._lock:
            child = self._pool.idle.pop() if self._pool.idle else None
        if child is None or child.process.poll() is not None:
            if child is not None:
                child.kill()
            child = self._spawn()
        if not child.is_ready:
            try:
                _receive(child.pipe, time.monotonic() + START_SECONDS)
            except (EOFError, ConnectionError, TimeoutError) as error:
                raise _died(child, error, START_SECONDS) from error
            child.is_ready = True
        return child

    def _give_back(self, child: _Child) -> None:
        with self._lock:
            if not self._pool.is_closed and child.uses < USES:
                self._pool.idle.append(child)
                return
        child.kill()

    def _spawn(self) -> _Child:
        ours, theirs = Pipe()
        command = [
            sys.executable,
            "-m",
            _MODULE,
            str(theirs.fileno()),
            str(self._limits.memory_bytes),
            str(self._limits.plan_seconds),
            self._rules,
        ]
        process = subprocess.Popen(  # noqa: S603 - our own module, our own numbers
            command,
            cwd=_ROOT,
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        return _Child(process, ours)


def _receive(pipe: Connection, deadline: float) -> tuple[dict[str, Any], list[bytes]]:
    told: dict[str, Any] = json.loads(_part(pipe, deadline))
    return told, [_part(pipe, deadline) for _ in range(told["parts_follow"])]


def _part(pipe: Connection, deadline: float) -> bytes:
    if not pipe.poll(max(0.0, deadline - time.monotonic())):
        raise TimeoutError
    return pipe.recv_bytes()


def _died(child: _Child, error: Exception, seconds: float) -> ModelNotReadable:
    code = child.kill()
    if isinstance(error, MemoryError):
        what = "reading it takes more memory than this service gives"
    elif isinstance(error, TimeoutError):
        what = f"reading it took longer than {seconds:g} seconds"
    else:
        what = f"the process that reads models ended with code {code}"
    log.warning("reader died", problem=what, code=code)
    return ModelNotReadable(
        "model",
        what,
        hint="try `fuseplan plan` on your own machine; if it works there, raise"
        " FUSEPLAN_PLANNER_MEMORY_BYTES or FUSEPLAN_READ_SECONDS",
    )


def _refused(told: dict[str, str]) -> TunerError:
    """The planner's error, of its own class again."""
    kinds = {kind.code: kind for kind in _kinds(TunerError)}
    kind = kinds.get(told["code"], TunerError)
    return kind(told["where"], told["problem"], hint=told["hint"])


def _kinds(kind: type[TunerError]) -> Iterator[type[TunerError]]:
    yield kind
    for sub in kind.__subclasses__():
        yield from _kinds(sub)
