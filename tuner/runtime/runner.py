"""Measures in a child process, so that a kernel can kill nothing but the child.

The child lives as long as the runner. A request has a deadline; a child that crashes
or hangs is killed with its whole process group, the request is answered by a failed
measurement, and the next request finds a new child in which the canary sang.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any, Final, Self

from tuner.errors import DeviceUnavailable
from tuner.plan import Measurement
from tuner.runtime import wire
from tuner.runtime.failures import failed
from tuner.runtime.library import usable_threads
from tuner.runtime.requests import Again, MeasureRequest, PlanRequest, PlanResult
from tuner.runtime.server import Hello, Note, Pair, Reply
from tuner.runtime.timing import pooled
from tuner.runtime.whole import ReferenceRequest

_START_SECONDS: Final = 60.0
_STARTS: Final = 3
"""Children in a row that may die before the canary sings; then the device is sick."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_TAIL_BYTES: Final = 600
_LAST_SECONDS: Final = 2.0


@dataclass(slots=True)
class _Child:
    process: subprocess.Popen[bytes]
    pipe: Connection
    lifeline: int
    log: IO[bytes]
    hello: Hello

    def signal(self) -> int:
        """The signal by which a child that hung up was killed; 0 if by none."""
        try:
            return max(-self.process.wait(_LAST_SECONDS), 0)
        except subprocess.TimeoutExpired:
            return 0

    def kill(self) -> str:
        """End the whole process group; how it ended, and its last line."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        self.pipe.close()
        os.close(self.lifeline)
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(self.log.tell() - _TAIL_BYTES, 0))
        words = self.log.read().decode(errors="replace").strip()
        self.log.close()
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        return f"{how}: {words.splitlines()[-1]}" if words else how


class Runner:
    """A device in a process of its own. A context manager; not for several threads.

    Attributes:
        device: cpu, opencl, cuda or null.
        deaths: how many children died in the middle of a request.
    """

    def __init__(self, device: str, *, threads: int | None = None) -> None:
        """Name the device; the child starts with the first request.

        Args:
            device: cpu, opencl, cuda or null.
            threads: threads of library calls; by default one per usable processor.
        """
        self.device = device
        self.deaths = 0
        self._threads = threads or usable_threads()
        self._child: _Child | None = None
        self._note = ""

    def __enter__(self) -> Self:
        """Start the child.

        Raises:
            DeviceUnavailable: there is no such device, or it is sick.
        """
        self._alive()
        return self

    def __exit__(self, *_: object) -> None:
        """End the child."""
        self.close()

    def close(self) -> None:
        """End the child, whatever it does."""
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()

    @property
    def device_name(self) -> str:
        """What the device calls itself."""
        return self._alive().hello.device_name

    @property
    def toolchain(self) -> str:
        """Compiler, driver and library versions behind the measurements."""
        return self._alive().hello.toolchain

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._alive().process.pid

    def measure(self, request: MeasureRequest) -> Measurement:
        """Verify and time one kernel. Failures are results, not exceptions.

        A child that is killed from outside says nothing of the kernel (nothing that a
        kernel does sends SIGKILL): the failure is marked as contended.

        Raises:
            DeviceUnavailable: the device is gone.
        """
        answer: Measurement = self._ask(request, request.deadline_seconds)
        return answer

    def measure_pair(
        self, first: MeasureRequest, second: MeasureRequest
    ) -> tuple[Measurement, Measurement]:
        """Verify two kernels and time them by turns: A B A B ...

        If either fails, both carry the failure.
        """
        deadline = first.deadline_seconds + second.deadline_seconds
        answer = self._ask(Pair(requests=(first, second)), deadline)
        if isinstance(answer, Measurement):
            return answer, answer
        return answer[0], answer[1]

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Verify and time whole programs, and the reference model in a child alone.

        A program that fails, or kills the child, fails alone. Both children stay
        while rounds go by turns, so that a drift hits the programs and the model
        alike; whoever has no turn sleeps.
        """
        result = self._programs(request)
        if request.reference is None or not request.rounds:
            return result
        with Runner("null", threads=self._threads) as alone:
            question = self._question(request)
            rounds = [(result, alone.ask(question, request.deadline_seconds))]
            for _ in range(request.rounds - 1):
                if not _is_complete(*rounds[-1]):
                    break
                rounds.append(
                    (
                        self._ask(Again(), request.deadline_seconds),
                        alone.ask(Again(), request.deadline_seconds),
                    )
                )
        return _joined(rounds)

    def _programs(self, request: PlanRequest) -> PlanResult:
        deaths = self.deaths
        answer = self._ask(request, request.deadline_seconds)
        if isinstance(answer, PlanResult):
            return answer
        names = tuple(request.programs)
        if deaths == self.deaths or len(names) == 1 or answer.contended:
            return PlanResult(measurements=dict.fromkeys(names, answer), verified=False)
        guilty = self._note
        if guilty in names:
            others = [name for name in names if name != guilty]
            parts, known = [self._only(request, others)], {guilty: answer}
        else:
            parts, known = [self._only(request, [name]) for name in names], {}
        found = known | {n: m for part in parts for n, m in part.measurements.items()}
        return PlanResult(
            measurements={name: found[name] for name in names},
            verified=any(part.verified for part in parts),
            step_seconds={n: s for p in parts for n, s in p.step_seconds.items()},
        )

    def _only(self, request: PlanRequest, names: Sequence[str]) -> PlanResult:
        programs = {name: request.programs[name] for name in names}
        return self._programs(replace(request, programs=programs))

    def measure_reference(self, request: PlanRequest) -> Measurement:
        """Time the user's own model in a child alone.

        It fails where the library cannot run the model.
        """
        question = replace(self._question(request), rounds=1)
        with Runner("null", threads=self._threads) as alone:
            answer: Measurement = alone.ask(question, request.deadline_seconds)
        return answer

    def _question(self, request: PlanRequest) -> ReferenceRequest:
        assert request.reference is not None
        names = request.reference_names
        return ReferenceRequest(
            model=request.reference,
            weights=request.reference_weights,
            feeds={names.get(n, n): array for n, array in request.feeds[0].items()},
            threads=self._threads,
            repeats=request.repeats,
            budget_seconds=request.budget_seconds / (len(request.programs) + 1),
            attempts=request.attempts,
            flush_bytes=request.flush_bytes,
            rounds=request.rounds,
        )

    def ask(self, request: Any, deadline_seconds: float) -> Any:
        """Send any request that the server knows and wait for the answer."""
        return self._ask(request, deadline_seconds)

    def _ask(self, request: Any, deadline_seconds: float) -> Any:
        child = self._alive()
        self._note = ""
        end = time.monotonic() + deadline_seconds
        try:
            wire.send(child.pipe, request)
            while child.pipe.poll(max(end - time.monotonic(), 0.0)):
                reply: Reply | Note = wire.receive(child.pipe)
                if isinstance(reply, Note):
                    self._note = reply.text
                elif reply.is_healthy:
                    return reply.answer
                else:
                    return self._bury("runtime", "the device is in error")
        except (EOFError, ConnectionError):
            is_stray = child.signal() == signal.SIGKILL
            buried = self._bury("runtime", "the child died")
            return replace(buried, contended=is_stray)
        return self._bury("timeout", f"no answer within {deadline_seconds:g} s")

    def _bury(self, kind: str, message: str) -> Measurement:
        assert self._child is not None
        child, self._child = self._child, None
        self.deaths += 1
        return failed(kind, f"{message} ({child.kill()})")

    def _alive(self) -> _Child:
        """The child; a new one if there is none or it was killed from outside."""
        if self._child is not None and self._child.process.poll() is not None:
            self._child.kill()
            self._child = None
            self.deaths += 1
        if self._child is None:
            self._child = self._start()
        return self._child

    def _start(self) -> _Child:
        last = ""
        for _ in range(_STARTS):
            child = _spawn(self.device, self._threads)
            try:
                if child.pipe.poll(_START_SECONDS):
                    child.hello = wire.receive(child.pipe)
                    if not child.hello.problem:
                        return child
                    child.kill()
                    raise _refused(child.hello)
                last = "the canary did not sing in time"
            except EOFError:
                last = "the child died before the canary sang"
            last = f"{last} ({child.kill()})"
        raise DeviceUnavailable(
            self.device, f"unhealthy: {last}", hint="look at the driver's own log"
        )


