"""What one arena saves, and the most that writing over operands could save beside it.

    python -m benchmarks.arena MODELS [--only NAME ...] [--target NAME ...]

For every model of a folder and every target, of the tensors that pass between
kernels: `apart` if each had memory of its own, `arena` as planned, `alive` the most
that is alive at once, which no layout of this launch order goes below, and `over` what
would be alive if every generated kernel wrote each of its outputs over an operand of as
many bytes that it is the last to read. `over` is a floor: whether such a kernel may do
so is not asked. `spared` is what the arena lies above it, of all device memory.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compile import planned
from benchmarks.zoo import TARGETS, models_in
from tuner.errors import TunerError
from tuner.fusion.memory import ALIGNMENT_BYTES
from tuner.model import load
from tuner.plan import GENERATED, Buffer, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Bytes of the tensors that pass between the kernels of a plan.

    Attributes:
        apart: each with memory of its own.
        arena: as planned.
        alive: most at once.
        over: most at once if outputs of generated kernels took operands' places.
        resident: what the graph is given, holds and delivers, which is never in it.
    """

    apart: int
    arena: int
    alive: int
    over: int
    resident: int


def held(plan: Plan) -> Held:
    """What a plan's arena holds."""
    buffers = plan.memory.buffers
    steps = range(len(plan.kernels))
    alive = [_bytes(b for b in buffers if b.first <= step <= b.last) for step in steps]
    spared = [_spared(plan, step) for step in steps]
    left = (all_ - less for all_, less in zip(alive, spared, strict=True))
    exact = max(
        (sum(b.bytes for b in buffers if b.first <= s <= b.last) for s in steps),
        default=0,
    )
    return Held(
        apart=_bytes(buffers),
        arena=plan.memory.arena_bytes,
        alive=max(alive, default=0),
        over=max(left, default=0),
        resident=plan.memory.peak_bytes - exact,
    )


def _spared(plan: Plan, step: int) -> int:
    """Bytes of a kernel's outputs that fit where operands lie that die there."""
    if plan.kernels[step].family not in GENERATED:
        return 0
    buffers = plan.memory.buffers
    written = Counter(_aligned(b) for b in buffers if b.first == step < b.last)
    dying = Counter(_aligned(b) for b in buffers if b.first < step == b.last)
    return sum(size * min(n, dying[size]) for size, n in written.items())


def _bytes(buffers: Iterator[Buffer] | Sequence[Buffer]) -> int:
    return sum(map(_aligned, buffers))


def _aligned(buffer: Buffer) -> int:
    return -(-buffer.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def table(rows: Iterator[tuple[str, str, Held]]) -> Iterator[str]:
    """The rows as Markdown, each as soon as it is there, and what they come to."""
    yield (
        "| model | target | apart KB | arena KB | alive KB | over KB | all KB "
        "| spared |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    count = lower = 0
    ratios = []
    for model, target, found in rows:
        total = found.resident + found.arena
        spared = max(0, found.arena - found.over) / total if total else 0.0
        sizes = (found.apart, found.arena, found.alive, found.over, total)
        words = " | ".join(f"{size / 1e3:.0f}" for size in sizes)
        yield f"| {model} | {target} | {words} | {spared:.1%} |"
        count += 1
        lower += spared > 0
        ratios += [found.arena / found.apart] if found.apart else []
    share = math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) if ratios else 1.0
    yield ""
    yield (
        f"{count} plans; the arena takes {share:.2f} of the bytes apart (geometric mean"
        f" of {len(ratios)}); writing over operands could spare something in {lower}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arena")
    parser.add_argument("models", type=Path, help="folder of models")
    parser.add_argument("--only", nargs="+", default=(), help="names of models")
    parser.add_argument("--target", nargs="+", default=TARGETS, help="devices")
    options = parser.parse_args(arguments)

    def rows() -> Iterator[tuple[str, str, Held]]:
        for path in models_in(options.models, options.only):
            try:
                model = load(path.read_bytes())
                for target in options.target:
                    yield path.stem, target, held(planned(model, target))
            except TunerError as error:
                print(f"{path.stem}: {error}", file=sys.stderr)

    try:
        for line in table(rows()):
            print(line, flush=True)
    except ValueError as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
