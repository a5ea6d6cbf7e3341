#!/usr/bin/env python3
"""How few runs find the best schedule: record whole spaces once, replay at will.

    python benchmarks/search_quality.py record benchmarks/data/spaces-cpu-1.json
    python benchmarks/search_quality.py record benchmarks/data/spaces-cpu-2.json
    python benchmarks/search_quality.py replay benchmarks/data/spaces-cpu-1.json \
        benchmarks/data/spaces-cpu-2.json
    python benchmarks/search_quality.py learn benchmarks/data/spaces-cpu-1.json \
        benchmarks/data/spaces-cpu-2.json

Recording measures every schedule of every kernel below, verified: every power of two
of every knob that is legal for the device, which is more than a tuning run would try.
The fastest are then run again, in turns, and count by their median, since the least of
hundreds of noisy times is nobody's time. It takes minutes for each kernel; `--minutes`
ends it in time, and the same command goes on where it stopped. The machine must be
quiet: a schedule whose runs are disturbed again and again is left out, and tried again
by the next call. With `--rivals` what another recording found fast is run as often, so
that no schedule is judged by a single run that happened to be slow.

Replaying compares random search, Optuna's default TPE, the study of a tuning run, and
what knowing the first recording whole would give: the first recording is what a search
sees, the second, made an hour later, is what counts. With `--repriced` the search has
the defaults and prices of this version, so that a change of the cost model shows
without measuring again. What the study knows of other kernels is learned for each space
from all others of the first recording, never from the space itself.

Learning writes what a tuning run knows of other kernels (`tuner.search.experience`); it
is to be called again when the cost model or the generated code has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import platform
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final

from onnx import parser as onnx_parser

from tuner.assembly import kernel_sources
from tuner.ir.graph import Region
from tuner.kernel.lower import lower
from tuner.kernel.mapping import map_groups
from tuner.kernel.schedule import default as default_schedule
from tuner.kernel.schedule import is_legal, regime, space
from tuner.model import Model, load
from tuner.pipeline import Planner, plan_key, resolve_target
from tuner.plan import GENERATED, Choice, Family, Options, Schedule
from tuner.pricing import predict_nest
from tuner.runtime.runner import Runner
from tuner.search import experience
from tuner.search.experience import Experience, Lesson
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cost_model.device import Device
    from tuner.search.records import Json

KERNELS: Final = {
    "matmul-256x256x256": (
        "float[256,256] X, float[256,256] W",
        "Y = MatMul(X, W)",
        "[256,256]",
    ),
    "matmul-bias-relu-128x512x384": (
        "float[128,512] X, float[512,384] W, float[384] B",
        "A = MatMul(X, W)  C = Add(A, B)  Y = Relu(C)",
        "[128,384]",
    ),
    "batched-matmul-8x64x64x64": (
        "float[8,64,64] X, float[8,64,64] W",
        "Y = MatMul(X, W)",
        "[8,64,64]",
    ),
    "conv-relu-32x28x28": (
        "float[1,32,28,28] X, float[32,32,3,3] W",
        "A = Conv<pads=[1,1,1,1]>(X, W)  Y = Relu(A)",
        "[1,32,28,28]",
    ),
    "matmul-64x1024x1024": (
        "float[64,1024] X, float[1024,1024] W",
        "Y = MatMul(X, W)",
        "[64,1024]",
    ),
    "batched-matmul-12x128x64x128": (
        "float[12,128,64] X, float[12,64,128] W",
        "Y = MatMul(X, W)",
        "[12,128,128]",
    ),
    "conv-1x1-64x56x56": (
        "float[1,64,56,56] X, float[64,64,1,1] W",
        "Y = Conv(X, W)",
        "[1,64,56,56]",
    ),
    "conv-stride-64x56x56": (
        "float[1,64,56,56] X, float[128,64,3,3] W",
        "Y = Conv<pads=[1,1,1,1], strides=[2,2]>(X, W)",
        "[1,128,28,28]",
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
    "column-softmax-512x1024": (
        "float[512,1024] X",
        "Y = Softmax<axis=0>(X)",
        "[512,1024]",
    ),
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
    "log-softmax-1024x1000": (
        "float[1024,1000] X",
        "Y = LogSoftmax<axis=-1>(X)",
        "[1024,1000]",
    ),
}
"""Kernels by name: inputs, operators, shape of the result. Those whose schedules differ
most come first, so that a recording that has to end early has the spaces that count."""
TRIES: Final = 5
LEADERS: Final = 32
"""Fastest schedules of a space that are run again: the least of many noisy times is
lower than any schedule is fast."""
RUNS: Final = 4
"""How often each of them is run, in turns; the median counts."""
COMPLETE: Final = 0.97
"""Share of a space that must have run undisturbed, for the space to count."""
WRITE_SECONDS: Final = 20.0
"""How much measuring a killed recording may lose."""
COMPARED: Final = 8
"""Schedules of a space whose programs are compared with those that were recorded."""
EXPERIENCE: Final = Path(experience.__file__).with_name(experience.FILE)
FLAGS: Final = ("persistent", "stream", "tensor")
"""Knobs that are no powers of two."""
FINER: Final[Mapping[str, tuple[int, ...]]] = {
    "unroll": (1, 2, 4, 8, 16),
    "rows": (2, 4, 8),
    "columns": (1, 2, 4),
    "depth": (8, 16, 32, 64),
}
"""Values beside those that a tuning run would try."""
VECTORS: Final = (1, 2, 4)
"""Likewise, for kernels that keep no row."""
TILE_LANES: Final = (8, 16, 32)
"""Likewise, for contractions."""
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
    recording.add_argument("--minutes", type=float, help="end after so long")
    recording.add_argument(
        "--rivals",
        type=Path,
        help="another recording, whose fastest schedules are run as often",
    )
    recording.set_defaults(run=record)
    replaying = commands.add_parser("replay", help="compare searches on recordings")
    replaying.add_argument("first", type=Path)
    replaying.add_argument("second", type=Path, nargs="?")
    replaying.add_argument("--seeds", type=int, default=10)
    replaying.add_argument("--all", action="store_true", help="small spaces too")
    replaying.add_argument(
        "--repriced",
        action="store_true",
        help="with the defaults and prices of this version, not those of the recording",
    )
    replaying.add_argument(
        "--untaught", action="store_true", help="without what other kernels teach"
    )
    replaying.set_defaults(run=replay)
    learning = commands.add_parser("learn", help="write what recorded kernels teach")
    learning.add_argument("recordings", type=Path, nargs="+")
    learning.add_argument("--out", type=Path, default=EXPERIENCE)
    learning.set_defaults(run=learn)
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
    return _state(planner, choice)


def kernel_named(planner: Planner, name: str) -> KernelState | None:
    """The kernel of this fingerprint, though no plan may use it any more."""
    family = Family(name.partition(":")[0])
    nodes = planner.model.graph.nodes
    for size in range(len(nodes), 0, -1):
        for first in range(len(nodes) - size + 1):
            run = nodes[first : first + size]
            made = [output for node in run for output in node.outputs]
            for outputs in itertools.chain(
                itertools.combinations(made, 1), itertools.combinations(made, 2)
            ):
                region = Region(nodes=tuple(n.name for n in run), outputs=outputs)
                choice = Choice(region=region, family=family, seconds=0.0)
                if planner.assembler.form(choice).fingerprint == name:
                    return _state(planner, choice)
    return None


def text_of(state: KernelState, schedule: Schedule, device: Device) -> str:
    """A name of the program that is generated for a device under a schedule."""
    language = "cuda" if device.kind == "gpu" else "opencl"
    sources = kernel_sources(state.form, schedule)
    (source,) = (each for each in sources if each.language == language)
    launched = [(each.text, each.grid, each.block) for each in (*source.before, source)]
    return hashlib.sha256(repr(launched).encode()).hexdigest()[:12]


def has_same_code(state: KernelState, found: Space, device: Device) -> bool:
    """Whether this version generates what was recorded, as far as that is known."""
    known = list(found.texts)
    some = known[:: max(1, len(known) // COMPARED)]
    return all(text_of(state, each, device) == found.texts[each] for each in some)


def _state(planner: Planner, choice: Choice) -> KernelState:
    form = planner.assembler.form(choice)
    return new_state(form, choice, planner.device, planner.options, seed=0)


def fine_space(state: KernelState, device: Device) -> tuple[Schedule, ...]:
    """Every legal schedule whose knobs are powers of two; the default comes first.

    Schedules that lead to the same mapping are listed once.
    """
    nest = lower(state.form.graph)
    found: dict[object, Schedule] = {}
    for schedule in (*space(nest, device), *_grid(space(nest, device))):
        if is_legal(nest, schedule, device):
            found.setdefault(map_groups(nest, schedule), schedule)
    return tuple(found.values())


def _grid(tried: tuple[Schedule, ...]) -> Iterator[Schedule]:
    """All combinations of the powers of two between the least and the greatest."""
    knobs = {name: {s[name] for s in tried} for name, _ in tried[0].knobs}
    values = {
        name: sorted(seen if name in FLAGS else seen | _between(name, seen))
        for name, seen in knobs.items()
    }
    if "persistent" not in values and "depth" not in values:
        values["vector"] = sorted({*values["vector"], *VECTORS})
    if "depth" in values:
        values["lanes"] = sorted({*values["lanes"], *TILE_LANES})
    for chosen in itertools.product(*values.values()):
        schedule = dict(zip(values, chosen, strict=True))
        whole_teams = schedule["threads"] % schedule.get("lanes", 1) == 0
        keeps_unrolled = schedule.get("persistent") and schedule.get("unroll", 1) > 1
        if whole_teams and not keeps_unrolled:
            yield Schedule.of(**schedule)


def _between(name: str, seen: set[int]) -> set[int]:
    low, high = min(seen), max(seen)
    powers = {2**n for n in range(high.bit_length()) if low <= 2**n <= high}
    return powers | set(FINER.get(name, ()))


def _generated(planner: Planner) -> Any:
    """A price under which whole generated kernels win."""

    def price(region: Any, family: Any) -> float:
        seconds = planner.price(region, family)
        return seconds if family in GENERATED else 1.0 + seconds

    return price


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


def _rivals(path: Path | None) -> dict[str, Space]:
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
        recording = Recording(out=given.out, facts=facts, rivals=_rivals(given.rivals))
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
    for schedule in _waiting(recording, name, schedules):
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


def _waiting(
    recording: Recording, name: str, schedules: Mapping[Schedule, float]
) -> Iterator[Schedule]:
    """What is to run next: every schedule once, then the fastest in turns."""
    rows = recording.rows[name]
    yield from [schedule for schedule in schedules if schedule not in rows]
    if len(rows) < len(schedules):
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


def replay(given: argparse.Namespace) -> None:
    """Compare the searches and print the tables."""
    stored = json.loads(given.first.read_text())
    spaces = spaces_from(stored)
    device = _target_of(stored)
    kernels = {each.name: _kernel(each, device) for each in spaces}
    if given.repriced:
        spaces = tuple(_repriced(each, device, kernels[each.name]) for each in spaces)
    judged = json.loads((given.second or given.first).read_text())
    truths = spaces_from(judged)
    twice = {each.name for each in truths if _is_whole(each, judged.get("sizes", {}))}
    stated = stored.get("sizes", {})
    taught = spaces if given.untaught else _taught(spaces, kernels)
    whole = [
        each
        for each in _in_both(taught, truths)
        if given.all or (_is_whole(each, stated) and each.name in twice)
    ]
    if len(whole) < len(spaces):
        say(f"{len(spaces) - len(whole)} spaces are not complete and left out")
    changed = sum(kernel is None for kernel in kernels.values())
    if changed:
        say(f"{changed} spaces are of other code, and keep their prices")
    worthy = [each for each in whole if given.all or each.is_worthy]
    varied = sum(each.is_worthy for each in spaces)
    say(f"{varied} of {len(spaces)} spaces are large and varied enough")
    if worthy:
        _tell(compare(worthy, truths, seeds=given.seeds), worthy, given.seeds)


def _tell(rows: Sequence[Json], spaces: Sequence[Space], seeds: int) -> None:
    """Print how the methods did, and how ours did on each space."""
    say(f"{'method':8}" + "".join(f"{n:>6} trials {'near':>5}" for n in CHECKPOINTS))
    for method in METHODS:
        cells = []
        for count in CHECKPOINTS:
            mine = [r for r in rows if (r["method"], r["trials"]) == (method, count)]
            share = sum(row["share"] for row in mine) / len(mine)
            near = sum(row["near_best"] for row in mine) / len(mine)
            cells.append(f"{share:12.1%} {near:>6.0%}")
        say(f"{method:8}" + "".join(cells))
    say(
        f"share of the way from median to best, mean; near: within {NEAR:.0%} of the "
        f"best; {seeds} seeds each; knowing: the fastest of the first recording\n"
    )
    found = {(r["space"], r["method"], r["trials"]): r["excess"] for r in rows}
    say(f"{'slower than the best, ours':32}" + "".join(f"{n:>8}" for n in CHECKPOINTS))
    for name in (each.name for each in spaces):
        cells = [f"{found[name, 'ours', count]:8.1%}" for count in CHECKPOINTS]
        known = found[name, "knowing", max(CHECKPOINTS)]
        say(f"{name:32}" + "".join(cells) + f"  knowing {known:.1%}")


def learn(given: argparse.Namespace) -> None:
    """Write what recorded kernels teach, under the prices of this version."""
    lessons: dict[str, list[Lesson]] = {}
    for path in given.recordings:
        stored = json.loads(path.read_text())
        device = _target_of(stored)
        for each in spaces_from(stored):
            kernel = _kernel(each, device)
            if kernel is not None and _is_whole(each, stored["sizes"]):
                lesson = _lesson(_repriced(each, device, kernel), kernel)
                lessons.setdefault(device.kind, []).append(lesson)
            else:
                say(f"{path}: {each.name} is left out: not complete, or of other code")
    known = experience.read(given.out.read_text()) if given.out.exists() else {}
    known |= {kind: Experience.learned(found) for kind, found in lessons.items()}
    given.out.write_text(experience.write(known))
    for kind, found in lessons.items():
        say(f"{given.out}: {kind} learned from {len(found)} recorded spaces")


def _lesson(found: Space, kernel: KernelState | None) -> Lesson:
    return Lesson(
        regime="" if kernel is None else regime(lower(kernel.form.graph)),
        seconds=found.seconds,
        predicted=found.predicted,
    )


def _taught(
    spaces: Sequence[Space], kernels: Mapping[str, KernelState | None]
) -> list[Space]:
    """Spaces with what all others teach of each: of its code, priced as it is."""
    lessons = {each.name: _lesson(each, kernels[each.name]) for each in spaces}
    found = []
    for each in spaces:
        is_old = kernels[each.name] is None
        others = [
            lesson
            for name, lesson in lessons.items()
            if name != each.name and (kernels[name] is None) == is_old
        ]
        known = Experience.learned(others)
        learned = known.factors(lessons[each.name].regime, tuple(each.seconds))
        found.append(replace(each, learned=learned))
    return found


def _target_of(stored: Mapping[str, Any]) -> Device:
    """The device of the catalogue that a recording was made for."""
    return resolve_target(stored["device"].get("target", {}).get("id", "cpu"))


def _kernel(found: Space, device: Device) -> KernelState | None:
    """The recorded kernel; None where this version has none, or other code for it."""
    if found.name not in KERNELS:
        return None
    planner = Planner(model=model_of(found.name), device=device, options=Options())
    state = kernel_named(planner, found.kernel)
    is_same = state is not None and has_same_code(state, found, device)
    return state if is_same else None


def _in_both(spaces: Sequence[Space], truths: Sequence[Space]) -> list[Space]:
    """The spaces that both recordings have, with the schedules that ran in both."""
    known = {each.name: each.seconds for each in truths}
    return [
        replace(
            each,
            seconds={s: v for s, v in each.seconds.items() if s in known[each.name]},
            predicted={
                s: v for s, v in each.predicted.items() if s in known[each.name]
            },
        )
        for each in spaces
        if each.name in known
    ]


def _repriced(found: Space, device: Device, kernel: KernelState | None) -> Space:
    """The same measured times under today's default and today's cost model.

    A kernel with other code than this version's stays as it was recorded.
    """
    if kernel is None:
        return found
    nest = lower(kernel.form.graph)
    predicted = {
        schedule: predict_nest(nest, schedule, device, Options()).estimate.seconds
        for schedule in found.seconds
    }
    first = default_schedule(nest, device)
    order = sorted(found.seconds, key=lambda schedule: schedule != first)
    return replace(
        found,
        seconds={schedule: found.seconds[schedule] for schedule in order},
        predicted=predicted,
    )


def _is_whole(found: Space, sizes: Mapping[str, int]) -> bool:
    """Whether no more than a few disturbed schedules are missing."""
    return len(found.seconds) >= COMPLETE * sizes.get(found.name, 0)


if __name__ == "__main__":
    sys.exit(main())
