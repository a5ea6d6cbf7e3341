"""How fast a search finds the best schedule of a space that was measured whole."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from tuner.errors import InvalidModel
from tuner.plan import Schedule
from tuner.search.records import Json
from tuner.search.study import KernelStudy, default_tpe

SCHEMA: Final = "fuseplan.schedule-spaces/1"
CHECKPOINTS: Final = (5, 10, 20, 50)
NEAR: Final = 0.05
"""How much slower than the best still counts as having found it."""
LEAST_SIZE: Final = 200
LEAST_SPREAD: Final = 1.5
"""Median over best: what makes a space worth searching."""

Method = Callable[["Space", int, int], Iterator[Schedule]]
"""Schedules in the order of trial, for a space, a number of trials and a seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All schedules of one kernel with measured and predicted seconds.

    Attributes:
        seconds: measured; infinite where the schedule failed. The default is first.
        predicted: what the cost model said.
        runs: seconds of each run, where a schedule was run several times.
        texts: a name of the generated program, where it is known.
        learned: how many times its prediction a schedule may take, by what other
            kernels have taught; once where it is missing. Not part of a recording.
        tried: the schedules among which a tuning run searches; none: all. Not part of
            a recording, which has more.
    """

    name: str
    kernel: str
    seconds: Mapping[Schedule, float]
    predicted: Mapping[Schedule, float]
    runs: Mapping[Schedule, tuple[float, ...]] = field(default_factory=dict)
    texts: Mapping[Schedule, str] = field(default_factory=dict)
    learned: Mapping[Schedule, float] = field(default_factory=dict)
    tried: frozenset[Schedule] = frozenset()

    @property
    def expected(self) -> Mapping[Schedule, float]:
        """Seconds, up to a factor, as far as they are known before anything ran."""
        return {s: self.predicted[s] * self.learned.get(s, 1.0) for s in self.predicted}

    @property
    def default(self) -> Schedule:
        """The schedule that needs no tuning."""
        return next(iter(self.seconds))

    @property
    def best_seconds(self) -> float:
        """The fastest schedule."""
        return min(self.seconds.values())

    @property
    def median_seconds(self) -> float:
        """The middle of the schedules that ran."""
        return median(v for v in self.seconds.values() if math.isfinite(v))

    @property
    def is_worthy(self) -> bool:
        """Whether the space is large and varied enough to tell searches apart."""
        spread = self.median_seconds / self.best_seconds
        return len(self.seconds) >= LEAST_SIZE and spread >= LEAST_SPREAD

    def to_json(self) -> Json:
        """As it is stored; failures have no seconds."""
        return {
            "name": self.name,
            "kernel": self.kernel,
            "schedules": [
                {
                    "schedule": schedule.as_dict,
                    "seconds": seconds if math.isfinite(seconds) else None,
                    "predicted_seconds": self.predicted[schedule],
                    **self._runs_json(schedule),
                    **self._text_json(schedule),
                }
                for schedule, seconds in self.seconds.items()
            ],
        }

    def _runs_json(self, schedule: Schedule) -> Json:
        runs = [s for s in self.runs.get(schedule, ()) if math.isfinite(s)]
        return {"runs": runs} if len(runs) > 1 else {}

    def _text_json(self, schedule: Schedule) -> Json:
        return {"text": self.texts[schedule]} if schedule in self.texts else {}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Space:
        """Read a space."""
        rows = [(Schedule.of(**row["schedule"]), row) for row in stored["schedules"]]
        return cls(
            name=stored["name"],
            kernel=stored["kernel"],
            seconds={
                s: math.inf if row["seconds"] is None else row["seconds"]
                for s, row in rows
            },
            predicted={s: row["predicted_seconds"] for s, row in rows},
            runs={s: tuple(row["runs"]) for s, row in rows if "runs" in row},
            texts={s: row["text"] for s, row in rows if "text" in row},
        )


def spaces_json(spaces: Sequence[Space], device: Mapping[str, Any]) -> Json:
    """A recording of several spaces on one device."""
    return {
        "schema": SCHEMA,
        "device": dict(device),
        "spaces": [space.to_json() for space in spaces],
    }


def spaces_from(stored: Mapping[str, Any]) -> tuple[Space, ...]:
    """Read a recording.

    Raises:
        InvalidModel: it is none.
    """
    if stored.get("schema") != SCHEMA:
        raise InvalidModel(
            "recording", f"has the schema {stored.get('schema')!r}", hint=SCHEMA
        )
    return tuple(Space.from_json(space) for space in stored["spaces"])


def by_chance(space: Space, trials: int, seed: int) -> Iterator[Schedule]:
    """Schedules in random order, none twice."""
    # Not for secrets: equal seeds give equal orders.
    source = random.Random(seed)  # noqa: S311
    yield from source.sample(list(space.seconds), min(trials, len(space.seconds)))


def by_tpe(space: Space, trials: int, seed: int) -> Iterator[Schedule]:
    """Optuna's TPE with its own defaults; what it repeats costs a trial."""
    return default_tpe(list(space.seconds), space.seconds, trials=trials, seed=seed)


