"""How long import and plan take, model by model, in a warm process.

    python -m benchmarks.planning MODELS [--only NAME ...] [--target sm_90]
        [--repeats 5] [--tvm PYTHON] [--json FILE]

Libraries are loaded and one model is planned before anything is timed. Each model is
then read and planned anew several times, with a planner of its own that knows nothing
of the times before; the median counts. Processor seconds stand beside: on a machine
that does other work they say more. With `--tvm`, an interpreter that has `apache-tvm`
and `onnx` imports, legalises, annotates and fuses the same files.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

from benchmarks.baselines import real_groups
from benchmarks.zoo import models_in
from cost_model.device import Device
from tuner.errors import TunerError
from tuner.model import load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Options, Plan

REPEATS: Final = 5
"""How often each model is read and planned."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model; times are medians, in seconds.

    Attributes:
        import_seconds: from bytes to the canonical graph.
        plan_seconds: from there to the plan, with the texts of its kernels.
        seconds: of both; the median of the sums.
        processor_seconds: what processors spent on both.
    """

    model: str
    target: str
    import_seconds: float
    plan_seconds: float
    seconds: float
    processor_seconds: float
    kernels: int
    gap: float
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Time:
    """One time, in seconds."""

    imported: float
    planned: float
    processor: float


def row(name: str, data: bytes, device: Device, repeats: int) -> Row:
    """Read and plan a model so many times.

    Raises:
        TunerError: it cannot be read or planned.
    """
    times = []
    for _ in range(repeats):
        time, plan = _timed(data, device)
        times.append(time)
    space = plan.partition.candidate_space
    return Row(
        model=name,
        target=device.id,
        import_seconds=median(t.imported for t in times),
        plan_seconds=median(t.planned for t in times),
        seconds=median(t.imported + t.planned for t in times),
        processor_seconds=median(t.processor for t in times),
        kernels=len(plan.kernels),
        gap=plan.partition.gap,
        complete=space.complete,
    )


def _timed(data: bytes, device: Device) -> tuple[_Time, Plan]:
    gc.collect()  # what the time before left is not this one's
    started, used = perf_counter(), process_time()
    model = load(data)
    imported = perf_counter()
    planner = Planner(model=model, device=device, options=Options())
    plan = planner.plan(planner.solve())
    ended, used = perf_counter(), process_time() - used
    time = _Time(imported=imported - started, planned=ended - imported, processor=used)
    return time, plan


def table(rows: Sequence[Row], real: Json | None = None) -> Iterator[str]:
    """The rows as Markdown, with the median and the worst of all models.

    Args:
        rows: one for each model.
        real: what `real_groups` says of the same models.
    """
    head = "| model | import s | plan s | both s | processor s | kernels | gap |"
    yield head + (" TVM s | ratio |" if real else "")
    yield "|---|---|---|---|---|---|---|" + ("---|---|" if real else "")
    for r in rows:
        gap = f"{r.gap:.1e}" if r.complete else f"{r.gap:.1e} (incomplete)"
        told = (
            f"| {r.model} | {r.import_seconds:.3f} | {r.plan_seconds:.3f} "
            f"| {r.seconds:.3f} | {r.processor_seconds:.3f} | {r.kernels} | {gap} |"
        )
        yield told + (_beside(r, real["models"][r.model]) if real else "")
    worst = max(rows, key=lambda r: r.seconds)
    yield (
        f"\nmedian {median(r.seconds for r in rows):.3f} s, "
        f"worst {worst.seconds:.3f} s ({worst.model})"
    )


def _beside(ours: Row, found: Json) -> str:
    """The cells about the real TVM."""
    if "error" in found:
        return f" cannot: {found['error'][:60]} | |"
    other = sum(found["seconds"].values())
    return f" {other:.3f} | {ours.seconds / other:.2f} |"


def measured(paths: Sequence[Path], device: Device, repeats: int) -> Iterator[Row]:
    """A row for each model that can be planned; others are told.

    The smallest file is planned once beforehand: it pays for what is loaded late.
    """
    first = min(paths, key=lambda path: path.stat().st_size)
    with suppress(TunerError):  # told below
        row(first.stem, first.read_bytes(), device, 1)
    for path in paths:
        try:
            yield row(path.stem, path.read_bytes(), device, repeats)
        except TunerError as error:
            print(f"{path.stem}: {error}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="folder of ONNX files, or one file")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="some models of a folder"
    )
    parser.add_argument("--target", default="sm_90", help="device of the catalogue")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="of each model")
    parser.add_argument("--tvm", help="interpreter that has apache-tvm and onnx")
    parser.add_argument("--json", type=Path, help="write the rows here, too")
    options = parser.parse_args(arguments)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: at least 1")
    try:
        paths = models_in(options.models, options.only)
        device = resolve_target(options.target)
    except (ValueError, TunerError) as error:
        parser.error(str(error))
    rows = list(measured(paths, device, options.repeats))
    if not rows:
        raise SystemExit("no model could be planned")
    told: dict[str, Any] = {"rows": [asdict(row) for row in rows]}
    if options.tvm:
        told["tvm"] = real_groups(options.tvm, paths)
    print(f"\n### {device.id}\n", *table(rows, told.get("tvm")), sep="\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
