"""A timer that answers with what a given device would take; it needs no hardware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cost_model.catalog import cpu
from cost_model.roofline import predict
from tuner.calibration.micro import micro_benchmarks
from tuner.calibration.timing import generated, library
from tuner.plan import Measurement
from tuner.runtime.failures import failed

if TYPE_CHECKING:
    from collections.abc import Collection

    from cost_model.device import Device
    from tuner.runtime.requests import MeasureRequest


class ModelTimer:
    """Times the CPU's micro-benchmarks as another device would take them."""

    def __init__(self, truth: Device, *, broken: Collection[str] = ()) -> None:
        """Predict every micro-benchmark.

        Args:
            truth: the device that the times are from.
            broken: groups whose kernels fail.
        """
        self._seconds: dict[object, float | None] = {}
        self.asked = 0
        for micro in micro_benchmarks(cpu()):
            make = library if micro.in_library else generated
            rest = () if micro.in_library else (micro.schedule,)
            kernel = make(micro.graph, cpu(), *rest)
            digest = kernel.source.digest if kernel.source else ""
            seconds = predict(kernel.work, truth).seconds
            key = (digest, _shapes(micro.graph))
            self._seconds[key] = None if micro.group in broken else seconds

    def measure(self, request: MeasureRequest) -> Measurement:
        """The device's time; a failure for what is broken."""
        self.asked += 1
        digest = request.source.digest if request.source else ""
        seconds = self._seconds[digest, _shapes(request.graph)]
        if seconds is None:
            return failed("compile", "no such function")
        return Measurement(seconds=seconds, samples=(seconds,))


def _shapes(graph: object) -> tuple[object, ...]:
    nodes, types = graph.nodes, graph.types  # type: ignore[attr-defined]
    return (tuple(node.op for node in nodes), tuple(map(str, types.values())))
