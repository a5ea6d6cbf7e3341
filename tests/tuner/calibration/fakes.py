"""A timer that answers with what a given device would take; it needs no hardware."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, ClassVar

from cost_model.catalog import cpu
from cost_model.roofline import predict
from tuner.calibration.fit import kernel_of
from tuner.calibration.micro import micro_benchmarks
from tuner.calibration.timing import generated
from tuner.kernel.lower import lower
from tuner.kernel.schedule import space
from tuner.plan import Measurement
from tuner.runtime.failures import failed
from tuner.runtime.library import is_available
from tuner.runtime.requests import PlanResult
from tuner.runtime.timing import summarise

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cost_model.device import Device
    from cost_model.work import Work
    from tuner.calibration.micro import Micro
    from tuner.calibration.timing import Kernel
    from tuner.ir.graph import Graph
    from tuner.plan import Source
    from tuner.runtime.requests import MeasureRequest, PlanRequest


@cache
def _benchmarks() -> tuple[tuple[Micro, Kernel], ...]:
    """The CPU's micro-benchmarks, generated once for all timers."""
    return tuple((micro, kernel_of(micro, cpu())) for micro in micro_benchmarks(cpu()))


class ModelTimer:
    """Times the CPU's micro-benchmarks as another device would take them."""

    def __init__(self, truth: Device, *, broken: Collection[str] = ()) -> None:
        """Predict every micro-benchmark.

        Args:
            truth: the device that the times are from.
            broken: groups whose kernels fail.
        """
        self._seconds: dict[object, float | None] = {}
        self._groups: dict[object, str] = {}
        self.asked = 0
        for micro, kernel in _benchmarks():
            digest = kernel.source.digest if kernel.source else ""
            seconds = predict(kernel.work, truth).seconds
            key = (digest, _shapes(micro.graph))
            self._seconds[key] = None if micro.group in broken else seconds
            self._groups[key] = micro.group

    def measure(self, request: MeasureRequest) -> Measurement:
        """The device's time; a failure for what is broken."""
        self.asked += 1
        seconds = self._seconds[_key(request)]
        if seconds is None:
            return failed("compile", "no such function")
        return Measurement(seconds=seconds, samples=(seconds,))


class RecordedTimer(ModelTimer):
    """Answers with samples that were recorded, as shares of what a device takes.

    Attributes:
        TIMED: micro-benchmarks of the CPU that can run here.
    """

    TIMED: ClassVar[int] = sum(
        not micro.in_library or is_available() for micro in micro_benchmarks(cpu())
    )

    def __init__(
        self,
        truth: Device,
        recorded: Mapping[str, Sequence[Sequence[float]]],
        usual: Sequence[float],
        *,
        contended: bool = False,
    ) -> None:
        """Give recordings.

        Args:
            truth: the device that the times are from.
            recorded: group -> recordings that its micro-benchmarks give one after the
                other; the last one again and again.
            usual: what all others give.
            contended: whether those of `recorded` say so.
        """
        super().__init__(truth)
        self._recorded, self._usual, self._contended = recorded, usual, contended
        self._turns: dict[object, int] = {}

    def measure(self, request: MeasureRequest) -> Measurement:
        """The next recording of this micro-benchmark."""
        seconds = super().measure(request).seconds
        key = _key(request)
        known = self._recorded.get(self._groups[key])
        if known is None:
            return summarise([share * seconds for share in self._usual])
        turn = self._turns.get(key, 0)
        self._turns[key] = turn + 1
        shares = known[min(turn, len(known) - 1)]
        samples = [share * seconds for share in shares]
        return summarise(samples, contended=self._contended)


def _key(request: MeasureRequest) -> object:
    digest = request.source.digest if request.source else ""
    return digest, _shapes(request.graph)


def _shapes(graph: object) -> tuple[object, ...]:
    nodes, types = graph.nodes, graph.types  # type: ignore[attr-defined]
    return (tuple(node.op for node in nodes), tuple(map(str, types.values())))


_WORKS: dict[object, Work] = {}
"""What kernels do, by text and grid: the same whatever device they are timed for."""


class PairModelTimer:
    """Times any kernel of ours as a device would take it, by its own count."""

    def __init__(self, truth: Device, *, fails: bool = False) -> None:
        """Name the device that the times are from."""
        self._truth = truth
        self._fails = fails

    def measure(self, request: MeasureRequest) -> Measurement:
        """What the kernel takes, whichever schedule its source was made with."""
        if self._fails:
            return failed("timeout", "no answer")
        return timed(self._seconds(request.graph, request.source))

    def measure_pair(
        self, first: MeasureRequest, second: MeasureRequest
    ) -> tuple[Measurement, Measurement]:
        """Both, one after the other."""
        return self.measure(first), self.measure(second)

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Sums over the steps of each program."""
        found = {}
        for name, program in request.programs.items():
            parts = [self._seconds(step.graph, step.source) for step in program.steps]
            found[name] = timed(sum(parts))
        return PlanResult(measurements=found, verified=False)

    def _seconds(self, graph: Graph, source: Source | None) -> float:
        assert source is not None
        key = (source.digest, source.grid)
        if key not in _WORKS:
            for schedule in space(lower(graph), cpu()):
                kernel = generated(graph, cpu(), schedule)
                assert kernel.source is not None
                _WORKS[kernel.source.digest, kernel.source.grid] = kernel.work
        return predict(_WORKS[key], self._truth).seconds


def timed(seconds: float) -> Measurement:
    """A measurement with an interval of one per cent."""
    return Measurement(
        seconds=seconds,
        samples=(seconds,) * 7,
        low_seconds=0.995 * seconds,
        high_seconds=1.005 * seconds,
    )
