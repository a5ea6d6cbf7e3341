#!/usr/bin/env python3
"""How few runs find the best schedule: record whole spaces once, replay at will.

    python benchmarks/search_quality.py record benchmarks/data/spaces-cpu-1.json
    python benchmarks/search_quality.py record benchmarks/data/spaces-cpu-2.json
    python benchmarks/search_quality.py replay benchmarks/data/spaces-cpu-1.json \
        benchmarks/data/spaces-cpu-2.json

Recording measures every schedule of every kernel below, verified, and takes minutes
for each. The machine must be quiet: a schedule whose runs are disturbed again and
again is left out, and counted. Replaying
compares random search, Optuna's default TPE and the study of a tuning run: the first
recording is what a search sees, the second, made an hour later, is what counts.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from onnx import parser as onnx_parser

from tuner.model import Model, load
from tuner.pipeline import Planner, plan_key, resolve_target
from tuner.plan import GENERATED, Choice, Options, Schedule
from tuner.runtime.runner import Runner
from tuner.search.kernels import KernelState, new_state
from tuner.search.measuring import Measurer, describe
from tuner.search.quality import (
    CHECKPOINTS,
    METHODS,
    NEAR,
    Space,
    compare,
    spaces_from,
    spaces_json,
)

KERNELS: Final = {
    "softmax-4096x128": ("float[4096,128] X", "Y = Softmax<axis=-1>(X)", "[4096,128]"),
    "softmax-256x2048": ("float[256,2048] X", "Y = Softmax<axis=-1>(X)", "[256,2048]"),
    "layer-norm-1024x768": (
        "float[1024,768] X, float[1024,768] R, float[768] S, float[768] B",
        "A = Add(X, R)  Y = LayerNormalization<axis=-1>(A, S, B)",
        "[1024,768]",
    ),
    "layer-norm-128x4096": (
        "float[128,4096] X, float[4096] S, float[4096] B",
        "Y = LayerNormalization<axis=-1>(X, S, B)",
        "[128,4096]",
    ),
    "rms-norm-1024x1024": (
        "float[1024,1024] X, float[1024] S",
        "Y = RMSNormalization<axis=-1>(X, S)",
        "[1024,1024]",
    ),
    "bias-gelu-1024x3072": (
        "float[1024,3072] X, float[3072] B",
        "A = Add(X, B)  Y = Gelu(A)",
        "[1024,3072]",
    ),
    "swiglu-1024x4096": (
        "float[1024,4096] X, float[1024,4096] G",
        "S = Sigmoid(G)  A = Mul(G, S)  Y = Mul(A, X)",
        "[1024,4096]",
    ),
    "transpose-2048x1024": (
        "float[2048,1024] X",
        "T = Transpose<perm=[1,0]>(X)  Y = Tanh(T)",
        "[1024,2048]",
    ),
    "scale-shift-relu-8x256x56x56": (
        "float[8,256,56,56] X, float[256,1,1] S, float[256,1,1] B",
        "A = Mul(X, S)  C = Add(A, B)  Y = Relu(C)",
        "[8,256,56,56]",
    ),
    "row-sums-2048x2048": (
        "float[2048,2048] X",
        "A = Mul(X, X)  Y = ReduceSum<keepdims=1>(A, rows)",
        "[2048,1]",
    ),
    "column-sums-2048x1024": (
        "float[2048,1024] X",
        "A = Abs(X)  Y = ReduceSum<keepdims=1>(A, columns)",
        "[1,1024]",
    ),
    "channel-means-8x256x28x28": (
        "float[8,256,28,28] X",
        "A = Relu(X)  Y = ReduceMean<keepdims=1>(A, planes)",
        "[8,256,1,1]",
    ),
    "log-softmax-1024x1000": (
        "float[1024,1000] X",
        "Y = LogSoftmax<axis=-1>(X)",
        "[1024,1000]",
    ),
}
"""Kernels by name: inputs, operators, shape of the result."""
TRIES: Final = 5
_AXES: Final = "<int64[1] rows = {1}, int64[1] columns = {0}, int64[2] planes = {2, 3}>"


def main(arguments: list[str] | None = None) -> int:
    """Run one of the two commands."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="measure whole schedule spaces")
    recording.add_argument("out", type=Path)
    recording.add_argument("--device", default="cpu")
    recording.add_argument("--target", default="cpu", help="device of the catalogue")
    recording.add_argument("--only", action="append", help="name of a kernel")
    recording.add_argument("--most", type=int, help="schedules of each kernel, at most")
    recording.set_defaults(run=record)
    replaying = commands.add_parser("replay", help="compare searches on recordings")
    replaying.add_argument("first", type=Path)
    replaying.add_argument("second", type=Path, nargs="?")
    replaying.add_argument("--seeds", type=int, default=10)
    replaying.add_argument("--all", action="store_true", help="small spaces too")
    replaying.set_defaults(run=replay)
    given = parser.parse_args(arguments)
    given.run(given)
    return 0


