"""Does this machine run our kernels? ``python -m tuner.selftest --device cuda``.

Needs a source tree, NumPy, onnx and the device's own binding (CuPy or PyOpenCL), and
nothing else. The report is written again after every stage, so that a machine that
hangs or is taken away leaves what was found so far.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from cost_model.catalog import find
from tuner.errors import TunerError
from tuner.ir.graph import Graph, Node
from tuner.ir.interpreter import evaluate
from tuner.ir.ops import OPS
from tuner.ir.types import Array, DType, TensorType
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.plan import Language, Measurement, Source
from tuner.runtime import nvrtc
from tuner.runtime.backend import Bytes
from tuner.runtime.bench import Bench
from tuner.runtime.canary import canary
from tuner.runtime.null import NullBackend
from tuner.runtime.requests import MeasureRequest
from tuner.runtime.runner import Runner

OK: Final = 0
FAILED: Final = 1
UNAVAILABLE: Final = 5
WRONG: Final = 6
OPTIONAL: Final = ("onnxruntime", "pyopencl", "cupy", "torch", "jax")
COPY_BYTES: Final = 64 << 20

Measure = Callable[[MeasureRequest], Measurement]
Nodes = Sequence[tuple[str, str, Sequence[str], Mapping[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What one stage found."""

    name: str
    ok: bool
    seconds: float
    found: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A kernel to verify and time.

    Attributes:
        graph: what it computes.
        source: in the device's language.
        moved_bytes: bytes that it reads and writes, each once.
    """

    name: str
    graph: Graph
    source: Source
    moved_bytes: int


def _graph(
    nodes: Nodes, inputs: Mapping[str, TensorType], literals: Mapping[str, float]
) -> Graph:
    types = dict(inputs)
    types.update({n: TensorType(dtype=DType.F32, shape=()) for n in literals})
    made = []
    for out, op, operands, attributes in nodes:
        infer = OPS[op].infer
        assert infer is not None
        types[out] = infer([types[name] for name in operands], attributes)[0]
        made.append(
            Node(
                name=f"n_{out}",
                op=op,
                inputs=tuple(operands),
                outputs=(out,),
                attributes=attributes,
            )
        )
    return Graph(
        nodes=tuple(made),
        inputs=tuple(inputs),
        constants={n: np.array(v, np.float32) for n, v in literals.items()},
        outputs=(made[-1].outputs[0],),
        types=types,
    )


def _affine() -> Graph:
    """What the canary computes: y = 2 x + 1."""
    return _graph(
        [("d", "mul", ["x", "two"], {}), ("y", "add", ["d", "one"], {})],
        {"x": TensorType(dtype=DType.F32, shape=(1024,))},
        {"two": 2.0, "one": 1.0},
    )


def _swish(rows: int, columns: int) -> Graph:
    """A pointwise kernel: (x + bias) sigmoid(x + bias)."""
    return _graph(
        [
            ("b", "add", ["x", "bias"], {}),
            ("s", "sigmoid", ["b"], {}),
            ("y", "mul", ["b", "s"], {}),
        ],
        {
            "x": TensorType(dtype=DType.F32, shape=(rows, columns)),
            "bias": TensorType(dtype=DType.F32, shape=(columns,)),
        },
        {},
    )


def _softmax(rows: int, columns: int) -> Graph:
    """A row-reduction kernel."""
    along = {"axes": (1,), "keepdims": 1}
    return _graph(
        [
            ("m", "reduce_max", ["x"], along),
            ("d", "sub", ["x", "m"], {}),
            ("e", "exp", ["d"], {}),
            ("s", "reduce_sum", ["e"], along),
            ("y", "div", ["e", "s"], {}),
        ],
        {"x": TensorType(dtype=DType.F32, shape=(rows, columns))},
        {},
    )


def _copy(size_bytes: int) -> Graph:
    """Reads and writes every byte once (a copy with the sign turned)."""
    kind = TensorType(dtype=DType.F32, shape=(size_bytes // 4,))
    return _graph([("y", "neg", ["x"], {})], {"x": kind}, {})


def _moved(graph: Graph) -> int:
    return sum(graph.types[name].bytes for name in (*graph.inputs, *graph.outputs))


def subjects(language: Language, copy_bytes: int) -> tuple[Subject, ...]:
    """The kernels of the test: one written by hand, the others generated."""
    target = find("sm_90" if language == "cuda" else "cpu")
    dialect = CUDA if language == "cuda" else OPENCL
    raw = _affine()
    found = [
        Subject(
            name="raw kernel",
            graph=raw,
            source=canary(language),
            moved_bytes=_moved(raw),
        )
    ]
    generated = {
        "pointwise kernel": _swish(1024, 1000),
        "row kernel": _softmax(1024, 1000),
        "copy": _copy(copy_bytes),
    }
    for name, graph in generated.items():
        nest = lower(graph)
        source = render(nest, default(nest, target), dialect)
        found.append(
            Subject(name=name, graph=graph, source=source, moved_bytes=_moved(graph))
        )
    return tuple(found)


def measured(subject: Subject, measure: Measure, seconds: float) -> Mapping[str, Any]:
    """Verify and time a kernel.

    Args:
        subject: the kernel.
        measure: on the device.
        seconds: after this it counts as hung.
    """
    request = MeasureRequest(
        graph=subject.graph,
        source=subject.source,
        budget_seconds=min(0.5, seconds / 8),
        deadline_seconds=max(seconds, 1.0),
    )
    found = measure(request)
    if found.failure:
        return {"failure": found.failure, "message": found.message}
    return {
        "seconds": found.seconds,
        "low_seconds": found.low_seconds,
        "high_seconds": found.high_seconds,
        "samples": len(found.samples),
        "contended": found.contended,
        "max_rel_error": found.max_rel_error,
        "bytes_per_second": subject.moved_bytes / found.seconds,
        "grid": subject.source.grid,
        "block": subject.source.block,
    }


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def environment() -> Mapping[str, Any]:
    """What runs this, and which optional packages it could use."""
    present = [name for name in OPTIONAL if _has(name)]
    return {
        "python": platform.python_version(),
        "machine": platform.platform(),
        "numpy": np.__version__,
        "optional": present,
    }


def compiled(sources: Sequence[Source]) -> Mapping[str, Any]:
    """Registers and spills of the CUDA sources on every known architecture."""
    report: dict[str, Any] = {}
    for architecture in nvrtc.available_architectures():
        results = [nvrtc.compile_cubin(source, architecture) for source in sources]
        report[architecture] = {
            "registers": [r.resources.registers for r in results],
            "spill_bytes": sum(r.resources.spill_store_bytes for r in results),
        }
    return report


class SelfTest:
    """The stages in order, and the report that grows with them."""

    def __init__(
        self,
        device: str,
        *,
        budget_seconds: float,
        report: Path | None,
        say: Callable[[str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare a test.

        Args:
            device: cuda, cpu or null.
            budget_seconds: stages that would begin later are left out.
            report: where to write the JSON report, after every stage.
            say: takes one line per stage.
            clock: seconds.
        """
        self._device = device
        self._report = report
        self._say = say
        self._clock = clock
        self._end = clock() + budget_seconds
        self._stages: list[Stage] = []

    def run(self, copy_bytes: int = COPY_BYTES) -> int:
        """Run all stages; the exit code."""
        self._stage("environment", environment)
        language: Language = "cuda" if self._device.startswith("cuda") else "opencl"
        kernels = subjects(language, copy_bytes)
        with ExitStack() as stack:
            opened = self._stage("device", lambda: self._open(stack, kernels))
            if not opened.ok:
                return UNAVAILABLE
            self._kernels(kernels)
        if language == "cuda":
            sources = [subject.source for subject in kernels]
            self._stage("compile", lambda: compiled(sources))
        return self._code()

    def _kernels(self, kernels: Sequence[Subject]) -> None:
        for subject in kernels:
            left = self._end - self._clock()
            if left <= 0:
                self._say(f"{subject.name}: left out, the budget is spent")
                continue
            self._stage(subject.name, partial(measured, subject, self._measure, left))

    def _open(self, stack: ExitStack, kernels: Sequence[Subject]) -> Mapping[str, Any]:
        """Open the device in a child process; its canary sings there."""
        if self._device.partition(":")[0] == "null":
            backend = NullBackend({s.source.digest: _behaviour(s) for s in kernels})
            self._measure: Measure = Bench(backend).measure
            return {"name": backend.name, "toolchain": backend.toolchain}
        runner = stack.enter_context(Runner(self._device))
        self._measure = runner.measure
        return {"name": runner.device_name, "toolchain": runner.toolchain}

    def _stage(self, name: str, work: Callable[[], Mapping[str, Any]]) -> Stage:
        start = self._clock()
        try:
            found = work()
        except TunerError as error:
            found = {"failure": error.code, "message": str(error)}
        stage = Stage(
            name=name,
            ok="failure" not in found,
            seconds=self._clock() - start,
            found=found,
        )
        self._stages.append(stage)
        self._write()
        self._say(_line(stage))
        return stage

    def _write(self) -> None:
        if self._report is None:
            return
        content = {
            "device": self._device,
            "stages": [asdict(stage) for stage in self._stages],
        }
        draft = self._report.with_suffix(f"{self._report.suffix}.part")
        draft.write_text(json.dumps(content, indent=2, default=str) + "\n")
        draft.replace(self._report)

    def _code(self) -> int:
        failures = {s.found.get("failure") for s in self._stages if not s.ok}
        if not failures:
            return OK
        return WRONG if failures == {"correctness"} else FAILED


