"""Plan transformers of more and more layers, and print what it takes.

    python -m benchmarks.scale [--layers 19,38,76,152] [--target sm_90] [--json FILE]

Each size is planned in a process of its own, so that its peak memory is its own. The
layers are those of a decoder: norm, attention with a causal mask, norm, and two
products with a GELU between them, exported the way PyTorch does it (norm and softmax as
one node, the GELU as five). `x more` is the processor time of the solver over that of
the row before, `Msteps` the work that it counts; the other times are those of a clock.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tuner.model import load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Options

LAYERS = "19,38,76,152"
WIDTH, HEADS, LENGTH = 768, 12, 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One row. Seconds of a clock, except where the name says processor."""

    layers: int
    nodes: int
    candidates: int
    kernels: int
    import_seconds: float
    solve_seconds: float
    solve_processor_seconds: float
    plan_seconds: float
    gap: float
    complete: bool
    peak_bytes: int
    steps: float


class _Writer:
    """Nodes of a model, and the weights that they ask for."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, tuple[int, ...]] = {}

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        """A node with one result; its name is the node's."""
        name = f"{op.lower()}_{len(self.nodes)}"
        made = helper.make_node(op, list(inputs), [name], name=name, **attributes)
        self.nodes.append(made)
        return name

    def weight(self, *shape: int) -> str:
        """A weight of its own."""
        name = f"weight_{len(self.weights)}"
        self.weights[name] = shape
        return name

    def linear(self, at: str, inputs: int, outputs: int) -> str:
        """A product with a weight, and a bias."""
        product = self.node("MatMul", at, self.weight(inputs, outputs))
        return self.node("Add", product, self.weight(outputs))

    def norm(self, at: str) -> str:
        """A layer normalisation."""
        gain, shift = self.weight(WIDTH), self.weight(WIDTH)
        return self.node("LayerNormalization", at, gain, shift, axis=-1, epsilon=1e-5)

    def heads(self, at: str, order: Sequence[int]) -> str:
        """The parts of each head, as PyTorch moves them."""
        parts = self.node("Reshape", at, "by_head")
        return self.node("Transpose", parts, perm=list(order))

    def layer(self, at: str) -> str:
        """A layer of a decoder."""
        inner = self.norm(at)
        query, key, value = (self.linear(inner, WIDTH, WIDTH) for _ in range(3))
        scores = self.node(
            "MatMul", self.heads(query, (0, 2, 1, 3)), self.heads(key, (0, 2, 3, 1))
        )
        masked = self.node("Add", self.node("Mul", scores, "scale"), "mask")
        weights = self.node("Softmax", masked, axis=-1)
        mixed = self.node("MatMul", weights, self.heads(value, (0, 2, 1, 3)))
        joined = self.node("Transpose", mixed, perm=[0, 2, 1, 3])
        flat = self.node("Reshape", joined, "whole")
        at = self.node("Add", at, self.linear(flat, WIDTH, WIDTH))
        hidden = self.linear(self.norm(at), WIDTH, 4 * WIDTH)
        grown = self.node("Erf", self.node("Mul", hidden, "root"))
        gate = self.node("Mul", self.node("Add", grown, "one"), "half")
        wide = self.node("Mul", hidden, gate)
        return self.node("Add", at, self.linear(wide, 4 * WIDTH, WIDTH))


def transformer(layers: int) -> ModelProto:
    """A decoder of so many layers; its weights are inputs that are named as such."""
    writer = _Writer()
    at = "x"
    for _ in range(layers):
        at = writer.layer(at)
    mask = np.triu(np.full((LENGTH, LENGTH), -1e9, dtype=np.float32), 1)
    held = {
        "by_head": np.array([1, LENGTH, HEADS, WIDTH // HEADS]),
        "whole": np.array([1, LENGTH, WIDTH]),
        "scale": np.array((WIDTH // HEADS) ** -0.5, dtype=np.float32),
        "mask": mask,
        "root": np.array(0.5**0.5, dtype=np.float32),
        "one": np.array(1, dtype=np.float32),
        "half": np.array(0.5, dtype=np.float32),
    }
    given = {"x": (1, LENGTH, WIDTH), **writer.weights}
    graph = helper.make_graph(
        writer.nodes,
        "transformer",
        [_value(name, shape) for name, shape in given.items()],
        [_value(at, (1, LENGTH, WIDTH))],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    helper.set_model_props(model, {"weights": json.dumps(list(writer.weights))})
    return model


def _value(name: str, shape: Sequence[int]) -> object:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def plan_row(layers: int, target: str) -> Planned:
    """Import and plan one size in this process."""
    started = perf_counter()
    model = load(transformer(layers).SerializeToString())
    imported, worked = perf_counter(), process_time()
    planner = Planner(model=model, device=resolve_target(target), options=Options())
    solution = planner.solve()
    solved, worked = perf_counter(), process_time() - worked
    planner.plan(solution)
    ended = perf_counter()
    partition = solution.partition
    return Planned(
        layers=layers,
        nodes=len(model.graph.nodes),
        candidates=partition.candidate_space.candidates,
        kernels=len(partition.choices),
        import_seconds=imported - started,
        solve_seconds=solved - imported,
        solve_processor_seconds=worked,
        plan_seconds=ended - imported,
        gap=partition.gap,
        complete=partition.candidate_space.complete,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        steps=planner.partitioner.spent,
    )


def rows_of(layers: Sequence[int], target: str) -> Iterator[Planned]:
    """Each size in a new process."""
    context = multiprocessing.get_context("spawn")
    for count in layers:
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            yield pool.submit(plan_row, count, target).result()


def table(rows: Iterator[Planned]) -> Iterator[str]:
    """The rows as Markdown, each as soon as it is there."""
    yield (
        "| layers | nodes | candidates | kernels | import s | solve s "
        "| processor s | x more | Msteps | plan s | gap | peak MB |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    before: Planned | None = None
    for r in rows:
        used = r.solve_processor_seconds
        more = f"{used / before.solve_processor_seconds:.2f}" if before else ""
        gap = f"{r.gap:.1e}" if r.complete else f"{r.gap:.1e} (incomplete)"
        yield (
            f"| {r.layers} | {r.nodes} | {r.candidates} | {r.kernels} "
            f"| {r.import_seconds:.2f} | {r.solve_seconds:.2f} | {used:.2f} | {more} "
            f"| {r.steps / 1e6:.2f} | {r.plan_seconds:.2f} | {gap} "
            f"| {r.peak_bytes / 1e6:.0f} |"
        )
        before = r


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", default=LAYERS, help="layer counts, by commas")
    parser.add_argument("--target", default="sm_90", help="device to plan for")
    parser.add_argument("--json", type=Path, help="write the rows here, too")
    options = parser.parse_args(arguments)
    rows: list[Planned] = []

    def kept() -> Iterator[Planned]:
        counts = [int(count) for count in options.layers.split(",")]
        for row in rows_of(counts, options.target):
            rows.append(row)
            yield row

    for line in table(kept()):
        print(line, flush=True)
    if options.json:
        found = [asdict(row) for row in rows]
        options.json.write_text(json.dumps(found, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
