"""Plan every model of a folder, run it, and print the tables.

    python -m benchmarks.zoo MODELS [--only NAME ...] [--no-run | --no-plan]
        [--calibrate] [--tune SECONDS] [--json FILE]

One table for each target (kernels, objective, gap, traffic, baselines, seconds), and
one for the run on this CPU: agreement with ONNX Runtime, the time of the plan, of the
same executor without fusion, and of ONNX Runtime, each alone; how often the plan fits
into ONNX Runtime's time, and the share of the plan's time that its generated kernels
take. A plan that is one library call for the whole model counts as 1, with the ratio
that was measured beside it. Last, the geometric mean of each kind of model. With
`--tune` the same tables follow for the plans that a tuning run of so many seconds of
device time leaves, each from an empty database. `--calibrate` fits the numbers of this
CPU first, and plans that run on it are priced by them.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import geometric_mean
from time import monotonic, perf_counter
from typing import TypeVar

from cost_model.calibration import restore
from cost_model.device import Device
from tuner.calibration.fit import calibrate_device
from tuner.execution import language_of, whole_request
from tuner.ir.graph import Graph, Node
from tuner.model import Model, load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import GENERATED, Measurement, Options, Plan
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

Row = TypeVar("Row")
TARGETS = ("cpu", "sm_90")
TIME_LIMIT_SECONDS = 60.0
CALIBRATION_SECONDS = 60.0
ROUNDS = 3
"""How often each model is run: the median of them counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One row of a plan table. Times in seconds."""

    model: str
    target: str
    import_seconds: float
    plan_seconds: float
    kernels: int
    tvm_kernels: int
    unfused_kernels: int
    objective_seconds: float
    tvm_seconds: float
    unfused_seconds: float
    gap: float
    complete: bool
    traffic_bytes: int
    tvm_traffic_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One row of the run table. Times in seconds.

    Attributes:
        kind: of model; see `kind_of`.
        whole_call: whether the plan is one library call for the whole model.
        generated_share: of the time of all steps run alone, what generated kernels
            take.
    """

    model: str
    kind: str
    whole_call: bool
    generated_share: float
    verified: bool
    max_rel_error: float
    plan_seconds: float
    unfused_seconds: float
    reference_seconds: float
    contended: bool
    message: str

    @property
    def measured(self) -> float:
        """How many times the plan fits into ONNX Runtime's time, as measured."""
        return self.reference_seconds / self.plan_seconds

    @property
    def speedup(self) -> float:
        """The same as it counts: the library beside itself is 1."""
        return 1.0 if self.whole_call else self.measured


def kind_of(model: Model) -> str:
    """What a model is for, told from its graph: training, optimiser, CNN, transformer.

    A graph without products that returns what it was given anew is an optimiser's; one
    with products that returns something of the types of its parameters trains. Of the
    others, those are CNNs that spend most multiply-adds in convolutions, or have no
    product of two computed tensors, as attention has.
    """
    given = model.imported.graph
    types = {given.types[name] for name in (*given.inputs, *given.weights)}
    again = sum(given.types[name] in types for name in given.outputs)
    returns = 2 * again > len(given.outputs) > 1
    graph = model.graph
    work = {op: _multiply_adds(graph, op) for op in ("conv", "matmul")}
    if returns:
        return "training" if any(work.values()) else "optimiser"
    attends = any(_is_attention(graph, node) for node in graph.nodes)
    is_cnn = work["conv"] and (work["conv"] > work["matmul"] or not attends)
    return "CNN" if is_cnn else "transformer"


def _multiply_adds(graph: Graph, op: str) -> int:
    total = 0
    for node in graph.nodes:
        if node.op == op:
            left, right = (graph.types[name].static_shape for name in node.inputs[:2])
            inner = left[-1] if op == "matmul" else math.prod(right[1:])
            total += graph.types[node.outputs[0]].elements * inner
    return total


def _is_attention(graph: Graph, node: Node) -> bool:
    computed = (graph.producer(name) is not None for name in node.inputs)
    return node.op == "matmul" and all(computed)


def is_whole_call(plan: Plan) -> bool:
    """Whether a plan is one library call and nothing else."""
    return len(plan.kernels) == 1 and plan.kernels[0].family not in GENERATED


def generated_share(plan: Plan, seconds: Mapping[str, float]) -> float:
    """Share of the seconds of a plan's steps that its generated kernels take."""
    mine = [k.name for k in plan.kernels if k.family in GENERATED]
    total = math.fsum(seconds.values())
    return math.fsum(seconds[name] for name in mine) / total if total else math.nan


def planner(model: Model, device: Device) -> Planner:
    """A planner with time enough."""
    return Planner(
        model=model,
        device=device,
        options=Options(),
        time_limit_seconds=TIME_LIMIT_SECONDS,
    )


