"""Measures whole schedule spaces, and keeps what was measured."""

from __future__ import annotations

import json
import math
import platform
from dataclasses import dataclass, field
from statistics import median
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final

from benchmarks.search_quality.kernels import (
    KERNELS,
    fine_space,
    kernel_named,
    kernel_of,
    model_of,
    text_of,
)
from benchmarks.search_quality.recorded import COMPLETE
from benchmarks.search_quality.saying import say
from tuner.kernel.lower import lower
from tuner.pipeline import Planner, plan_key, resolve_target
from tuner.plan import Options, Schedule
from tuner.pricing import predict_nest
from tuner.runtime.runner import Runner
from tuner.search.measuring import Measurer, describe
from tuner.search.quality import Space, spaces_from, spaces_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cost_model.device import Device
    from tuner.search.kernels import KernelState

TRIES: Final = 5
LEADERS: Final = 32
"""Fastest schedules of a space that are run again: the least of many noisy times is
lower than any schedule is fast."""
RUNS: Final = 4
"""How often each of them is run, in turns; the median counts."""
WRITE_SECONDS: Final = 20.0
"""How much measuring a killed recording may lose."""


@dataclass(kw_only=True)
class Recording:
    """A recording that grows on disk, and can be gone on with.

    Attributes:
        rows: by kernel: schedule -> seconds of each run, infinite where it failed.
        predicted: what the cost model says of them.
        sizes: how many schedules each kernel has.
        names: fingerprint of each kernel.
        texts: names of the generated programs of each kernel, by schedule.
        rivals: the same kernels in another recording, whose fastest schedules are run
            as often as one's own.
    """

    out: Path
    facts: Mapping[str, Any]
    rows: dict[str, dict[Schedule, list[float]]] = field(default_factory=dict)
    predicted: dict[str, dict[Schedule, float]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    texts: dict[str, Mapping[Schedule, str]] = field(default_factory=dict)
    rivals: Mapping[str, Space] = field(default_factory=dict)

    def resume(self) -> None:
        """Take over what an earlier call measured on this very device.

        Raises:
            SystemExit: the file is of another device.
        """
        if not self.out.exists():
            return
        stored = json.loads(self.out.read_text())
        if _who_measured(stored["device"]) != _who_measured(self.facts):
            raise SystemExit(
                f"{self.out}: was recorded with another device or toolchain: "
                "give another file"
            )
        self.sizes.update(stored["sizes"])
        for one in spaces_from(stored):
            self.rows[one.name] = {
                schedule: list(one.runs.get(schedule, (seconds,)))
                for schedule, seconds in one.seconds.items()
            }
            self.predicted[one.name] = dict(one.predicted)
            self.names[one.name], self.texts[one.name] = one.kernel, one.texts

    def known_kernel(self, name: str) -> str:
        """Fingerprint of the kernel here, or else in the other recording, or empty."""
        rival = self.rivals.get(name)
        return self.names.get(name) or ("" if rival is None else rival.kernel)

    def begin(
        self,
        name: str,
        kernel: str,
        schedules: Mapping[Schedule, float],
        texts: Mapping[Schedule, str],
    ) -> None:
        """Say which schedules a kernel has.

        Results of others are dropped, and all where the programs have changed.
        """
        before = self.texts.get(name, {})
        is_same = all(texts.get(s, text) == text for s, text in before.items())
        is_kept = is_same and self.names.get(name) == kernel
        kept = self.rows.get(name, {}) if is_kept else {}
        self.rows[name] = {s: kept[s] for s in schedules if s in kept}
        self.texts[name] = dict(texts)
        self.predicted[name] = dict(schedules)
        self.sizes[name], self.names[name] = len(schedules), kernel

    def space(self, name: str) -> Space:
        """What is known of a kernel, in the order of its schedules."""
        known, predicted = self.rows[name], self.predicted[name]
        order = [schedule for schedule in predicted if schedule in known]
        return Space(
            name=name,
            kernel=self.names[name],
            seconds={schedule: median(known[schedule]) for schedule in order},
            runs={schedule: tuple(known[schedule]) for schedule in order},
            predicted={schedule: predicted[schedule] for schedule in order},
            texts=self.texts.get(name, {}),
        )

    def leaders(self, name: str) -> tuple[Schedule, ...]:
        """The schedules that were fastest when each had run once, and the rivals."""
        rows = self.rows[name]
        ran = [s for s, runs in rows.items() if math.isfinite(runs[0])]
        own = sorted(ran, key=lambda s: rows[s][0])[:LEADERS]
        rival = self.rivals.get(name)
        others = () if rival is None else _fastest(rival)
        return tuple(dict.fromkeys([*own, *(s for s in others if s in ran)]))

    def is_complete(self, name: str) -> bool:
        """Whether every schedule has run, and the fastest often enough."""
        rows = self.rows.get(name, {})
        whole = bool(rows) and len(rows) >= self.sizes[name]
        return whole and all(len(rows[s]) >= RUNS for s in self.leaders(name))

    def write(self) -> None:
        """Write everything, whole or not at all."""
        spaces = [self.space(name) for name in self.rows if self.rows[name]]
        told = {**spaces_json(spaces, self.facts), "sizes": self.sizes}
        text = json.dumps(told, indent=0)
        self.out.parent.mkdir(parents=True, exist_ok=True)
        draft = self.out.with_name(f"{self.out.name}.part")
        draft.write_text(f"{text}\n")
        draft.replace(self.out)


def _who_measured(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What times depend on; the catalogue's numbers are no part of it."""
    target = facts.get("target", {})
    return {**facts, "target": target.get("id")}


def rivals_of(path: Path | None) -> dict[str, Space]:
    """The spaces of another recording, by name."""
    if path is None:
        return {}
    return {each.name: each for each in spaces_from(json.loads(path.read_text()))}


def _fastest(found: Space) -> list[Schedule]:
    return sorted(found.seconds, key=lambda s: found.seconds[s])[:LEADERS]


def record(given: argparse.Namespace) -> None:
    """Measure every schedule of the chosen kernels, as far as the time allows."""
    device = resolve_target(given.target)
    end = math.inf if given.minutes is None else monotonic() + 60 * given.minutes
    with Runner(given.device) as runner:
        facts = {
            **describe(runner, {}),
            "target": {"id": device.id, "digest": device.digest},
            "processor": platform.processor() or platform.machine(),
        }
        recording = Recording(
            out=given.out, facts=facts, rivals=rivals_of(given.rivals)
        )
        recording.resume()
        for name in given.only or KERNELS:
            if monotonic() >= end:
                break
            _record_kernel(name, recording, device, runner, most=given.most, end=end)
            say(_described(recording, name))
    left = [name for name in KERNELS if not recording.is_complete(name)]
    if left and not given.only:
        say(f"{len(left)} kernels are not complete: call it again to go on")


def _record_kernel(
    name: str,
    recording: Recording,
    device: Device,
    runner: Runner,
    *,
    most: int | None,
    end: float,
) -> None:
    """Measure what is not measured yet of one kernel."""
    model = model_of(name)
    planner = Planner(model=model, device=device, options=Options())
    known = recording.known_kernel(name)
    state = (kernel_named(planner, known) if known else None) or kernel_of(planner)
    nest = lower(state.form.graph)
    schedules = {
        schedule: predict_nest(nest, schedule, device, Options()).estimate.seconds
        for schedule in fine_space(state, device)[:most]
    }
    texts = {schedule: text_of(state, schedule, device) for schedule in schedules}
    recording.begin(name, state.name, schedules, texts)
    measurer = Measurer(
        model=model,
        options=planner.options,
        language="cuda" if device.kind == "gpu" else "opencl",
        planned=plan_key(model, device, planner.options).toolchain,
        seed=0,
        clock=perf_counter,
    )
    written = monotonic()
    for schedule in waiting(recording, name, schedules):
        if monotonic() >= end:
            break
        result = _quiet(state, schedule, measurer, runner)
        if result is not None:
            told = result["seconds"]
            runs = recording.rows[name].setdefault(schedule, [])
            runs.append(math.inf if told is None else told)
        if monotonic() - written > WRITE_SECONDS:
            recording.write()
            written = monotonic()
    recording.write()


def waiting(
    recording: Recording, name: str, schedules: Mapping[Schedule, float]
) -> Iterator[Schedule]:
    """What is to run next: every schedule once, then the fastest in turns.

    A few that were disturbed whenever they ran keep nobody waiting: who is the fastest
    can be told without them, and is not to be told by single runs.
    """
    rows = recording.rows[name]
    yield from [schedule for schedule in schedules if schedule not in rows]
    if len(rows) < COMPLETE * len(schedules):
        return
    for count in range(2, RUNS + 1):
        yield from [s for s in recording.leaders(name) if len(rows[s]) < count]


def _quiet(
    state: KernelState, schedule: Schedule, measurer: Measurer, runner: Runner
) -> dict[str, Any] | None:
    """An undisturbed run of a schedule; None if there is none to be had."""
    for _ in range(TRIES):
        result = measurer.kernel(state, schedule, runner, timed=True)
        if not result["contended"]:
            return result
    return None


def _described(recording: Recording, name: str) -> str:
    found, size = recording.space(name), recording.sizes[name]
    ran = [seconds for seconds in found.seconds.values() if math.isfinite(seconds)]
    if not ran:
        return f"{name}: 0 of {size} schedules ran undisturbed"
    spread = found.median_seconds / found.best_seconds
    default = found.seconds[found.default] / found.best_seconds
    return (
        f"{name}: {len(found.seconds)} of {size} schedules, best "
        f"{found.best_seconds * 1e6:.0f} us, median {spread:.2f} times, default "
        f"{default:.2f} times that, {len(found.seconds) - len(ran)} failed"
    )
