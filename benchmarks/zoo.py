"""Plan every model of a folder, run it, and print the tables.

    python -m benchmarks.zoo MODELS [--no-run] [--json FILE]

One table for each target (kernels, objective, gap, traffic, baselines, seconds), and
one for the run on this CPU: agreement with ONNX Runtime, and the time of the plan, of
the same executor without fusion, and of ONNX Runtime alone in its process.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from tuner.execution import language_of, whole_request
from tuner.model import Model, load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Measurement, Options
from tuner.runtime.runner import Runner

TARGETS = ("cpu", "sm_90")
TIME_LIMIT_SECONDS = 60.0


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
    """One row of the run table. Times in seconds."""

    model: str
    verified: bool
    max_rel_error: float
    plan_seconds: float
    unfused_seconds: float
    reference_seconds: float
    contended: bool
    message: str


def planner(model: Model, target: str) -> Planner:
    """A planner with time enough."""
    return Planner(
        model=model,
        device=resolve_target(target),
        options=Options(),
        time_limit_seconds=TIME_LIMIT_SECONDS,
    )


def plan_row(name: str, model: Model, target: str) -> Planned:
    """Plan a model for a target."""
    planning = planner(model, target)
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


def run_row(name: str, model: Model, runner: Runner) -> Ran:
    """Run a model's plan beside the same executor without fusion."""
    planning = planner(model, "cpu")
    plans = {
        "plan": planning.plan(planning.solve()),
        "unfused": planning.plan(planning.unfused()),
    }
    request = whole_request(model, plans, language_of("cpu"), budget_seconds=6.0)
    result = runner.measure_whole(request)
    found = result.measurements
    missing = Measurement(seconds=float("nan"), failure="absent")
    plan = found.get("plan", missing)
    unfused = found.get("unfused", missing)
    reference = found.get("reference", missing)
    return Ran(
        model=name,
        verified=result.verified and not plan.failure,
        max_rel_error=plan.max_rel_error,
        plan_seconds=plan.seconds,
        unfused_seconds=unfused.seconds,
        reference_seconds=reference.seconds,
        contended=any(m.contended for m in found.values()),
        message=f"{plan.failure} {plan.message}".strip(),
    )


def plan_table(rows: Sequence[Planned]) -> Iterator[str]:
    """The rows as Markdown."""
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


def run_table(rows: Sequence[Ran]) -> Iterator[str]:
    """The rows as Markdown."""
    yield (
        "| model | agrees | max rel. error | plan ms | without fusion ms "
        "| ONNX Runtime ms | contended |"
    )
    yield "|---|---|---|---|---|---|---|"
    for r in rows:
        yield (
            f"| {r.model} | {'yes' if r.verified else 'NO ' + r.message} "
            f"| {r.max_rel_error:.1e} | {1e3 * r.plan_seconds:.2f} "
            f"| {1e3 * r.unfused_seconds:.2f} | {1e3 * r.reference_seconds:.2f} "
            f"| {'yes' if r.contended else 'no'} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="folder of ONNX files")
    parser.add_argument("--no-run", action="store_true", help="plan only")
    parser.add_argument("--json", type=Path, help="write the rows here, too")
    options = parser.parse_args(arguments)
    paths = sorted(options.models.glob("*.onnx"))
    rows: dict[str, list[Mapping[str, object]]] = {}
    for target in TARGETS:
        planned = [plan_row(p.stem, load(p.read_bytes()), target) for p in paths]
        print(f"\n### {target}\n", *plan_table(planned), sep="\n", flush=True)
        rows[target] = [asdict(row) for row in planned]
    if not options.no_run:
        with Runner("cpu") as runner:
            ran = [run_row(p.stem, load(p.read_bytes()), runner) for p in paths]
        print("\n### run on this CPU\n", *run_table(ran), sep="\n", flush=True)
        rows["run"] = [asdict(row) for row in ran]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
