"""Micro-benchmarks in our own kernel language: in each of them one number decides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tuner.calibration.draft import Draft
from tuner.ir.types import DType
from tuner.plan import Schedule

if TYPE_CHECKING:
    from cost_model.device import Device
    from tuner.ir.graph import Graph

LAUNCH: Final = "launch"
COPY: Final = "copy"
"""Groups that are fitted together; all others are named after the number they give."""

_STEPS: Final = 64
"""Steps of an arithmetic kernel, so that its traffic does not count."""
_CHAINS: Final = 4
"""Independent chains of these steps: one alone would time how long an operation takes,
and not how many a pipe takes at once, as the points of a real kernel let it."""
_COPY_CACHES: Final = 2
"""Copies go up to so many times the last cache."""
_MOST_COPIED: Final = 1 << 30
_COMPANY: Final = 1 << 18
"""Elements of the kernel beside a library call: a megabyte read and one written, about
what lies between two products of a transformer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Micro:
    """One micro-benchmark.

    Attributes:
        group: number of the device that it gives, or `LAUNCH` or `COPY`.
        name: what it does, and how large it is.
        schedule: None takes the default.
        in_library: whether the library runs it.
        company: what is launched by turns with it; see `MeasureRequest`.
    """

    group: str
    name: str
    graph: Graph
    schedule: Schedule | None = None
    in_library: bool = False
    company: Graph | None = None


def micro_benchmarks(device: Device) -> tuple[Micro, ...]:
    """All of them, sized for a device, in the order in which they are fitted."""
    return (
        *_launches(device),
        *_copies(device),
        *_arithmetic(device),
        *_accesses(),
        *_exchanges(device),
        *_balanced(device),
        *_library(),
    )


def _launches(device: Device) -> Iterator[Micro]:
    """Blocks that do as good as nothing."""
    threads = device.subgroup_threads
    schedule = Schedule.of(threads=threads, vector=1, items=1, repeat=1)
    for blocks in (1, device.multiprocessors, 64, 512, 4096, 32768):
        graph = _map("neg", blocks * threads)
        yield Micro(
            group=LAUNCH, name=f"{blocks} blocks", graph=graph, schedule=schedule
        )


def _copies(device: Device) -> Iterator[Micro]:
    """From a few KiB, through all caches, to main memory; half-octaves in between."""
    most = min(_COPY_CACHES * device.l2_bytes, _MOST_COPIED)
    elements, turn = 1024, 0
    while 8 * elements <= most:
        yield Micro(
            group=COPY, name=f"{8 * elements} bytes", graph=_map("neg", elements)
        )
        elements += elements // 2 if turn % 2 == 0 else elements // 3
        turn += 1


def _map(op: str, elements: int) -> Graph:
    draft = Draft()
    return draft.graph(draft.op(op, draft.input(elements)))


def _arithmetic(device: Device) -> Iterator[Micro]:
    """Long chains on tensors that the nearest cache holds."""
    for points in (2048 * device.multiprocessors, 16384 * device.multiprocessors):
        yield _rate("fma32", f"multiply and add, {points}", _polynomial(points))
        yield _rate("fma64", f"doubles, {points}", _products(points, DType.F64))
        yield _rate("integer", f"whole numbers, {points}", _products(points, DType.I32))
        for op in ("exp", "tanh", "sqrt", "reciprocal"):
            yield _rate("special", f"{op}, {points}", _special(points, op))
        yield _rate("convert", f"to i32 and back, {points}", _conversions(points))


def _rate(pipe: str, name: str, graph: Graph) -> Micro:
    return Micro(group=f"operations_per_second.{pipe}", name=name, graph=graph)


def _polynomial(points: int, steps: int = _STEPS) -> Graph:
    draft = Draft()
    x = draft.input(points)
    chains = [x] * min(_CHAINS, steps)
    for step in range(steps):
        place = step % len(chains)
        scaled = draft.op("mul", chains[place], x)
        constant = draft.number(0.5 + 1.0 / (step + 1))
        chains[place] = draft.op("add", scaled, constant)
    return draft.graph(_sum(draft, chains))


def _products(points: int, dtype: DType) -> Graph:
    draft = Draft()
    inputs = [draft.input(points, dtype=dtype) for _ in range(_CHAINS)]
    chains = list(inputs)
    for step in range(_STEPS):
        place = step % _CHAINS
        scaled = draft.op("mul", chains[place], inputs[place])
        chains[place] = draft.op("add", scaled, inputs[place - 1])
    return draft.graph(_sum(draft, chains))


def _sum(draft: Draft, values: Sequence[str]) -> str:
    total = values[0]
    for value in values[1:]:
        total = draft.op("add", total, value)
    return total


