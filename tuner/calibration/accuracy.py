"""How far predictions can be trusted here: kernels that no calibration saw, measured.

Two kinds of trials. A *schedule trial* times one kernel of the corpus under one of its
schedules. A *pair* runs a graph as one kernel and as two, by turns, as whole programs:
a fusion decision, measured. When all is measured, what others disturbed is taken again
while there is time, and a run that knows what an earlier one found goes on where that
stopped.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

from tuner.calibration.corpus import FusionPair, Sample
from tuner.calibration.findings import (
    SHORTLIST,
    TRIES,
    Accuracy,
    Decision,
    Found,
    Limits,
    Regret,
    Trial,
)
from tuner.calibration.judging import decision_of, regret_of, trial_of
from tuner.calibration.sampling import drawn, label_of, subjects
from tuner.calibration.timing import DIALECTS, Kernel, Timer, generated
from tuner.fusion.memory import plan_memory
from tuner.ir.graph import make_region
from tuner.runtime.feeds import make_feeds
from tuner.runtime.requests import MeasureRequest, PlanRequest, Program, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cost_model.device import Device
    from tuner.ir.graph import Graph
    from tuner.plan import Measurement
    from tuner.runtime.requests import PlanResult

SAVE_SECONDS: Final = 10.0
"""How much measuring a killed run may lose."""
_DEADLINE_SECONDS: Final = 60.0


class PairTimer(Timer, Protocol):
    """What also measures two kernels, or two programs, by turns."""

    def measure_pair(
        self, first: MeasureRequest, second: MeasureRequest
    ) -> tuple[Measurement, Measurement]:
        """Time two kernels by turns."""

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        """Time whole programs by turns."""


def measure_accuracy(
    device: Device,
    timer: PairTimer,
    clock: Callable[[], float],
    limits: Limits,
    known: Accuracy | None = None,
    save: Callable[[Accuracy], None] | None = None,
) -> Accuracy:
    """Measure schedules and fusion decisions until the time is up.

    Args:
        device: whose numbers predict.
        timer: the runner of the device here.
        clock: monotonic seconds.
        limits: how much, and how long.
        known: what earlier runs under the same limits found; it is gone on with.
        save: is given what there is so far, every `SAVE_SECONDS`.
    """
    start = saved = clock()
    asked = subjects(limits)
    found = dict(known.found) if known is not None else {}

    def so_far() -> Accuracy:
        return Accuracy(
            device=device,
            limits=limits,
            found=MappingProxyType({n: found[n] for n in asked if n in found}),
            asked=len(asked),
            seconds=clock() - start + (known.seconds if known is not None else 0.0),
        )

    for label, subject in _rounds(asked, found):
        if clock() - start >= limits.seconds:
            break
        now = _Item(device, timer, limits).measure(subject)
        found[label] = _quieter(found.get(label), now)
        if save is not None and clock() - saved >= SAVE_SECONDS:
            save(so_far())
            saved = clock()
    return so_far()


def _rounds(
    asked: Mapping[str, Sample | FusionPair], found: Mapping[str, Found]
) -> Iterator[tuple[str, Sample | FusionPair]]:
    """What is not settled, as long as there is any: those never measured first."""
    for tries in range(TRIES):
        for label, subject in asked.items():
            known = found.get(label)
            if known is None or (known.tries <= tries and not known.is_settled):
                yield label, subject


@dataclass(slots=True)
class _Item:
    """One kernel or pair while it is measured."""

    device: Device
    timer: PairTimer
    limits: Limits
    trials: list[Trial] = field(default_factory=list)
    regrets: list[Regret] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)

    def measure(self, subject: Sample | FusionPair) -> Found:
        """Measure it."""
        if isinstance(subject, Sample):
            self._kernel(subject)
        else:
            self._decide(subject)
        return Found(
            trials=tuple(self.trials),
            regrets=tuple(self.regrets),
            decisions=tuple(self.decisions),
            failures=tuple(self.failures),
        )

    def _kernel(self, sample: Sample) -> None:
        kernels: list[tuple[Trial, Kernel]] = []
        for schedule in drawn(sample, self.device, self.limits):
            kernel = generated(sample.graph, self.device, schedule)
            measured = self.timer.measure(self._request(kernel))
            label = f"{label_of(sample)} {schedule.as_dict}"
            if not self._failed(label, measured):
                trial = trial_of(sample, schedule, kernel, self.device, measured)
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
            label = f"{winner[0].name} again"
            failed = [self._failed(label, each) for each in again]
            if any(failed):
                continue
            self.regrets.append(regret_of(winner[0], count, *again))

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
        self.decisions.append(decision_of(pair, self.device, fused, apart))

    def _failed(self, label: str, measured: Measurement) -> bool:
        if measured.failure:
            self.failures.append((label, f"{measured.failure}: {measured.message}"))
        return bool(measured.failure)


def _seconds(pair: tuple[Trial, Kernel]) -> float:
    return pair[0].measured.seconds


def _quieter(before: Found | None, now: Found) -> Found:
    """The less disturbed of two runs."""
    if before is None:
        return now
    better = min(now, before, key=lambda each: (each.contended, each.wide))
    return replace(better, tries=before.tries + 1)


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
