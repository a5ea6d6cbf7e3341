"""Judge the register estimate against NVIDIA's own compiler; no GPU takes part.

    python -m benchmarks.registers --models ../shared --output registers.json

Kernels: those of the plans of every model in the folders `patterns` and `zoo` under
`--models` (where there are any), the corpus of the accuracy run, and kernels that hold
many values at once, so that some of them spill: rings, random webs and butterflies.
Each is compiled by NVRTC for every architecture under its default schedule and a few
others. Kernels fall into two halves by their text; constants of the estimate are fitted
to the first, and `held out` judges the second.

The kernels that need no plan are compiled while models are planned, and each for all
architectures in turn, by as many threads as there are cores: NVRTC runs beside Python.
What was compiled before is read from the folder of compiled kernels, so that a second
run takes little more than planning.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

import numpy as np

from cost_model.catalog import find
from cost_model.device import Device
from cost_model.occupancy import occupancy
from tuner.calibration.corpus import samples
from tuner.calibration.draft import Draft
from tuner.calibration.timing import generated
from tuner.errors import TunerError
from tuner.ir.graph import Graph
from tuner.kernel.errors import CannotLower
from tuner.kernel.lower import lower
from tuner.kernel.schedule import space
from tuner.pipeline import Planner, load
from tuner.plan import GENERATED, Options, Resources, Schedule
from tuner.runtime.nvrtc import compile_cubin

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
RING_SIZES = (8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48)
RING_LEVELS = 4
WEB_SIZES = (8, 12, 16, 24, 32, 40, 56)
WEB_LEVELS = (2, 4)
BUTTERFLY_SIZES = (8, 16, 32, 64)
CROWDED_POINTS = 8192
CROWDED_SCHEDULES = 4
LARGE_BLOCK = 512
LARGEST_MODEL_BYTES = 4 << 20
MOST_TEXT = 200_000
PLAN_STEPS: Final = 1e6
"""Work of the solver for a model: the same kernels on a busy machine, too."""
TOLD_EACH: Final = 100
"""Kernels between two lines about how far it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One kernel under one schedule."""

    name: str
    graph: Graph
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The estimate beside the truth."""

    name: str
    architecture: str
    schedule: dict[str, int]
    kind: str
    estimated: int
    flagged: bool
    is_held_out: bool
    truth: Resources

    @property
    def spills(self) -> bool:
        """Whether the compiler had to use local memory."""
        return self.truth.spill_store_bytes > 0


def planned(folder: Path, device: Device) -> Iterator[tuple[str, Graph]]:
    """Every distinct generated kernel of the models' plans."""
    seen: set[str] = set()
    files = [*folder.glob("patterns/*.onnx"), *folder.glob("zoo/*.onnx")]
    for file in sorted(files):
        if file.stat().st_size > LARGEST_MODEL_BYTES:
            continue
        try:
            model = load(file.read_bytes(), "onnx")
            planner = Planner(
                model=model, device=device, options=Options(), steps=PLAN_STEPS
            )
            choices = planner.solve().partition.choices
        except TunerError as error:
            sys.stderr.write(f"{file.name}: {error}\n")
            continue
        for choice in choices:
            if choice.family not in GENERATED:
                continue
            form = planner.assembler.form(choice)
            if form.fingerprint not in seen:
                seen.add(form.fingerprint)
                yield file.stem, form.graph


def rows(draft: Draft, values: int, points: int) -> list[str]:
    """The rows of one input, as values of their own."""
    x = draft.input(values, points)
    return [
        draft.op("slice", x, starts=(i, 0), steps=(1, 1), sizes=(1, points))
        for i in range(values)
    ]


def joined(draft: Draft, held: Sequence[str], *, reduces: bool) -> Graph:
    """A graph that delivers the greatest of some values, or its sum over a row."""
    total = held[0]
    for value in held[1:]:
        total = draft.op("maximum", total, value)
    if reduces:
        total = draft.op("reduce_sum", total, axes=(1,), keepdims=1)
    return draft.graph(total)


def ring(values: int, points: int, *, reduces: bool) -> Graph:
    """So many values, each of which the next level needs twice: all live at once."""
    draft = Draft()
    held = rows(draft, values, points)
    step = 1
    for _ in range(RING_LEVELS):
        held = [
            draft.op(
                "mul",
                draft.op("add" if i % 2 else "sub", held[i], held[(i + step) % values]),
                draft.number(0.5 + i / 100),
            )
            for i in range(values)
        ]
        step = step * 2 % values or 1
    return joined(draft, held, reduces=reduces)