def say(text: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def model_of(name: str) -> Model:
    """The kernel's model."""
    inputs, body, shape = KERNELS[name]
    text = (
        f'<ir_version: 10, opset_import: ["":23]>\n'
        f"g ({inputs}) => (float{shape} Y) {_AXES} {{ {body} }}"
    )
    return load(onnx_parser.parse_model(text).SerializeToString())


def kernel_of(planner: Planner) -> KernelState:
    """The generated kernel that computes most of the model."""

    def size(choice: Choice) -> int:
        return len(choice.region.nodes) if choice.family in GENERATED else 0

    choice = max(planner.solve(_generated(planner)).partition.choices, key=size)
    form = planner.assembler.form(choice)
    return new_state(form, choice, planner.device, planner.options, seed=0)


def _generated(planner: Planner) -> Any:
    """A price under which whole generated kernels win."""

    def price(region: Any, family: Any) -> float:
        seconds = planner.price(region, family)
        return seconds if family in GENERATED else 1.0 + seconds

    return price


def record(given: argparse.Namespace) -> None:
    """Measure every schedule of the chosen kernels and write the recording."""
    device = resolve_target(given.target)
    spaces = []
    with Runner(given.device) as runner:
        for name in given.only or KERNELS:
            model = model_of(name)
            planner = Planner(model=model, device=device, options=Options())
            state = kernel_of(planner)
            measurer = Measurer(
                model=model,
                options=planner.options,
                language="cuda" if device.kind == "gpu" else "opencl",
                planned=plan_key(model, device, planner.options).toolchain,
                seed=0,
                clock=perf_counter,
            )
            space, disturbed = _recorded(name, state, measurer, runner, given.most)
            if space.seconds:
                spaces.append(space)
            say(_described(space, disturbed))
        facts = {
            **describe(runner, {}),
            "target": {"id": device.id, "digest": device.digest},
            "processor": platform.processor() or platform.machine(),
        }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(spaces_json(spaces, facts), indent=0)
    given.out.write_text(f"{text}\n")


def _recorded(
    name: str,
    state: KernelState,
    measurer: Measurer,
    runner: Runner,
    most: int | None,
) -> tuple[Space, int]:
    """A space, and how many of its schedules were disturbed to the end."""
    seconds, predicted, disturbed = {}, {}, 0
    known = state.study.predicted
    for schedule in state.study.space[:most]:
        result = _quiet(state, schedule, measurer, runner)
        if result is None:
            disturbed += 1
            continue
        told = result["seconds"]
        seconds[schedule] = math.inf if told is None else told
        predicted[schedule] = known[schedule]
    found = Space(name=name, kernel=state.name, seconds=seconds, predicted=predicted)
    return found, disturbed


def _quiet(
    state: KernelState, schedule: Schedule, measurer: Measurer, runner: Runner
) -> dict[str, Any] | None:
    """An undisturbed run of a schedule; None if there is none to be had."""
    for _ in range(TRIES):
        result = measurer.kernel(state, schedule, runner, timed=True)
        if not result["contended"]:
            return result
    return None


def _described(space: Space, disturbed: int) -> str:
    if not space.seconds:
        return f"{space.name}: every run was disturbed"
    default = space.seconds[space.default] / space.best_seconds
    spread = space.median_seconds / space.best_seconds
    return (
        f"{space.name}: {len(space.seconds)} schedules, best "
        f"{space.best_seconds * 1e6:.0f} us, median {spread:.2f} times, default "
        f"{default:.2f} times that, {disturbed} disturbed"
    )


def replay(given: argparse.Namespace) -> None:
    """Compare the searches and print the tables."""
    spaces = spaces_from(json.loads(given.first.read_text()))
    second = given.second or given.first
    truths = spaces_from(json.loads(second.read_text()))
    worthy = [space for space in spaces if given.all or space.is_worthy]
    varied = sum(space.is_worthy for space in spaces)
    say(f"{varied} of {len(spaces)} spaces are large and varied enough")
    if not worthy:
        return
    rows = compare(worthy, truths, seeds=given.seeds)
    say(f"{'method':8}" + "".join(f"{n:>6} trials {'near':>5}" for n in CHECKPOINTS))
    for method in METHODS:
        cells = []
        for count in CHECKPOINTS:
            mine = [
                row for row in rows if (row["method"], row["trials"]) == (method, count)
            ]
            share = sum(row["share"] for row in mine) / len(mine)
            near = sum(row["near_best"] for row in mine) / len(mine)
            cells.append(f"{share:12.1%} {near:>6.0%}")
        say(f"{method:8}" + "".join(cells))
    say(
        f"share of the way from median to best, mean; near: within {NEAR:.0%} of the "
        f"best; {given.seeds} seeds each"
    )


if __name__ == "__main__":
    sys.exit(main())