def plan_row(name: str, model: Model, target: str) -> Planned:
    """Plan a model for a target."""
    planning = planner(model, resolve_target(target))
    start = perf_counter()
    solution = planning.solve()
    plan = planning.plan(solution)
    seconds = perf_counter() - start
    tvm, unfused = solution.baselines["tvm"], solution.baselines["unfused"]
    partition = solution.partition
    return Planned(
        model=name,
        target=target,
        import_seconds=model.import_seconds,
        plan_seconds=seconds,
        kernels=len(plan.kernels),
        tvm_kernels=tvm.kernels,
        unfused_kernels=unfused.kernels,
        objective_seconds=partition.objective_seconds,
        tvm_seconds=tvm.objective_seconds,
        unfused_seconds=unfused.objective_seconds,
        gap=partition.gap,
        complete=partition.candidate_space.complete,
        traffic_bytes=plan.traffic_bytes,
        tvm_traffic_bytes=tvm.traffic_bytes,
    )


def priced(model: Model, device: Device) -> Plan:
    """A plan as it is known without a measurement."""
    planning = planner(model, device)
    return planning.plan(planning.solve())


def tuned(model: Model, device: Device, seconds: float, runner: Runner) -> Plan:
    """The plan that a tuning run of so much device time leaves."""
    budget = Budget(seconds=seconds, trials=10_000)
    session = TuningSession(model, device, Options(), budget, {}, clock=perf_counter)
    while (batch := session.propose()) is not None:
        session.observe(batch, session.measure(batch, runner))
    return session.plan()


def run_row(name: str, model: Model, chosen: Plan, runner: Runner) -> Ran:
    """Run a plan of a model beside the same executor without fusion.

    Each runs alone, as its user would run it: by turns they would find each other's
    data in the caches, and each other's threads awake. The rounds go by turns.
    """
    planning = planner(model, resolve_target("cpu"))
    plans = {"plan": chosen, "unfused": planning.plan(planning.unfused())}
    language, seconds = language_of("cpu"), 6.0 / ROUNDS
    requests = {
        each: whole_request(model, {each: plan}, language, budget_seconds=seconds)
        for each, plan in plans.items()
    }
    requests["plan"] = replace(requests["plan"], by_step=True)
    rounds = [
        {each: runner.measure_whole(request) for each, request in requests.items()}
        for _ in range(ROUNDS)
    ]
    plan = _middle([each["plan"].measurements for each in rounds], "plan")
    unfused = _middle([each["unfused"].measurements for each in rounds], "unfused")
    reference = _middle([each["plan"].measurements for each in rounds], "reference")
    result = rounds[-1]["plan"]
    return Ran(
        model=name,
        kind=kind_of(model),
        whole_call=is_whole_call(plans["plan"]),
        generated_share=generated_share(
            plans["plan"], result.step_seconds.get("plan", {})
        ),
        verified=result.verified and not plan.failure,
        max_rel_error=plan.max_rel_error,
        plan_seconds=plan.seconds,
        unfused_seconds=unfused.seconds,
        reference_seconds=reference.seconds,
        contended=any(m.contended for m in (plan, unfused, reference)),
        message=f"{plan.failure} {plan.message}".strip(),
    )