def _behaviour(subject: Subject) -> Callable[[Sequence[Bytes]], None]:
    """What the null device does in a kernel's place: the reference."""

    def run(arguments: Sequence[Bytes]) -> None:
        types = subject.graph.types
        places = dict(zip(subject.source.arguments, arguments, strict=True))
        arrays: dict[str, Array] = {
            argument.tensor: place[: types[argument.tensor].bytes]
            .view(types[argument.tensor].dtype.numpy)
            .reshape(types[argument.tensor].static_shape)
            for argument, place in places.items()
        }
        for name, value in evaluate(subject.graph, arrays).items():
            arrays[name][...] = value

    return run


def _line(stage: Stage) -> str:
    if not stage.ok:
        return f"{stage.name}: FAILED: {stage.found.get('message')}"
    if "bytes_per_second" in stage.found:
        micros = stage.found["seconds"] * 1e6
        rate = stage.found["bytes_per_second"] / 1e9
        return f"{stage.name}: {micros:.1f} us, {rate:.1f} GB/s"
    name = stage.found.get("name", "ok")
    return f"{stage.name}: {name} ({stage.seconds:.2f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tuner.selftest", description=__doc__
    )
    parser.add_argument("--device", default="cpu", help="cuda, cpu or null")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds")
    parser.add_argument("--report", type=Path, help="JSON file, grows with each stage")
    parser.add_argument(
        "--copy-bytes", type=int, default=COPY_BYTES, help="size of the timed copy"
    )
    asked = parser.parse_args(arguments)
    test = SelfTest(
        asked.device, budget_seconds=asked.budget, report=asked.report, say=_say
    )
    return test.run(asked.copy_bytes)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
