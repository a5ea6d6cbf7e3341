"""Plans the pattern graphs for least traffic and has them judged."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from tuner.frontend.onnx import read_onnx
from tuner.fusion.legality import Limits, Profile
from tuner.fusion.partition import Solution, solve
from tuner.fusion.traffic import traffic
from tuner.fusion.view import homes
from tuner.ir.graph import Graph, Region
from tuner.plan import Choice, Family
from tuner.rewrite import simplify


@cache
def checker(folder: Path) -> ModuleType:
    """The judge that comes with the patterns, as a module."""
    name = "check_traffic"
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def goldens(folder: Path) -> dict[str, Any]:
    """The facts, by graph name."""
    text = (folder / "goldens.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def load(path: Path) -> Graph:
    """A pattern as the planner gets it."""
    graph = read_onnx(path.read_bytes()).graph
    training = "train" in path.stem
    return simplify(graph, training=training).graph


def bytes_price(graph: Graph) -> Callable[[Region, Family], float]:
    """1e-12 seconds a byte moved, and nothing else."""
    return lambda region, family: 1e-12 * traffic(graph, region).total_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One judged plan.

    Attributes:
        moved: bytes that we report.
        judged: bytes that the checker counts.
        faults: rules that the plan breaks.
    """

    name: str
    moved: int
    judged: int
    golden: int
    kernels: int
    golden_kernels: int
    faults: Sequence[str]
    gap: float
    candidates: int
    seconds: float

    @property
    def reached(self) -> bool:
        """Legal, and no byte above the golden."""
        return not self.faults and self.judged == self.golden == self.moved


def kernels_of(judged: Any, graph: Graph, choices: Sequence[Choice]) -> Iterator[Any]:
    """The plan in the judge's words: the user's nodes and tensors."""
    home = homes(graph)
    for choice in choices:
        nodes = {
            origin
            for name in choice.region.nodes
            for origin in graph.by_name[name].origins
            if origin in judged.ops
        }
        outputs = {_known(judged, graph, home, t) for t in choice.region.outputs}
        yield checker_kernel(tuple(sorted(nodes)), tuple(sorted(outputs)))


def checker_kernel(nodes: Sequence[str], outputs: Sequence[str]) -> Any:
    """A kernel as the judge has it."""
    return sys.modules["check_traffic"].Kernel(nodes, outputs)


def _known(judged: Any, graph: Graph, home: Any, tensor: str) -> str:
    if tensor in judged.tensors:
        return tensor
    names = [n for n, h in home.items() if h == tensor and n in judged.tensors]
    return names[0] if names else tensor


def plan(path: Path, profile: Profile = "reference") -> tuple[Graph, Solution]:
    """The plan of least traffic."""
    graph = load(path)
    price = bytes_price(graph)
    limits = Limits.none()
    return graph, solve(
        graph, price, profile=profile, limits=limits, time_limit_seconds=300
    )


def judge(path: Path) -> Verdict:
    """Plan one pattern and judge the plan."""
    folder = path.parent
    module = checker(folder)
    started = time.perf_counter()
    graph, solution = plan(path)
    seconds = time.perf_counter() - started
    judged = module.Graph.load(path)
    choices = solution.partition.choices
    report = module.check_plan(judged, list(kernels_of(judged, graph, choices)))
    golden = goldens(folder)[path.stem]
    moved = sum(traffic(graph, c.region).total_bytes for c in choices)
    return Verdict(
        name=path.stem,
        moved=moved,
        judged=report.traffic,
        golden=golden["optimal_traffic_bytes"],
        kernels=len(choices),
        golden_kernels=golden["optimal_kernels"],
        faults=tuple(report.faults),
        gap=solution.partition.gap,
        candidates=solution.partition.candidate_space.candidates,
        seconds=seconds,
    )
