"""From a small graph to a timed kernel of ours, and to the work that it counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from tuner.errors import KernelFailed
from tuner.kernel.count import work as count_work
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default as default_schedule
from tuner.library_work import library_work
from tuner.runtime.requests import MeasureRequest

if TYPE_CHECKING:
    from cost_model.device import Device
    from cost_model.work import Work
    from tuner.ir.graph import Graph
    from tuner.plan import Measurement, Schedule, Source

DIALECTS: Final = {"cpu": OPENCL, "gpu": CUDA}
"""The language of a device's kernels, by kind of device."""


class Timer(Protocol):
    """What measures a kernel: a runner, or a stand-in without hardware."""

    def measure(self, request: MeasureRequest) -> Measurement:
        """Time one kernel. Failures are results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A kernel that can be timed, and what was counted of it.

    Attributes:
        source: None runs the graph in the library.
        company: what is launched by turns with it; see `MeasureRequest`.
    """

    graph: Graph
    work: Work
    source: Source | None
    company: tuple[Graph, Source] | None = None


def generated(graph: Graph, device: Device, schedule: Schedule | None = None) -> Kernel:
    """A kernel of ours, by default under the schedule that needs no tuning."""
    nest = lower(graph)
    schedule = schedule or default_schedule(nest, device)
    return Kernel(
        graph=graph,
        work=count_work(nest, schedule, device),
        source=render(nest, schedule, DIALECTS[device.kind]),
    )


def library(
    graph: Graph, device: Device, *, company: tuple[Graph, Source] | None = None
) -> Kernel:
    """The same graph as one call of the library, in some kernel's company or alone."""
    work = library_work(graph, device, alone=company is None)
    return Kernel(graph=graph, work=work, source=None, company=company)


def time_kernel(
    kernel: Kernel, timer: Timer, *, budget_seconds: float, attempts: int = 1
) -> Measurement:
    """Median time of a kernel; its output is not compared.

    Raises:
        KernelFailed: it did not run.
    """
    request = MeasureRequest(
        graph=kernel.graph,
        source=kernel.source,
        budget_seconds=budget_seconds,
        attempts=attempts,
        company=kernel.company,
        verify=False,
    )
    measured = timer.measure(request)
    if measured.failure:
        raise KernelFailed(
            "micro-benchmark",
            f"{measured.failure}: {measured.message}",
            hint="see `fuseplan doctor`",
        )
    return measured