def _middle(rounds: Sequence[Mapping[str, Measurement]], label: str) -> Measurement:
    """The median of the rounds; a failure if one has failed."""
    missing = Measurement(seconds=float("nan"), failure="absent")
    found = [each.get(label, missing) for each in rounds]
    failed = [each for each in found if each.failure]
    return failed[0] if failed else sorted(found, key=lambda m: m.seconds)[ROUNDS // 2]


def plan_table(rows: Iterable[Planned]) -> Iterator[str]:
    """The rows as Markdown, each when it is there."""
    yield (
        "| model | kernels (ours / TVM rules / none) | ms (ours / TVM rules / none) "
        "| gap | MB (ours / TVM rules) | import s | plan s |"
    )
    yield "|---|---|---|---|---|---|---|"
    for r in rows:
        times = (r.objective_seconds, r.tvm_seconds, r.unfused_seconds)
        shown = " / ".join(f"{1e3 * t:.3f}" for t in times)
        gap = f"{r.gap:.1e}" if r.complete else f"{r.gap:.1e} (incomplete)"
        yield (
            f"| {r.model} | {r.kernels} / {r.tvm_kernels} / {r.unfused_kernels} "
            f"| {shown} | {gap} "
            f"| {r.traffic_bytes / 1e6:.1f} / {r.tvm_traffic_bytes / 1e6:.1f} "
            f"| {r.import_seconds:.2f} | {r.plan_seconds:.2f} |"
        )


def run_table(rows: Iterable[Ran]) -> Iterator[str]:
    """The rows as Markdown, each when it is there."""
    yield (
        "| model | kind | agrees | max rel. error | plan ms | without fusion ms "
        "| ONNX Runtime ms | times ONNX Runtime | in generated kernels | contended |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for r in rows:
        call = ""
        if r.whole_call:
            call = f" (one library call, {r.measured:.2f} measured)"
        yield (
            f"| {r.model} | {r.kind} | {'yes' if r.verified else 'NO ' + r.message} "
            f"| {r.max_rel_error:.1e} | {1e3 * r.plan_seconds:.2f} "
            f"| {1e3 * r.unfused_seconds:.2f} | {1e3 * r.reference_seconds:.2f} "
            f"| {r.speedup:.2f}{call} | {r.generated_share:.0%} "
            f"| {'yes' if r.contended else 'no'} |"
        )


def kind_table(rows: Sequence[Ran]) -> Iterator[str]:
    """Geometric means by kind of model, as Markdown; models that failed are left out.

    The last row is that of all models but CNNs.
    """
    yield "| kind | models | one library call | least | geometric mean |"
    yield "|---|---|---|---|---|"
    good = [r for r in rows if r.verified]
    kinds = {
        kind: [r for r in good if r.kind == kind]
        for kind in sorted({r.kind for r in good})
    }
    kinds["all but CNNs"] = [r for r in good if r.kind != "CNN"]
    for kind, members in kinds.items():
        if not members:
            continue
        found = [r.speedup for r in members]
        yield (
            f"| {kind} | {len(members)} | {sum(r.whole_call for r in members)} "
            f"| {min(found):.2f} | {geometric_mean(found):.2f} |"
        )


def models_in(place: Path, only: Sequence[str] = ()) -> list[Path]:
    """The ONNX files of a folder, or one file; of these, those of some names.

    Raises:
        ValueError: there is none, or none of some name.
    """
    paths = [place] if place.is_file() else sorted(place.glob("*.onnx"))
    if not paths:
        raise ValueError(f"{place}: no ONNX file; give a file or a folder of them")
    names = [path.stem for path in paths]
    unknown = sorted(set(only) - set(names))
    if unknown:
        raise ValueError(
            f"{place}: no model {', '.join(unknown)}; there are {', '.join(names)}"
        )
    return [path for path in paths if not only or path.stem in only]


def _calibrated(runner: Runner) -> Device:
    """This CPU with numbers fitted to it."""
    base = resolve_target("cpu")
    fitted = calibrate_device(
        base, runner, monotonic, time_limit_seconds=CALIBRATION_SECONDS
    )
    return restore(base, fitted.calibration.device.numbers)


def _ran(path: Path, plan_of: Callable[[Model], Plan], runner: Runner) -> Ran:
    model = load(path.read_bytes())
    return run_row(path.stem, model, plan_of(model), runner)


def _kept(rows: Iterable[Row], into: list[Row]) -> Iterator[Row]:
    """The rows as they come, and in a list for later."""
    for row in rows:
        into.append(row)
        yield row


def _print(title: str, lines: Iterable[str]) -> None:
    """A table line by line: a run takes minutes, and may be stopped."""
    print(f"\n### {title}\n", flush=True)
    for line in lines:
        print(line, flush=True)


def _run_tables(
    paths: Sequence[Path], options: argparse.Namespace
) -> dict[str, list[Mapping[str, object]]]:
    """Run the models, and print what came of it; the rows by how plans were made."""
    rows: dict[str, list[Mapping[str, object]]] = {}
    with Runner("cpu") as runner:
        device = _calibrated(runner) if options.calibrate else resolve_target("cpu")
        ways = {"run": partial(priced, device=device)}
        if options.tune:
            ways["tuned"] = partial(
                tuned, device=device, seconds=options.tune, runner=runner
            )
        for way, plan_of in ways.items():
            ran: list[Ran] = []
            each = (_ran(path, plan_of, runner) for path in paths)
            _print(f"{way} on this CPU", run_table(_kept(each, ran)))
            print("", *kind_table(ran), sep="\n", flush=True)
            rows[way] = [
                {**asdict(row), "speedup": row.speedup, "measured": row.measured}
                for row in ran
            ]
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="folder of ONNX files, or one file")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="some models of a folder"
    )
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--no-run", action="store_true", help="plan only")
    parts.add_argument("--no-plan", action="store_true", help="the run's tables only")
    parser.add_argument(
        "--calibrate", action="store_true", help="fit the numbers of this CPU first"
    )
    parser.add_argument(
        "--tune",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="run tuned plans, too",
    )
    parser.add_argument("--json", type=Path, help="write the rows here, too")
    options = parser.parse_args(arguments)
    try:
        paths = models_in(options.models, options.only)
    except ValueError as error:
        parser.error(str(error))
    rows: dict[str, list[Mapping[str, object]]] = {}
    for target in () if options.no_plan else TARGETS:
        planned: list[Planned] = []
        each = (plan_row(p.stem, load(p.read_bytes()), target) for p in paths)
        _print(target, plan_table(_kept(each, planned)))
        rows[target] = [asdict(row) for row in planned]
    if not options.no_run:
        rows.update(_run_tables(paths, options))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