def web(values: int, levels: int, points: int, *, reduces: bool) -> Graph:
    """Each value joined with a random one of its level: some live long, some do not."""
    rng, draft = random.Random(values * levels), Draft()
    held = rows(draft, values, points)
    for _ in range(levels):
        held = [
            draft.op(
                rng.choice(("add", "mul", "sub", "maximum")), each, rng.choice(held)
            )
            for each in held
        ]
    return joined(draft, held, reduces=reduces)


def butterfly(values: int, points: int, *, reduces: bool) -> Graph:
    """The data flow of a fast Fourier transform: an order that needs few is there."""
    draft = Draft()
    held = rows(draft, values, points)
    step = 1
    while step < values:
        held = [
            draft.op("sub" if i & step else "add", held[i & ~step], held[i | step])
            for i in range(values)
        ]
        step *= 2
    return joined(draft, held, reduces=reduces)


def jobs(folder: Path, device: Device, each: int, rng: random.Random) -> list[Job]:
    """Kernels with their default schedule and `each` others."""
    graphs = [*planned(folder, device)]
    graphs += [(sample.name, sample.graph) for sample in samples()]
    found: list[Job] = []
    for name, graph in graphs:
        try:
            first, *others = space(lower(graph), device)
        except CannotLower:
            continue
        drawn = rng.sample(others, min(each, len(others)))
        found += [
            Job(name=name, graph=graph, schedule=schedule)
            for schedule in (first, *drawn)
        ]
    return found


def crowds() -> Iterator[tuple[str, Graph]]:
    """Graphs that hold many values at once."""
    points = CROWDED_POINTS
    for reduces in (True, False):
        for values in RING_SIZES:
            yield f"ring of {values}", ring(values, points, reduces=reduces)
        for values in WEB_SIZES:
            for levels in WEB_LEVELS:
                graph = web(values, levels, points, reduces=reduces)
                yield f"web of {values}, {levels} levels", graph
        for values in BUTTERFLY_SIZES:
            yield f"butterfly of {values}", butterfly(values, points, reduces=reduces)


def crowded(device: Device, rng: random.Random) -> list[Job]:
    """Kernels near or beyond what a large block leaves to a thread."""
    found: list[Job] = []
    for name, graph in crowds():
        large = [
            schedule
            for schedule in space(lower(graph), device)
            if schedule["threads"] >= LARGE_BLOCK
        ]
        drawn = rng.sample(large, min(CROWDED_SCHEDULES, len(large)))
        found += [Job(name=name, graph=graph, schedule=each) for each in drawn]
    return found


def judge(job: Job, device: Device) -> Judged | None:
    """Compile one kernel and compare."""
    kernel = generated(job.graph, device, job.schedule)
    source = kernel.source
    if source is None or len(source.text) > MOST_TEXT:
        return None
    fit = occupancy(kernel.work, device)
    groups = lower(job.graph).groups
    return Judged(
        name=job.name,
        architecture=device.architecture,
        schedule=job.schedule.as_dict,
        kind=str(groups[0].kind) if groups else "other",
        estimated=fit.registers,
        flagged=fit.spill_bytes > 0,
        is_held_out=int(source.digest[-1], 16) % 2 == 1,
        truth=compile_cubin(source, device.architecture).resources,
    )


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Rank correlation, ties by their mean rank; None where one side has no order."""
    if len(set(left)) < 2 or len(set(right)) < 2:  # noqa: PLR2004
        return None
    return float(np.corrcoef(_ranks(left), _ranks(right))[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    array = np.asarray(values, dtype=np.float64)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: np.ndarray[tuple[int], np.dtype[np.float64]] = last - (counts - 1) / 2
    return means[inverse]


def figures(judged: Sequence[Judged]) -> dict[str, object]:
    """Error, rank correlation, and how well spills are foreseen."""
    wrong = [abs(one.estimated - one.truth.registers) for one in judged]
    spilled = [one for one in judged if one.spills]
    flagged = [one for one in judged if one.flagged]
    both = sum(one.flagged for one in spilled)
    return {
        "kernels": len(judged),
        "median_absolute_error": median(wrong),
        "mean_absolute_error": sum(wrong) / len(wrong),
        "spearman": spearman(
            [one.estimated for one in judged], [one.truth.registers for one in judged]
        ),
        "spilled": len(spilled),
        "spilled_and_flagged": both / len(spilled) if spilled else None,
        "flagged": len(flagged),
        "flagged_and_spilled": both / len(flagged) if flagged else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is compiled; see the command."""

    models: Path
    each: int
    most: int
    seed: int
    threads: int


