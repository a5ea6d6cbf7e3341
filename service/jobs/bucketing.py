"""Piecewise plans: one partition for each range of sizes of the symbolic dimensions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from cost_model.device import Device
from service.jobs.planning import Planner as Reader
from service.jobs.planning import Prepared, Question
from tuner import document
from tuner.assembly import limits_for
from tuner.compilation import compiler_for
from tuner.errors import InvalidOption
from tuner.frontend.onnx import read_onnx
from tuner.frontend.wire import read_json
from tuner.fusion.buckets import (
    MARGIN,
    MOST_BUCKETS,
    MOST_DIMENSIONS,
    Bucket,
    Pieces,
    Point,
    piecewise,
)
from tuner.fusion.effort import STEPS
from tuner.fusion.partition import Solution
from tuner.fusion.transfer import Grouping, grouping, transferred
from tuner.ir.fingerprint import canonicalize
from tuner.ir.graph import Graph
from tuner.keys import PlanKey, plan_key
from tuner.pipeline import Planner

SCHEMA: Final = "fuseplan.piecewise/1"
MOST_STEPS: Final = 3 * STEPS
"""Work after which no further point is solved where no time limit is given."""
READING_STEPS: Final = 200_000
"""Work of reading a model at one point."""

Range = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A model for which sizes are ranges.

    Attributes:
        question: the model, target and options; without the ranged dimensions.
        ranges: least and greatest size of each ranged dimension, by its name.
    """

    question: Question
    ranges: Mapping[str, Range]


@dataclass(frozen=True, kw_only=True)
class Piecewise:
    """A piecewise plan, and how to make what it stores.

    Attributes:
        key: identity of the question: symbolic graph, ranges, target, options.
        names: the ranged dimensions, in order.
        pieces: the buckets.
        bodies: stored plan of each bucket, and the question's key at its sizes.
        names_of: canonical id -> names, at the sizes of each bucket.
        seconds: what planning took.
    """

    key: PlanKey
    names: tuple[str, ...]
    pieces: Pieces
    bodies: tuple[tuple[str, dict[str, Any]], ...]
    names_of: tuple[Mapping[str, tuple[str, ...]], ...]
    seconds: float

    @property
    def as_json(self) -> dict[str, Any]:
        """What the command line prints, and what a lookup reads."""
        pieces = self.pieces
        return {
            "schema": SCHEMA,
            "plan_key": self.key.key,
            "target": dict(self.key.target),
            "dimensions": {
                name: [
                    min(bucket.low[axis] for bucket in pieces.buckets),
                    max(bucket.high[axis] for bucket in pieces.buckets),
                ]
                for axis, name in enumerate(self.names)
            },
            "breakpoints": {
                name: list(pieces.breakpoints(axis))
                for axis, name in enumerate(self.names)
            },
            "margin": pieces.margin,
            "complete": pieces.complete,
            "points_solved": pieces.solved,
            "buckets": [
                self._bucket(bucket, *stored)
                for bucket, stored in zip(pieces.buckets, self.bodies, strict=True)
            ],
            "timing": {"planning_seconds": self.seconds},
        }

    def _bucket(self, bucket: Bucket, key: str, body: dict[str, Any]) -> dict[str, Any]:
        rows = zip(self.names, bucket.low, bucket.high, bucket.at, strict=True)
        ranges, sizes = {}, {}
        for name, low, high, at in rows:
            ranges[name], sizes[name] = [low, high], at
        return {
            "ranges": ranges,
            "planned_at": sizes,
            "plan_key": key,
            "digest": document.digest(document.encode(body)),
            "kernels": len(body["kernels"]),
            "objective_seconds": body["objective_seconds"],
            "gap": body["gap"],
            "largest_loss": bucket.loss if math.isfinite(bucket.loss) else None,
            "points_solved": bucket.points,
            "plan": body,
        }


@dataclass(kw_only=True)
class Points:
    """Solves points of a range, and prices the partition of one at another."""

    asked: Asked
    reader: Reader
    device: Device
    time_limit_seconds: float | None
    names: tuple[str, ...]
    _planners: dict[Point, tuple[Prepared, Planner, Solution]] = field(
        default_factory=dict
    )
    _losses: dict[tuple[Hashable, Point], float] = field(default_factory=dict)

    def prepared(self, point: Point) -> Prepared:
        """The question with these sizes."""
        options = dict(self.asked.question.options)
        sizes = dict(zip(self.names, point, strict=True))
        options["shapes"] = {**options.get("shapes", {}), **sizes}
        question = replace(self.asked.question, options=options)
        found = self.reader.prepare(question)
        if found.device is self.device or found.device == self.device:
            return found
        key = plan_key(found.model.fingerprint, self.device, found.options)
        return replace(found, device=self.device, key=key)

    def solved(self, point: Point) -> tuple[Prepared, Planner, Solution]:
        """A point's model, its planner, and the best partition."""
        known = self._planners.get(point)
        if known is None:
            prepared = self.prepared(point)
            planner = Planner(
                model=prepared.model,
                device=prepared.device,
                options=prepared.options,
                time_limit_seconds=self.time_limit_seconds,
            )
            known = self._planners[point] = (prepared, planner, planner.solve())
        return known

    @property
    def spent(self) -> float:
        """Steps of work so far: of the solver, and of reading each point's model."""
        solved = (
            planner.partitioner.spent for _, planner, _ in self._planners.values()
        )
        return math.fsum(solved) + READING_STEPS * len(self._planners)

    def best(self, point: Point) -> Grouping:
        """The best partition as a set of node groups."""
        prepared, _, solution = self.solved(point)
        return grouping(prepared.model.graph, solution.partition)

    def loss(self, partition: Hashable, point: Point) -> float:
        """What a partition of another point loses at a point."""
        if (partition, point) not in self._losses:
            self._losses[partition, point] = self._loss(partition, point)
        return self._losses[partition, point]

    def _loss(self, partition: Hashable, point: Point) -> float:
        assert isinstance(partition, Grouping)
        if partition == self.best(point):
            return 0.0
        prepared, planner, solution = self.solved(point)
        if prepared.options.memory_cap_bytes is not None:
            return math.inf  # whether it keeps the cap here is not known
        choices = transferred(
            prepared.model.graph,
            partition,
            planner.price,
            profile=prepared.options.legality,
            limits=limits_for(prepared.device, prepared.options),
        )
        if choices is None:
            return math.inf
        least = solution.partition.objective_seconds
        total = math.fsum(choice.seconds for choice in choices)
        return max(0.0, total / least - 1) if least > 0 else 0.0