def by_ours(space: Space, trials: int, seed: int) -> Iterator[Schedule]:
    """What a tuning run does: its study, among the schedules that it would try."""
    return _studied(space, trials, seed, space.tried or frozenset(space.seconds))


def by_ours_of_all(space: Space, trials: int, seed: int) -> Iterator[Schedule]:
    """The same study, among all schedules that were recorded."""
    return _studied(space, trials, seed, frozenset(space.seconds))


def _studied(
    space: Space, trials: int, seed: int, tried: frozenset[Schedule]
) -> Iterator[Schedule]:
    expected = {
        schedule: seconds
        for schedule, seconds in space.expected.items()
        if schedule in tried and schedule in space.seconds
    }
    expected[space.default] = space.expected[space.default]
    others = sorted(expected, key=lambda s: (expected[s], s.knobs))
    ranked = tuple(dict.fromkeys([space.default, *others]))
    study = KernelStudy(ranked, seed=seed, expected=expected)
    for _ in range(trials):
        schedule = study.propose()
        if schedule is None:
            return
        seconds = space.seconds[schedule]
        study.tell(schedule, seconds if math.isfinite(seconds) else None)
        yield schedule


def by_knowing(space: Space, trials: int, _seed: int) -> Iterator[Schedule]:
    """The fastest first: what nobody can do better who sees this recording alone.

    Judged by another recording, it says how far the two agree.
    """
    yield from sorted(space.seconds, key=lambda s: space.seconds[s])[:trials]


METHODS: Final[Mapping[str, Method]] = {
    "random": by_chance,
    "tpe": by_tpe,
    "ours": by_ours,
    "of all": by_ours_of_all,
    "knowing": by_knowing,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search had found after some trials.

    Attributes:
        share: of the way from the median to the best; 1 is the best.
        excess: how much slower than the best it is, relative.
    """

    share: float
    excess: float


def found_after(
    space: Space, truth: Space, method: Method, *, trials: Sequence[int], seed: int
) -> dict[int, Found]:
    """Run a search on one recording, and judge it by another.

    Args:
        space: the times that the search sees.
        truth: the times that count: a second recording, or the same.
        method: the search.
        trials: after how many trials to look.
        seed: of the search.
    """
    order = list(method(space, max(trials), seed))
    results = {}
    for count in trials:
        seen = order[:count]
        chosen = min(seen, key=lambda schedule: space.seconds[schedule])
        seconds = truth.seconds[chosen]
        way = truth.median_seconds - truth.best_seconds
        results[count] = Found(
            share=(truth.median_seconds - seconds) / way if way > 0 else 1.0,
            excess=seconds / truth.best_seconds - 1,
        )
    return results


def compare(
    spaces: Sequence[Space],
    truths: Sequence[Space],
    *,
    seeds: int,
    methods: Collection[str] = METHODS.keys(),
) -> list[Json]:
    """Every method on every space.

    Args:
        spaces: what the searches see.
        truths: what judges them.
        seeds: how many searches by each method.
        methods: names of those that are compared.

    Returns:
        Of each and each number of trials: mean `share` found, how often within `NEAR`
        (`near_best`), and the median `excess`.
    """
    rows: list[Json] = []
    by_name = {truth.name: truth for truth in truths}
    for name, method in METHODS.items():
        for space in spaces if name in methods else ():
            runs = [
                found_after(
                    space, by_name[space.name], method, trials=CHECKPOINTS, seed=seed
                )
                for seed in range(seeds)
            ]
            for count in CHECKPOINTS:
                found = [run[count] for run in runs]
                rows.append(
                    {
                        "method": name,
                        "space": space.name,
                        "trials": count,
                        "share": sum(f.share for f in found) / seeds,
                        "near_best": sum(f.excess <= NEAR for f in found) / seeds,
                        "excess": median(f.excess for f in found),
                    }
                )
    return rows