def judged_kernels(asked: Asked) -> list[Judged]:
    """Every kernel for every architecture; those that crowd the registers first."""
    rng, device = random.Random(asked.seed), find(ARCHITECTURES[0])
    devices = [find(name) for name in ARCHITECTURES]
    start = perf_counter()

    def all_of(job: Job) -> list[Judged | None]:
        return [judge(job, each) for each in devices]

    with ThreadPoolExecutor(asked.threads) as pool:
        full = crowded(device, rng)
        waiting = [pool.submit(all_of, job) for job in full]
        others = jobs(asked.models, device, asked.each, rng)
        others = rng.sample(others, min(len(others), max(0, asked.most - len(full))))
        waiting += [pool.submit(all_of, job) for job in others]
        told = f"{len(full)} crowded and {len(others)} other kernels"
        _tell(f"{told}, planned after {perf_counter() - start:.0f} s")
        found = [one for row in _results(waiting, start) for one in row if one]
    return sorted(found, key=lambda one: ARCHITECTURES.index(one.architecture))


def _results(
    waiting: Sequence[Future[list[Judged | None]]], start: float
) -> Iterator[list[Judged | None]]:
    for done, each in enumerate(waiting, start=1):
        yield each.result()
        if done % TOLD_EACH == 0 or done == len(waiting):
            seconds = perf_counter() - start
            _tell(f"{done} of {len(waiting)} judged after {seconds:.0f} s")


def _tell(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def summary(judged: Sequence[Judged]) -> dict[str, dict[str, object]]:
    """Figures by architecture: of all kernels, of those held out, of each kind."""
    told: dict[str, dict[str, object]] = {}
    for name in ARCHITECTURES:
        found = [one for one in judged if one.architecture == name]
        parts = {name: found, f"{name} held out": [j for j in found if j.is_held_out]}
        for kind in sorted({one.kind for one in found}):
            parts[f"{name} {kind}"] = [one for one in found if one.kind == kind]
        told |= {title: figures(part) for title, part in parts.items() if part}
    return told


def table(told: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """The figures as Markdown."""
    columns = {
        "kernels": "kernels",
        "median error": "median_absolute_error",
        "mean error": "mean_absolute_error",
        "Spearman": "spearman",
        "spill": "spilled",
        "of these flagged": "spilled_and_flagged",
        "flagged": "flagged",
        "of these spill": "flagged_and_spilled",
    }
    yield f"| | {' | '.join(columns)} |"
    yield "|---" * (1 + len(columns)) + "|"
    for title, row in told.items():
        yield f"| {title} | {' | '.join(_shown(row[n]) for n in columns.values())} |"


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return (
        f"{value:.3f}".rstrip("0").rstrip(".")
        if isinstance(value, float)
        else f"{value}"
    )


def _row(one: Judged) -> dict[str, object]:
    return {
        "name": one.name,
        "architecture": one.architecture,
        "schedule": one.schedule,
        "estimated": one.estimated,
        "flagged": one.flagged,
        "held_out": one.is_held_out,
        "registers": one.truth.registers,
        "spill_store_bytes": one.truth.spill_store_bytes,
    }


def main() -> None:
    """Compile everything for every architecture; print the table, write all kernels."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("../shared"))
    parser.add_argument("--each", type=int, default=1, help="schedules drawn a kernel")
    parser.add_argument("--most", type=int, default=500, help="kernels in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=Path("registers.json"))
    given = vars(parser.parse_args())
    output = given.pop("output")
    judged = judged_kernels(Asked(**given))
    told = summary(judged)
    rows = [_row(one) for one in judged]
    output.write_text(json.dumps({"summary": told, "kernels": rows}, indent=1))
    sys.stdout.write("\n".join(table(told)) + "\n")


if __name__ == "__main__":
    main()