def plan_pieces(
    asked: Asked,
    reader: Reader,
    device: Device,
    *,
    margin: float = MARGIN,
    most: int = MOST_BUCKETS,
    time_limit_seconds: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Piecewise:
    """Plan a model for ranges of sizes.

    Args:
        asked: the model and the ranges.
        reader: reads the model at one point after the other.
        device: what is planned for.
        margin: relative loss that is as good as none.
        most: buckets at most.
        time_limit_seconds: for all points together; a point that was begun is ended.
            By default work is counted instead.
        clock: a monotonic clock, in seconds.

    Raises:
        InvalidOption: a range names no symbolic dimension of the model.
        TunerError: the model is refused at some sizes.
    """
    started = clock()
    names = tuple(sorted(asked.ranges))
    key = _key(asked, reader, device, names)
    points = Points(
        asked=asked,
        reader=reader,
        device=device,
        time_limit_seconds=time_limit_seconds,
        names=names,
    )
    low = tuple(asked.ranges[name][0] for name in names)
    high = tuple(asked.ranges[name][1] for name in names)
    pieces = piecewise(
        low,
        high,
        points,
        margin=margin,
        most=most,
        out_of_time=(
            (lambda: points.spent > MOST_STEPS)
            if time_limit_seconds is None
            else (lambda: clock() - started > time_limit_seconds)
        ),
    )
    stored = [_stored(points, bucket) for bucket in pieces.buckets]
    return Piecewise(
        key=key,
        names=names,
        pieces=pieces,
        bodies=tuple((key_at, body) for key_at, body, _ in stored),
        names_of=tuple(told for _, _, told in stored),
        seconds=clock() - started,
    )


def _stored(
    points: Points, bucket: Bucket
) -> tuple[str, dict[str, Any], Mapping[str, tuple[str, ...]]]:
    """Key, body and names of the plan of a bucket, valid for all of its sizes."""
    prepared, _, solution = points.solved(bucket.at)
    compiled = Planner(
        model=prepared.model,
        device=prepared.device,
        options=prepared.options,
        compile_sources=compiler_for(prepared.device, prepared.options),
    )
    made = compiled.plan(solution)
    key = prepared.key
    body = document.body(made, target=dict(key.target), toolchain=dict(key.toolchain))
    ends = [points.prepared(end).model.graph for end in (bucket.low, bucket.high)]
    body["validity"]["shapes"] = _ranges(body["validity"]["shapes"], *ends)
    return key.key, body, prepared.model.names


def _ranges(shapes: Mapping[str, list[int]], low: Graph, high: Graph) -> dict[str, Any]:
    """Each extent that differs between the ends of a bucket as a range."""
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        least, most = (
            graph.types[name].shape if name in graph.types else tuple(shape)
            for graph in (low, high)
        )
        found[name] = [
            a if a == b else [a, b] for a, b in zip(least, most, strict=True)
        ]
    return found


def _key(
    asked: Asked, reader: Reader, device: Device, names: tuple[str, ...]
) -> PlanKey:
    """The key of a question with ranges; names of dimensions leave no trace in it.

    Raises:
        InvalidOption: a range names no open dimension, or there are too many.
    """
    if len(names) > MOST_DIMENSIONS:
        raise InvalidOption(
            "--shape",
            f"{len(names)} dimensions have ranges, at most {MOST_DIMENSIONS} may",
            hint="give the others one size",
        )
    fingerprint, dims = symbolic(asked.question, reader)
    for name in names:
        if name not in dims:
            known = ", ".join(dims) or "none"
            raise InvalidOption(
                name, "is no open dimension of the model", hint=f"there are: {known}"
            )
    options = reader.options(asked.question)
    ranges = {dims[name]: asked.ranges[name] for name in names}
    options = replace(options, ranges=MappingProxyType(ranges))
    return plan_key(fingerprint, device, options)


def symbolic(question: Question, reader: Reader) -> tuple[str, dict[str, str]]:
    """Identity of the model with its open dimensions, and their canonical names."""
    sizes = question.options.get("shapes", {})
    read = read_onnx if question.form == "onnx" else read_json
    imported = read(question.data, dims=sizes, rules=reader.rules)
    found = canonicalize(imported.graph)
    return found.fingerprint, {own: canon for canon, own in found.dims.items()}


def same_graph(stored: Mapping[str, Any], graph: Graph) -> bool:
    """Whether a stored plan is of a graph with these operators and edges."""
    told = document.graph_json(graph)
    ours = stored["graph"]
    keys = ("nodes", "inputs", "weights", "outputs")
    return all(told[key] == ours[key] for key in keys)
