"""What the cost model gets wrong about schedules, learned from other kernels.

The model prices what it can count. What it cannot, such as how a compiler packs a loop
of so many steps, is much the same for all kernels of a kind. So kernels whose schedules
were measured teach a correction: a polynomial of the second degree in the logarithms of
the knobs, fitted to the logarithm of measured over predicted seconds. It is learned in
two steps: from all kernels with the same knobs, and then, on what that leaves, from
those of the same regime (`tuner.kernel.schedule.regime`). Only how schedules of one
kernel compare is learned, never how fast a kernel is.

Source: A. E. Hoerl, R. W. Kennard, "Ridge Regression: Biased Estimation for
Nonorthogonal Problems", Technometrics 12(1), 1970, equation 2.1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tuner.errors import InvalidModel
from tuner.plan import PRICE_REVISION, Schedule

Floats = npt.NDArray[np.float64]
SCHEMA: Final = "fuseplan.experience/1"
FILE: Final = "experience.json"
"""Beside this module: what `python -m benchmarks.search_quality learn` has written."""

_FOCUS: Final = 1.5
"""The fast are looked for: a schedule of twice the least time counts a third."""
_RIDGE: Final = 1e-2
"""Of the fit to all kernels with the same knobs; weights of a lesson sum to 1."""
_REGIME_RIDGE: Final = 0.05
"""Of the fit to one regime, which has fewer kernels."""
_SHARE: Final = 0.7
"""How much of a lesson holds for the next kernel, about: by it, each recorded kernel is
expected from all others with the least loss."""
_OPTIONAL: Final = frozenset({"stream", "tensor"})
"""Knobs that some kernels of a kind do not have; 0 where they are missing."""
_DIGITS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Schedules of one kernel that were measured.

    Attributes:
        regime: of the kernel.
        seconds: measured; infinite where the schedule failed.
        predicted: the cost model's seconds, of at least those.
    """

    regime: str
    seconds: Mapping[Schedule, float]
    predicted: Mapping[Schedule, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A polynomial in the logarithms of knobs, each scaled to what was measured.

    Attributes:
        knobs: their names.
        low, high: least and greatest logarithm of each.
        weights: of the terms, in the order of `_terms`.
    """

    knobs: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    weights: tuple[float, ...]

    def logs(self, schedules: Sequence[Schedule]) -> Floats:
        """Logarithm of measured over predicted seconds, up to a constant."""
        found: Floats = self._rows(schedules) @ np.array(self.weights)
        return found

    def _rows(self, schedules: Sequence[Schedule]) -> Floats:
        return _terms(self.knobs, self.low, self.high, schedules)

    @classmethod
    def fitted(
        cls, lessons: Sequence[Lesson], ridge: float, before: Correction | None = None
    ) -> Correction:
        """Fit to lessons of one kind.

        Args:
            lessons: at least one.
            ridge: how strongly weights are held at zero.
            before: a correction that is made already; only the rest is fitted.
        """
        seen = [schedule for each in lessons for schedule in each.seconds]
        knobs = tuple(sorted({knob for schedule in seen for knob, _ in schedule.knobs}))
        logs = _logs(knobs, seen)
        low, high = logs.min(axis=0), logs.max(axis=0)
        rows, rest = [], []
        for lesson in lessons:
            ran, left, share = _weighed(lesson, before)
            terms = _terms(knobs, low, high, ran)
            root = np.sqrt(share / len(lessons))
            rows.append(root[:, None] * (terms - share @ terms))
            rest.append(root * (left - share @ left))
        all_rows, all_rest = np.concatenate(rows), np.concatenate(rest)
        square = all_rows.T @ all_rows + ridge * np.eye(all_rows.shape[1])
        weights = np.linalg.solve(square, all_rows.T @ all_rest)
        return cls(
            knobs=knobs,
            low=_rounded(low),
            high=_rounded(high),
            weights=_rounded(np.asarray(weights, dtype=np.float64)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Corrections by kind of kernel; of no kind, nothing is corrected.

    Attributes:
        corrections: by both `_names`: kind of the schedules, and regime with kind.
    """

    corrections: Mapping[str, Correction] = field(default_factory=dict)

    def factors(
        self, regime: str, schedules: Sequence[Schedule]
    ) -> dict[Schedule, float]:
        """How many times its prediction each schedule may take, up to a constant.

        Args:
            regime: of the kernel.
            schedules: of one kernel.
        """
        if not schedules:
            return {}
        logs = np.zeros(len(schedules))
        for name in _names(schedules[0], regime):
            if name in self.corrections:
                logs += self.corrections[name].logs(schedules)
        return dict(zip(schedules, np.exp(_SHARE * logs).tolist(), strict=True))

    @classmethod
    def learned(cls, lessons: Iterable[Lesson]) -> Experience:
        """What kernels teach; one without a schedule that ran teaches nothing."""
        found: dict[str, Correction] = {}
        kinds: dict[str, dict[str, list[Lesson]]] = {}
        for lesson in lessons:
            if any(math.isfinite(value) for value in lesson.seconds.values()):
                kind, full = _names(next(iter(lesson.seconds)), lesson.regime)
                kinds.setdefault(kind, {}).setdefault(full, []).append(lesson)
        for kind, regimes in kinds.items():
            every = [lesson for group in regimes.values() for lesson in group]
            found[kind] = Correction.fitted(every, _RIDGE)
            if len(regimes) > 1:
                for full, group in regimes.items():
                    found[full] = Correction.fitted(group, _REGIME_RIDGE, found[kind])
        return cls(corrections=found)

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            name: {
                "knobs": list(one.knobs),
                "low": list(one.low),
                "high": list(one.high),
                "weights": list(one.weights),
            }
            for name, one in sorted(self.corrections.items())
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Experience:
        """Read what `to_json` wrote."""
        return cls(
            corrections={
                name: Correction(**{key: tuple(row[key]) for key in row})
                for name, row in stored.items()
            }
        )


def write(experiences: Mapping[str, Experience]) -> str:
    """Experiences by kind of device, as the text of a file.

    What is learned corrects the prices of this version; those of another are corrected
    in vain, so the text says which they are.
    """
    told = {kind: one.to_json() for kind, one in sorted(experiences.items())}
    head = {"schema": SCHEMA, "prices": PRICE_REVISION}
    return json.dumps({**head, "devices": told}, indent=1) + "\n"


def read(text: str) -> dict[str, Experience]:
    """Experiences by kind of device.

    Raises:
        InvalidModel: the text holds none.
    """
    stored = json.loads(text)
    if stored.get("schema") != SCHEMA:
        raise InvalidModel(
            "experience", f"has the schema {stored.get('schema')!r}", hint=SCHEMA
        )
    return {kind: Experience.from_json(one) for kind, one in stored["devices"].items()}


@cache
def shipped(kind: str) -> Experience:
    """What comes with this version for a kind of device: cpu or gpu."""
    found = read(files("tuner.search").joinpath(FILE).read_text())
    return found.get(kind, Experience())


def _names(schedule: Schedule, regime: str) -> tuple[str, str]:
    """What the corrections of a kernel with such a schedule are called."""
    kind = ",".join(knob for knob, _ in schedule.knobs if knob not in _OPTIONAL)
    return kind, f"{regime}: {kind}"


def _weighed(
    lesson: Lesson, before: Correction | None
) -> tuple[list[Schedule], Floats, Floats]:
    """Schedules that ran, what is to be learned of each, and how much each counts."""
    ran = [s for s, value in lesson.seconds.items() if math.isfinite(value)]
    taken = np.log([lesson.seconds[s] for s in ran])
    rest = taken - np.log([lesson.predicted[s] for s in ran])
    if before is not None:
        rest = rest - before.logs(ran)
    share = np.exp(-_FOCUS * (taken - taken.min()))
    return ran, rest, share / share.sum()


def _logs(knobs: Sequence[str], schedules: Sequence[Schedule]) -> Floats:
    values = [
        [each.get(knob, 0) for knob in knobs]
        for each in (schedule.as_dict for schedule in schedules)
    ]
    found: Floats = np.log2(1.0 + np.maximum(np.array(values, dtype=np.float64), 0.0))
    return found


def _terms(
    knobs: Sequence[str],
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    schedules: Sequence[Schedule],
) -> Floats:
    """Scaled logarithms, their squares, and their products by pairs.

    What lies beyond everything that was measured counts as its border.
    """
    least, most = np.asarray(low), np.asarray(high)
    span = np.where(most > least, most - least, 1.0)
    scaled = np.clip((_logs(knobs, schedules) - least) / span, 0.0, 1.0)
    pairs = [scaled[:, a] * scaled[:, b] for a, b in combinations(range(len(knobs)), 2)]
    return np.column_stack([scaled, scaled**2, *pairs])


def _rounded(values: Floats) -> tuple[float, ...]:
    return tuple(round(float(value), _DIGITS) for value in values)
