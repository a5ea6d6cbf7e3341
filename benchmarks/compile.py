"""What compiling a model's kernels takes: cold, with the cache, and how it grows.

    python -m benchmarks.compile [MODELS] [--only NAME ...] [--layers 1,2,4,8,16]
        [--rounds 3] [--json FILE]

Models of a folder, and decoders of more and more equal layers (those of
`benchmarks.scale`). Their plans' distinct generated kernels are compiled by the two
compilers that are there: the OpenCL device's for a plan on this CPU, NVRTC for one on
an H100. Each compilation is a process of its own that has opened its compiler before
the clock starts: `cold` with an empty folder, `warm` with what the process before has
left there. Of the rounds the least time counts; kernels are compiled one after the
other.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.scale import transformer
from benchmarks.zoo import models_in
from tuner.errors import TunerError
from tuner.model import Model, load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import GENERATED, Options, Plan, Source
from tuner.runtime import nvrtc
from tuner.runtime.canary import canary
from tuner.runtime.opencl import OpenCLBackend

TARGETS = {"opencl": "cpu", "nvrtc": "sm_90"}
"""What a compiler's kernels are planned for."""
LAYERS = "1,2,4,8,16"
ROUNDS = 3
TIME_LIMIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """One row.

    Attributes:
        kernels: generated kernels of the plan.
        distinct: of these, texts that are compiled.
        text_bytes: of all distinct texts.
        cold_seconds: to compile them all with an empty folder.
        warm_seconds: the same when another process has compiled them before.
    """

    model: str
    compiler: str
    kernels: int
    distinct: int
    text_bytes: int
    cold_seconds: float
    warm_seconds: float


def compile_opencl(sources: Sequence[Source], folder: Path) -> float:
    """Seconds in which the OpenCL device has every kernel ready to be launched."""
    backend = OpenCLBackend(folder=lambda: folder)
    memory = backend.allocate(1)
    backend.bind(canary("opencl"), [memory] * len(canary("opencl").arguments))
    start = perf_counter()
    for source in sources:
        backend.bind(source, [memory] * len(source.arguments))
    return perf_counter() - start


def compile_nvrtc(sources: Sequence[Source], folder: Path) -> float:
    """Seconds in which NVRTC has machine code of every kernel."""
    architecture = TARGETS["nvrtc"]
    nvrtc.compile_cubin(canary("cuda"), architecture, folder=lambda: folder)
    start = perf_counter()
    for source in sources:
        nvrtc.compile_cubin(source, architecture, folder=lambda: folder)
    return perf_counter() - start


COMPILERS: dict[str, Callable[[Sequence[Source], Path], float]] = {
    "opencl": compile_opencl,
    "nvrtc": compile_nvrtc,
}
LANGUAGES = {"opencl": "opencl", "nvrtc": "cuda"}


def planned(model: Model, target: str) -> Plan:
    """A plan by the model of costs; nothing is compiled for it."""
    planner = Planner(
        model=model,
        device=resolve_target(target),
        options=Options(),
        time_limit_seconds=TIME_LIMIT_SECONDS,
    )
    return planner.plan(planner.solve())


def distinct(plan: Plan, language: str) -> tuple[Source, ...]:
    """Texts of a plan's generated kernels, each once, in order of their launch."""
    kernels = (kernel for kernel in plan.kernels if kernel.family in GENERATED)
    sources = (s for k in kernels for s in k.sources if s.language == language)
    return tuple({source.digest: source for source in sources}.values())


def row(name: str, model: Model, compiler: str, rounds: int = ROUNDS) -> Compiled:
    """Compile a model's kernels in processes of their own."""
    plan = planned(model, TARGETS[compiler])
    sources = distinct(plan, LANGUAGES[compiler])
    times = [_cold_and_warm(compiler, sources) for _ in range(rounds)]
    return Compiled(
        model=name,
        compiler=compiler,
        kernels=sum(kernel.family in GENERATED for kernel in plan.kernels),
        distinct=len(sources),
        text_bytes=sum(len(source.text) for source in sources),
        cold_seconds=min(cold for cold, _ in times),
        warm_seconds=min(warm for _, warm in times),
    )


def _cold_and_warm(compiler: str, sources: Sequence[Source]) -> tuple[float, float]:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:

        def once() -> float:
            with ProcessPoolExecutor(1, mp_context=context) as pool:
                place = Path(folder) / "compiled"
                return pool.submit(COMPILERS[compiler], sources, place).result()

        return once(), once()


def available() -> tuple[str, ...]:
    """The compilers that are there."""
    found = []
    try:
        OpenCLBackend(folder=lambda: None)
    except TunerError:
        pass
    else:
        found.append("opencl")
    if TARGETS["nvrtc"] in nvrtc.available_architectures():
        found.append("nvrtc")
    return tuple(found)


def table(rows: Iterator[Compiled]) -> Iterator[str]:
    """The rows as Markdown, each as soon as it is there."""
    yield (
        "| model | compiler | kernels | distinct | KB of text | cold s | warm s "
        "| cold ms a kernel | warm ms a kernel | cold / warm |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        each = 1e3 / max(r.distinct, 1)
        ratio = f"{r.cold_seconds / r.warm_seconds:.0f}" if r.distinct else "none"
        yield (
            f"| {r.model} | {r.compiler} | {r.kernels} | {r.distinct} "
            f"| {r.text_bytes / 1e3:.0f} "
            f"| {r.cold_seconds:.2f} | {r.warm_seconds:.3f} "
            f"| {each * r.cold_seconds:.0f} | {each * r.warm_seconds:.1f} | {ratio} |"
        )


def models(options: argparse.Namespace) -> Iterator[tuple[str, Model]]:
    """What is compiled, in order: files, then decoders by their layers."""
    if options.models is not None:
        for path in models_in(options.models, options.only):
            yield path.stem, load(path.read_bytes())
    for count in filter(None, options.layers.split(",")):
        model = load(transformer(int(count)).SerializeToString())
        yield f"decoder of {count} layers", model


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compile",
        description="What compiling a model's kernels takes.",
    )
    parser.add_argument("models", type=Path, nargs="?", help="folder of ONNX files")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--layers", default=LAYERS, help="of decoders, by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", type=Path, help="write the rows here, too")
    options = parser.parse_args(arguments)
    compilers = available()
    if not compilers:
        parser.error("neither an OpenCL device nor NVRTC is here: see README.md")
    rows: list[Compiled] = []

    def kept() -> Iterator[Compiled]:
        for name, model in models(options):
            for compiler in compilers:
                rows.append(row(name, model, compiler, options.rounds))
                yield rows[-1]

    try:
        for line in table(kept()):
            print(line, flush=True)
    except ValueError as error:
        parser.error(str(error))
    if options.json:
        found = [asdict(each) for each in rows]
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