def _special(points: int, op: str) -> Graph:
    """Chains that stay finite: exponentials of what is negative, roots of abs."""
    draft = Draft()

    def step(value: str) -> str:
        positive = draft.op("abs", value)
        return draft.op(op, draft.op("neg", positive) if op == "exp" else positive)

    return draft.graph(_side_by_side(draft, points, step))


def _conversions(points: int) -> Graph:
    draft = Draft()

    def step(value: str) -> str:
        whole = draft.op("cast", value, to=DType.I32)
        return draft.op("cast", draft.op("add", whole, whole), to=DType.F32)

    return draft.graph(_side_by_side(draft, points, step))


def _side_by_side(draft: Draft, points: int, step: Callable[[str], str]) -> str:
    """Chains that begin with different values, added up in the end."""
    x = draft.input(points)
    chains = [draft.op("mul", x, draft.number(1.0 + n)) for n in range(_CHAINS)]
    for count in range(_STEPS // 8):
        chains[count % _CHAINS] = step(chains[count % _CHAINS])
    return _sum(draft, chains)


def _accesses() -> Iterator[Micro]:
    """Reads that use a few bytes of each sector: transposed, and with a stride."""
    for rows, columns in ((256, 384), (1024, 640), (1500, 2048), (3072, 2304)):
        draft = Draft()
        turned = draft.op("transpose", draft.input(rows, columns), perm=(1, 0))
        yield _scattered(f"transpose {rows} x {columns}", draft.graph(turned))
    for stride, points in ((4, 1 << 18), (16, 1 << 18), (16, 1 << 20)):
        draft = Draft()
        x = draft.input(points * stride)
        picked = draft.op("slice", x, starts=(0,), steps=(stride,), sizes=(points,))
        yield _scattered(f"every {stride}th of {points}", draft.graph(picked))


def _scattered(name: str, graph: Graph) -> Micro:
    return Micro(group="scattered_share", name=name, graph=graph)


def _exchanges(device: Device) -> Iterator[Micro]:
    """Sums of short rows: by one sub-group, then by several that meet at a barrier."""
    width = device.subgroup_threads
    for group, lanes in (("shuffle_seconds", width), ("barrier_seconds", 4 * width)):
        for rows in (64 * device.multiprocessors, 1024 * device.multiprocessors):
            draft = Draft()
            x = draft.input(rows, lanes)
            total = draft.op("reduce_sum", x, axes=(1,), keepdims=0)
            yield Micro(
                group=group,
                name=f"{rows} rows of {lanes}",
                graph=draft.graph(total),
                schedule=Schedule.of(
                    threads=lanes,
                    lanes=lanes,
                    vector=1,
                    repeat=1,
                    persistent=1,
                    unroll=1,
                ),
            )


def _balanced(device: Device) -> Iterator[Micro]:
    """About as much arithmetic as traffic: how much of the one hides the other."""
    points = max(1 << 20, device.l2_bytes // 16)
    for steps in (4, 8, 16, 32):
        graph = _polynomial(points, steps)
        yield Micro(group="overlap", name=f"{steps} steps on {points}", graph=graph)


def _library() -> Iterator[Micro]:
    """Calls of the library: many operators, one, large ones, and matrix products.

    Last those that share the processors with a kernel of ours.
    """
    for group, count in (
        ("library_operator_seconds", 12),
        ("library_launch_seconds", 1),
    ):
        draft = Draft()
        value = draft.input(4096)
        for _ in range(count):
            value = draft.op("tanh", value)
        yield _called(group, f"{count} operators", draft.graph(value))
    yield _called("library_memory_efficiency", "12 sums of 1048576", _sums(1 << 20))
    for size in (256, 512, 768):
        yield _called("library_efficiency", f"product of {size}", _product(size))
    company = _map("neg", _COMPANY)
    for name, graph in (
        ("12 sums of 65536", _sums(1 << 16)),
        ("product of 256", _product(256)),
        ("product of 384", _product(384)),
    ):
        micro = _called("library_wake_seconds", f"{name} and a kernel", graph)
        yield replace(micro, company=company)


def _sums(elements: int) -> Graph:
    draft = Draft()
    value, other = draft.input(elements), draft.input(elements)
    for _ in range(12):
        value = draft.op("add", value, other)
    return draft.graph(value)


def _product(size: int) -> Graph:
    draft = Draft()
    made = draft.op("matmul", draft.input(size, size), draft.input(size, size))
    return draft.graph(made)


def _called(group: str, name: str, graph: Graph) -> Micro:
    return Micro(group=group, name=name, graph=graph, in_library=True)