def _is_complete(result: PlanResult | Measurement, reference: Measurement) -> bool:
    """Whether a round has no failure, so that another would say more."""
    if isinstance(result, Measurement):
        return False
    return not any(m.failure for m in (*result.measurements.values(), reference))


def _joined(
    rounds: Sequence[tuple[PlanResult | Measurement, Measurement]],
) -> PlanResult:
    """All rounds as one result; of a round that failed, the failure."""
    first = rounds[0][0]
    assert isinstance(first, PlanResult), "the programs' own round gives a result"
    found = {
        name: pooled([_of(result, name) for result, _ in rounds])
        for name in first.measurements
    }
    reference = pooled([measured for _, measured in rounds])
    return replace(first, measurements={**found, "reference": reference})


def _of(result: PlanResult | Measurement, name: str) -> Measurement:
    return result if isinstance(result, Measurement) else result.measurements[name]


def _refused(hello: Hello) -> DeviceUnavailable:
    return DeviceUnavailable(hello.where, hello.problem, hint=hello.hint)


def _spawn(device: str, threads: int) -> _Child:
    ours, theirs = Pipe()
    read_end, write_end = os.pipe()
    log = tempfile.TemporaryFile()  # noqa: SIM115
    command = [
        sys.executable,
        "-m",
        "tuner.runtime.child",
        device,
        str(theirs.fileno()),
        str(read_end),
        str(threads),
    ]
    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=_ROOT,
        pass_fds=(theirs.fileno(), read_end),
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    theirs.close()
    os.close(read_end)
    return _Child(process, ours, write_end, log, Hello())
