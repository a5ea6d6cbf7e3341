"""How far predictions can be trusted here: kernels that no calibration saw, measured.

Two kinds of trials. A *schedule trial* times one kernel of the corpus under one of its
schedules. A *pair* runs a graph as one kernel and as two, by turns, as whole programs:
a fusion decision, measured. The families of kernels take turns; each gives its pairs
and its kernels side by side, shuffled by a seed, so that a run that ends early has seen
all of them. When all is measured, what others disturbed is taken again while there is
time, and a run that knows what an earlier one found goes on where that stopped.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace
from types import MappingProxyType
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
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cost_model.device import Device
    from tuner.ir.graph import Graph
    from tuner.plan import Family, Measurement, Schedule
    from tuner.runtime.requests import PlanResult

SAVE_SECONDS: Final = 10.0
"""How much measuring a killed run may lose."""
TRIES: Final = 3
"""How often an item is measured at most, because others disturbed it."""
WIDE: Final = 0.25
"""An interval of so much of its median says little of what it is the median of."""
_DEADLINE_SECONDS: Final = 60.0
_CHOICE: Final = 2
"""So many schedules are a choice."""
_Subject = TypeVar("_Subject")
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

    @property
    def is_right(self) -> bool:
        """Whether the model prefers what is faster."""
        said = self.fused_predicted_seconds < self.apart_predicted_seconds
        return said == (self.fused.seconds < self.apart.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one kernel, or one pair, was found to take.

    Attributes:
        failures: trial -> why it has no time.
        tries: how often it was measured.
    """

    trials: tuple[Trial, ...] = ()
    regrets: tuple[Regret, ...] = ()
    decisions: tuple[Decision, ...] = ()
    failures: tuple[tuple[str, str], ...] = ()
    tries: int = 1

    @property
    def measured(self) -> tuple[Measurement, ...]:
        """All of its measurements."""
        return (
            *(trial.measured for trial in self.trials),
            *(side for r in self.regrets for side in (r.chosen, r.winner)),
            *(side for d in self.decisions for side in (d.fused, d.apart)),
        )

    @property
    def contended(self) -> int:
        """Measurements that other processes disturbed."""
        return sum(each.contended for each in self.measured)

    @property
    def wide(self) -> int:
        """Measurements whose samples disagree."""
        return sum(width(each) > WIDE for each in self.measured)

    @property
    def is_settled(self) -> bool:
        """Whether measuring it again promises nothing."""
        return not (self.contended or self.wide) or self.tries >= TRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Everything that was measured.

    Attributes:
        found: by label of the kernel or pair.
        asked: how many kernels and pairs there are to measure.
        seconds: that measuring took, in all runs.
    """

    device: Device
    limits: Limits
    found: Mapping[str, Found]
    asked: int
    seconds: float

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Kernels under their schedules."""
        return tuple(one for each in self.found.values() for one in each.trials)

    @property
    def regrets(self) -> tuple[Regret, ...]:
        """What choices by the model lose."""
        return tuple(one for each in self.found.values() for one in each.regrets)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Graphs fused and apart."""
        return tuple(one for each in self.found.values() for one in each.decisions)

    @property
    def failures(self) -> tuple[tuple[str, str], ...]:
        """Trials without a time, with the reason."""
        return tuple(one for each in self.found.values() for one in each.failures)

    @property
    def is_complete(self) -> bool:
        """Whether everything has been measured, as quietly as it could be."""
        settled = sum(each.is_settled for each in self.found.values())
        return settled >= self.asked


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
        for schedule in _drawn(sample, self.device, self.limits):
            kernel = generated(sample.graph, self.device, schedule)
            measured = self.timer.measure(self._request(kernel))
            label = f"{label_of(sample)} {schedule.as_dict}"
            if not self._failed(label, measured):
                trial = _trial(sample, schedule, kernel, self.device, measured)
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
            self.regrets.append(_regret(winner[0], count, *again))

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
        self.decisions.append(_decision(pair, self.device, fused, apart))

    def _failed(self, label: str, measured: Measurement) -> bool:
        if measured.failure:
            self.failures.append((label, f"{measured.failure}: {measured.message}"))
        return bool(measured.failure)


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
    asked = _asked(limits)
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


def predicted_again(measured: Accuracy, device: Device) -> Accuracy:
    """The same measurements beside what another device, or model, says of them.

    A choice that differs now was not timed by turns with the winner; its first time
    stands in.
    """
    subjects = _asked(replace(measured.limits, kernels=None, pairs=None))
    found = {
        label: _said_again(each, subjects[label], device)
        for label, each in measured.found.items()
        if label in subjects
    }
    return replace(measured, device=device, found=MappingProxyType(found))


def label_of(subject: Sample | FusionPair) -> str:
    """What a kernel, or a pair, is called in records."""
    if isinstance(subject, Sample):
        return f"{subject.name}{list(subject.shape)}"
    return subject.name


def width(measured: Measurement) -> float:
    """The 95 % interval of a median, as a share of it."""
    return (measured.high_seconds - measured.low_seconds) / measured.seconds


def _asked(limits: Limits) -> Mapping[str, Sample | FusionPair]:
    """Kernels and pairs: the families take turns, each with a seeded order of its own.

    A family's pairs and kernels stand side by side, the first pair before the first
    kernel.
    """
    rng = random.Random(limits.seed)  # noqa: S311 - a seeded sample
    kernels = _shuffled(samples(), rng, limits.kernels)
    pairs = _shuffled(tuple(fusion_pairs()), rng, limits.pairs)
    placed: dict[Family, list[tuple[float, Sample | FusionPair]]] = {}
    parts: tuple[tuple[float, Sequence[Sample | FusionPair]], ...] = (
        (0.0, pairs),
        (0.5, kernels),
    )
    for first, part in parts:
        for family, group in _by_family(part).items():
            mine = placed.setdefault(family, [])
            mine += [((n + first) / len(group), one) for n, one in enumerate(group)]
    for mine in placed.values():
        mine.sort(key=lambda each: each[0])
    turns = itertools.chain.from_iterable(itertools.zip_longest(*placed.values()))
    order = [each[1] for each in turns if each is not None]
    return {label_of(subject): subject for subject in order}


def _by_family(
    subjects: Sequence[Sample | FusionPair],
) -> dict[Family, list[Sample | FusionPair]]:
    found: dict[Family, list[Sample | FusionPair]] = {}
    for subject in subjects:
        graph = subject.graph if isinstance(subject, Sample) else subject.whole
        found.setdefault(lower(graph).family, []).append(subject)
    return found


def _drawn(sample: Sample, device: Device, limits: Limits) -> tuple[Schedule, ...]:
    """The default and some others, whatever was drawn for other kernels."""
    rng = random.Random(f"{limits.seed}/{label_of(sample)}")  # noqa: S311
    first, *others = space(lower(sample.graph), device)
    return (first, *rng.sample(others, min(limits.schedules - 1, len(others))))


def _quieter(before: Found | None, now: Found) -> Found:
    """The less disturbed of two runs."""
    if before is None:
        return now
    better = min(now, before, key=lambda each: (each.contended, each.wide))
    return replace(better, tries=before.tries + 1)


def _trial(
    sample: Sample,
    schedule: Schedule,
    kernel: Kernel,
    device: Device,
    measured: Measurement,
) -> Trial:
    return Trial(
        name=sample.name,
        shape=sample.shape,
        family=str(lower(sample.graph).family),
        schedule=schedule,
        moved_bytes=kernel.work.read_bytes + kernel.work.written_bytes,
        predicted_seconds=predict(kernel.work, device).seconds,
        bound_seconds=lower_bound(kernel.work, device),
        measured=measured,
    )


def _regret(
    winner: Trial, count: int, chosen: Measurement, best: Measurement
) -> Regret:
    return Regret(
        name=winner.name,
        shape=winner.shape,
        shortlist=count,
        chosen=chosen,
        winner=best,
    )


def _decision(
    pair: FusionPair, device: Device, fused: Measurement, apart: Measurement
) -> Decision:
    fused_bytes, fused_seconds = _priced(pair.whole, device)
    parts = [_priced(part, device) for part in pair.parts]
    return Decision(
        name=pair.name,
        family=str(lower(pair.whole).family),
        fused_bytes=fused_bytes,
        apart_bytes=sum(count for count, _ in parts),
        fused_predicted_seconds=fused_seconds,
        apart_predicted_seconds=sum(seconds for _, seconds in parts),
        fused=fused,
        apart=apart,
    )


def _priced(graph: Graph, device: Device) -> tuple[int, float]:
    work = generated(graph, device).work
    seconds = predict(work, device).seconds
    return work.read_bytes + work.written_bytes, seconds


def _said_again(found: Found, subject: Sample | FusionPair, device: Device) -> Found:
    if isinstance(subject, FusionPair):
        said = [_decision(subject, device, d.fused, d.apart) for d in found.decisions]
        return replace(found, decisions=tuple(said))
    trials = []
    for trial in found.trials:
        kernel = generated(subject.graph, device, trial.schedule)
        trials.append(_trial(subject, trial.schedule, kernel, device, trial.measured))
    return replace(found, trials=tuple(trials), regrets=_chosen_again(trials))


def _chosen_again(trials: Sequence[Trial]) -> tuple[Regret, ...]:
    if len(trials) < _CHOICE:
        return ()
    said = sorted(trials, key=lambda trial: trial.predicted_seconds)
    winner = min(trials, key=lambda trial: trial.measured.seconds)
    regrets = []
    for count in (1, SHORTLIST):
        chosen = min(said[:count], key=lambda trial: trial.measured.seconds)
        regrets.append(_regret(winner, count, chosen.measured, winner.measured))
    return tuple(regrets)


def _seconds(pair: tuple[Trial, Kernel]) -> float:
    return pair[0].measured.seconds


def _shuffled(
    items: Sequence[_Subject], rng: random.Random, most: int | None
) -> list[_Subject]:
    order = list(items)
    rng.shuffle(order)
    return order[:most]


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
