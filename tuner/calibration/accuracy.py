"""How far predictions can be trusted here: kernels that no calibration saw, measured.

Two kinds of trials. A *schedule trial* times one kernel of the corpus under one of its
schedules. A *pair* runs a graph as one kernel and as two, by turns, as whole programs:
a fusion decision, measured. The lists are shuffled by a seed and walked until the time
is up, so that a short run is a fair sample of a long one.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from cost_model.roofline import lower_bound, predict
from tuner.calibration.corpus import FusionPair, Sample, fusion_pairs, samples
from tuner.calibration.timing import DIALECTS, Kernel, Timer, generated
from tuner.fusion.memory import plan_memory
from tuner.ir.graph import make_region
from tuner.kernel.lower import lower
from tuner.kernel.schedule import space
from tuner.runtime.feeds import make_feeds
from tuner.runtime.requests import MeasureRequest, PlanRequest, Program, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cost_model.device import Device
    from tuner.ir.graph import Graph
    from tuner.plan import Measurement, Schedule
    from tuner.runtime.requests import PlanResult

_PAIR_SHARE: Final = 0.4
"""Share of the time for fusion decisions; the rest is for schedules."""
_DEADLINE_SECONDS: Final = 60.0
_Item = TypeVar("_Item")
SHORTLIST: Final = 5
"""Schedules that a careful user would measure."""


class PairTimer(Timer, Protocol):
    """What also measures two kernels, or two programs, by turns."""

    def measure_pair(
        self, first: MeasureRequest, second: MeasureRequest
    ) -> tuple[Measurement, Measurement]:
        """Time two kernels by turns."""

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Time whole programs by turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is measured.

    Attributes:
        seconds: most that the whole may take.
        seed: of the order, and of the schedules that are drawn.
        schedules: of each kernel, the default among them.
        kernels, pairs: most that are taken; None takes all.
        sample_seconds: of timed samples, for each kernel and schedule.
        attempts: how often samples that others disturbed are taken.
    """

    seconds: float = 600.0
    seed: int = 0
    schedules: int = 10
    kernels: int | None = None
    pairs: int | None = None
    sample_seconds: float = 0.1
    attempts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One kernel under one schedule.

    Attributes:
        moved_bytes: distinct bytes read and written.
        predicted_seconds: what the cost model says.
        bound_seconds: what it says nothing can beat.
    """

    name: str
    shape: tuple[int, ...]
    family: str
    schedule: Schedule
    moved_bytes: int
    predicted_seconds: float
    bound_seconds: float
    measured: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """What a choice by the model loses against the fastest schedule that was measured.

    The two were measured again by turns; a loss inside the intervals counts as none.
    """

    name: str
    shape: tuple[int, ...]
    shortlist: int
    chosen: Measurement
    winner: Measurement

    @property
    def share(self) -> float:
        """0.05 is 5 % slower."""
        if self.chosen.low_seconds <= self.winner.high_seconds:
            return 0.0
        return self.chosen.seconds / self.winner.seconds - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A graph fused and apart: predicted and measured.

    Attributes:
        fused_bytes, apart_bytes: distinct bytes of all its kernels.
    """

    name: str
    family: str
    fused_bytes: int
    apart_bytes: int
    fused_predicted_seconds: float
    apart_predicted_seconds: float
    fused: Measurement
    apart: Measurement

    @property
    def is_decided(self) -> bool:
        """Whether the measured intervals lie apart."""
        return (
            self.fused.high_seconds < self.apart.low_seconds
            or self.apart.high_seconds < self.fused.low_seconds
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Everything that was measured.

    Attributes:
        failures: trial -> why it has no time.
    """

    device: Device
    limits: Limits
    trials: tuple[Trial, ...]
    regrets: tuple[Regret, ...]
    decisions: tuple[Decision, ...]
    failures: tuple[tuple[str, str], ...]
    seconds: float


class _Run:
    """One walk over the corpus."""

    def __init__(
        self,
        device: Device,
        timer: PairTimer,
        clock: Callable[[], float],
        limits: Limits,
    ) -> None:
        self.device, self.timer, self.limits = device, timer, limits
        self.clock, self.start = clock, clock()
        self.rng = random.Random(limits.seed)  # noqa: S311 - a seeded sample
        self.trials: list[Trial] = []
        self.regrets: list[Regret] = []
        self.decisions: list[Decision] = []
        self.failures: list[tuple[str, str]] = []

    def has_time(self, share: float) -> bool:
        return self.clock() - self.start < share * self.limits.seconds

    def schedules(self) -> None:
        for sample in _shuffled(samples(), self.rng, self.limits.kernels):
            if not self.has_time(1.0 - _PAIR_SHARE):
                return
            self._kernel(sample)

    def pairs(self) -> None:
        for pair in _shuffled(tuple(fusion_pairs()), self.rng, self.limits.pairs):
            if not self.has_time(1.0):
                return
            self._decide(pair)

    def _kernel(self, sample: Sample) -> None:
        nest = lower(sample.graph)
        first, *others = space(nest, self.device)
        more = min(self.limits.schedules - 1, len(others))
        kernels: list[tuple[Trial, Kernel]] = []
        for schedule in (first, *self.rng.sample(others, more)):
            kernel = generated(sample.graph, self.device, schedule)
            measured = self.timer.measure(self._request(kernel))
            label = f"{sample.name}{list(sample.shape)} {schedule.as_dict}"
            if self._failed(label, measured):
                continue
            trial = Trial(
                name=sample.name,
                shape=sample.shape,
                family=str(nest.family),
                schedule=schedule,
                moved_bytes=kernel.work.read_bytes + kernel.work.written_bytes,
                predicted_seconds=predict(kernel.work, self.device).seconds,
                bound_seconds=lower_bound(kernel.work, self.device),
                measured=measured,
            )
            kernels.append((trial, kernel))
        self.trials.extend(trial for trial, _ in kernels)
        if len(kernels) > 1:
            self._regret(kernels)

    def _regret(self, kernels: Sequence[tuple[Trial, Kernel]]) -> None:
        said = sorted(kernels, key=lambda pair: pair[0].predicted_seconds)
        winner = min(kernels, key=_seconds)
        for count in (1, SHORTLIST):
            chosen = min(said[:count], key=_seconds)
            again = (winner[0].measured, winner[0].measured)
            if chosen is not winner:
                requests = (self._request(chosen[1]), self._request(winner[1]))
                again = self.timer.measure_pair(*requests)
            if self._failed(f"{winner[0].name} again", again[0]):
                continue
            self.regrets.append(
                Regret(
                    name=winner[0].name,
                    shape=winner[0].shape,
                    shortlist=count,
                    chosen=again[0],
                    winner=again[1],
                )
            )

    def _request(self, kernel: Kernel) -> MeasureRequest:
        return MeasureRequest(
            graph=kernel.graph,
            source=kernel.source,
            budget_seconds=self.limits.sample_seconds,
            deadline_seconds=_DEADLINE_SECONDS,
            attempts=self.limits.attempts,
            verify=False,
        )

    def _decide(self, pair: FusionPair) -> None:
        programs = {
            "fused": _program(pair.whole, (pair.whole,), self.device),
            "apart": _program(pair.whole, pair.parts, self.device),
        }
        result = self.timer.measure_whole(
            PlanRequest(
                programs=programs,
                weights={},
                feeds=(make_feeds(pair.whole, self.limits.seed),),
                budget_seconds=2 * self.limits.sample_seconds,
                deadline_seconds=_DEADLINE_SECONDS,
                attempts=self.limits.attempts,
            )
        )
        fused, apart = (result.measurements[name] for name in programs)
        failed = [self._failed(f"{pair.name} fused", fused)]
        failed.append(self._failed(f"{pair.name} apart", apart))
        if any(failed):
            return
        fused_bytes, fused_seconds = self._priced(pair.whole)
        parts = [self._priced(part) for part in pair.parts]
        self.decisions.append(
            Decision(
                name=pair.name,
                family=str(lower(pair.whole).family),
                fused_bytes=fused_bytes,
                apart_bytes=sum(count for count, _ in parts),
                fused_predicted_seconds=fused_seconds,
                apart_predicted_seconds=sum(seconds for _, seconds in parts),
                fused=fused,
                apart=apart,
            )
        )

    def _priced(self, graph: Graph) -> tuple[int, float]:
        work = generated(graph, self.device).work
        seconds = predict(work, self.device).seconds
        return work.read_bytes + work.written_bytes, seconds

    def _failed(self, label: str, measured: Measurement) -> bool:
        if measured.failure:
            self.failures.append((label, f"{measured.failure}: {measured.message}"))
        return bool(measured.failure)


def measure_accuracy(
    device: Device, timer: PairTimer, clock: Callable[[], float], limits: Limits
) -> Accuracy:
    """Measure schedules, then fusion decisions, until the time is up.

    Args:
        device: whose numbers predict.
        timer: the runner of the device here.
        clock: monotonic seconds.
        limits: how much, and how long.
    """
    run = _Run(device, timer, clock, limits)
    run.schedules()
    run.pairs()
    return Accuracy(
        device=device,
        limits=limits,
        trials=tuple(run.trials),
        regrets=tuple(run.regrets),
        decisions=tuple(run.decisions),
        failures=tuple(run.failures),
        seconds=clock() - run.start,
    )


def _seconds(pair: tuple[Trial, Kernel]) -> float:
    return pair[0].measured.seconds


def _shuffled(
    items: Sequence[_Item], rng: random.Random, most: int | None
) -> Iterator[_Item]:
    order = list(items)
    rng.shuffle(order)
    yield from order[:most]


def _program(whole: Graph, parts: Sequence[Graph], device: Device) -> Program:
    """Kernels in launch order as a program over the whole graph's tensors."""
    steps = []
    for index, part in enumerate(parts):
        source = generated(part, device).source
        assert source is not None
        assert source.language == DIALECTS[device.kind].language
        steps.append(Step(name=f"k{index}", graph=part, source=source))
    regions = [
        make_region(whole, [node.name for node in part.nodes], part.outputs)
        for part in parts
    ]
    return Program(
        steps=tuple(steps),
        inputs=whole.inputs,
        outputs=whole.outputs,
        constants=whole.constants,
        types=whole.types,
        memory=plan_memory(whole, regions),
    )
