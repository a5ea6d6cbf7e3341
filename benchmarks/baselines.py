"""Our plans beside other strategies on the same graphs, and beside the real TVM.

    python -m benchmarks.baselines MODELS [--target sm_90] [--tvm PYTHON] [--json FILE]

For every model: kernels, traffic and predicted time of our plan, without fusion, by
TVM's rules, and in the style of XLA and of Inductor, all with our kernels and prices.
With `--tvm`, an interpreter that has `apache-tvm` and `onnx` groups the same files; its
groups stand beside those of our version of its rules, with what makes the difference,
and its time to import, legalise, annotate and fuse beside ours to import and plan.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from tuner.assembly import limits_for
from tuner.errors import TunerError
from tuner.fusion.baselines import tvm
from tuner.ir.graph import Graph
from tuner.ir.ops import OPS, Pattern
from tuner.model import Model, load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Choice, Options

SCRIPT: Final = Path(__file__).with_name("tvm_groups.py")
LONG_SECONDS: Final = 20.0
"""What takes longer is timed once. Plans end by counted work: no busy machine changes
them."""
STRATEGIES: Final = ("ours", "unfused", "tvm", "xla", "inductor")
REPEATS: Final = 3
"""How often import and plan are timed; the least counts."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What one strategy gives."""

    kernels: int
    traffic_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model.

    Attributes:
        strategies: figures by strategy.
        gap: of our plan.
        import_seconds, plan_seconds: least of several, in a warm process.
        rule_groups: groups of our version of TVM's rules, by what they hold.
    """

    model: str
    strategies: Mapping[str, Figures]
    gap: float
    import_seconds: float
    plan_seconds: float
    rule_groups: Mapping[str, int]


def row(path: Path, target: str) -> Row:
    """Plan a model, and group it by every strategy."""
    data = path.read_bytes()
    device = resolve_target(target)
    imports, plans = [], []
    while True:
        model = load(data)
        planner = Planner(model=model, device=device, options=Options())
        start = perf_counter()
        solution = planner.solve()
        plan = planner.plan(solution)
        plans.append(perf_counter() - start)
        imports.append(model.import_seconds)
        if len(plans) == REPEATS or plans[-1] > LONG_SECONDS:
            break
    figures = {
        name: Figures(
            kernels=found.kernels,
            traffic_bytes=found.traffic_bytes,
            seconds=found.objective_seconds,
        )
        for name, found in solution.baselines.items()
    }
    ours = Figures(
        kernels=len(plan.kernels),
        traffic_bytes=plan.traffic_bytes,
        seconds=plan.partition.objective_seconds,
    )
    return Row(
        model=path.stem,
        strategies={"ours": ours, **figures},
        gap=plan.partition.gap,
        import_seconds=min(imports),
        plan_seconds=min(plans),
        rule_groups=rule_groups(model, planner),
    )


def rule_groups(model: Model, planner: Planner) -> Mapping[str, int]:
    """Groups of our version of TVM's rules, by what they hold."""
    graph = model.graph
    choices = tvm(
        graph,
        planner.price,
        profile=planner.options.legality,
        limits=limits_for(planner.device, planner.options),
    )
    return dict(Counter(kind(graph, choice) for choice in choices))


def kind(graph: Graph, choice: Choice) -> str:
    """An anchor, a layer with reductions, an opaque node, element-wise work, or moves.

    Moves compute nothing: they put elements elsewhere.
    """
    patterns = {OPS[graph.by_name[n].op].pattern for n in choice.region.nodes}
    for pattern, name in (
        (Pattern.OPAQUE, "opaque"),
        (Pattern.CONTRACTION, "anchors"),
        (Pattern.WINDOW, "anchors"),
        (Pattern.REDUCTION, "reductions"),
    ):
        if pattern in patterns:
            return name
    return "element-wise" if Pattern.ELEMENTWISE in patterns else "moves"


# The real TVM ------------------------------------------------------------------------

_ANCHORS: Final = ("matmul", "conv", "pool", "dense")
_REDUCTIONS: Final = ("softmax", "norm", "mean", "variance", "sum", "max", "min")
_MOVES: Final = frozenset(
    {
        "broadcast_to",
        "concatenate",
        "expand_dims",
        "flatten",
        "pad",
        "reshape",
        "split",
        "squeeze",
        "strided_slice",
        "take",
        "transpose",
    }
)
_ALONE: Final = (
    ("views", "reshapes alone, which we do not count as kernels"),
    ("weights", "on weights alone, which we run at load"),
    ("shapes", "on sizes, which we work out at import"),
    ("batch norm", "batch norms, which we fold into the convolutions"),
)
"""Groups that our version of the rules does not have, and why."""
_ALIKE: Final = ("anchors", "reductions", "element-wise", "moves", "opaque")
"""Groups that both have."""


def real_groups(python: str, paths: Sequence[Path]) -> Json:
    """What the real TVM makes of the models, by its own process.

    Raises:
        SystemExit: the interpreter cannot run it.
    """
    command = [python, str(SCRIPT), *(str(path.resolve()) for path in paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr.strip().splitlines() or ["no message"])[-1]
        message = f"--tvm {python}: {told}; it needs apache-tvm and onnx"
        raise SystemExit(message)
    last = done.stdout.strip().splitlines()[-1]  # TVM's front end prints, too
    found: Json = json.loads(last)
    return found


def real_kinds(found: Json) -> Counter[str]:
    """TVM's groups by what they hold, in the words of `kind`."""
    counts: Counter[str] = Counter()
    for place in ("layers", "other"):
        for name, number in found[place].items():
            counts[_real_kind(name)] += number
    for place in ("views", "weights", "shapes"):
        counts[place] = sum(found[place].values())
    return counts


def _real_kind(name: str) -> str:
    called = name.split("+")
    if "batch_norm" in called:
        return "batch norm"
    if any(part.startswith(_ANCHORS) or "pool" in part for part in called):
        return "anchors"
    if any(part.endswith(_REDUCTIONS) for part in called):
        return "reductions"
    return "moves" if _MOVES.issuperset(called) else "element-wise"


def largest(found: Json, named: str, most: int = 3) -> str:
    """The most frequent groups of one kind, by their operators."""
    counts: Counter[str] = Counter()
    for place in ("layers", "other"):
        for name, number in found[place].items():
            if _real_kind(name) == named:
                counts[name] += number
    return ", ".join(f"{n} {name}" for name, n in counts.most_common(most))


def differences(ours: Mapping[str, int], found: Json) -> str:
    """Why the counts differ, in words, each with its part of the difference."""
    real = real_kinds(found)
    told = [f"{real[name]} {words}" for name, words in _ALONE if real.get(name)]
    for name in _ALIKE:
        more = real.get(name, 0) - ours.get(name, 0)
        if more:
            kinds = f" (of TVM's: {largest(found, name)})" if more > 0 else ""
            told.append(f"{more:+d} {name}{kinds}")
    return "; ".join(told) or "none"


# Tables ------------------------------------------------------------------------------


def strategy_table(rows: Sequence[Row]) -> Iterator[str]:
    """Kernels, megabytes and milliseconds of each strategy, as Markdown."""
    names = " / ".join(STRATEGIES)
    yield f"| model | kernels ({names}) | MB | ms predicted | gap |"
    yield "|---|---|---|---|---|"
    for r in rows:
        found = [r.strategies[name] for name in STRATEGIES]
        yield (
            f"| {r.model} | {' / '.join(str(f.kernels) for f in found)} "
            f"| {' / '.join(f'{f.traffic_bytes / 1e6:.1f}' for f in found)} "
            f"| {' / '.join(f'{1e3 * f.seconds:.3f}' for f in found)} "
            f"| {r.gap:.1e} |"
        )
    for name in STRATEGIES[1:]:
        ratios = [
            (r.strategies["ours"], r.strategies[name])
            for r in rows
            if r.strategies[name].seconds
        ]
        if ratios:
            time = statistics.geometric_mean(b.seconds / a.seconds for a, b in ratios)
            moved = statistics.geometric_mean(
                b.traffic_bytes / a.traffic_bytes for a, b in ratios
            )
            yield (
                f"\n{name}: {time:.3f} times our time, {moved:.3f} times our bytes "
                "(geometric means)"
            )


def real_table(rows: Sequence[Row], real: Json) -> Iterator[str]:
    """Our version of TVM's rules beside the real ones, as Markdown."""
    yield f"TVM {real['tvm']}\n"
    yield (
        "| model | our plan | our version of its rules | real groups "
        "| of these beyond the rules', and +/- like for like "
        "| s (our import + plan / TVM) | ratio |"
    )
    yield "|---|---|---|---|---|---|---|"
    for r in rows:
        found = real["models"][r.model]
        if "error" in found:
            yield (
                f"| {r.model} | {r.strategies['ours'].kernels} "
                f"| {r.strategies['tvm'].kernels} | cannot: {found['error'][:90]} "
                "| | | |"
            )
            continue
        own = r.import_seconds + r.plan_seconds
        other = sum(found["seconds"].values())
        yield (
            f"| {r.model} | {r.strategies['ours'].kernels} "
            f"| {r.strategies['tvm'].kernels} | {found['groups']} "
            f"| {differences(r.rule_groups, found)} "
            f"| {own:.2f} / {other:.2f} | {own / other:.2f} |"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", type=Path, help="folder of ONNX files")
    parser.add_argument("--target", default="sm_90", help="device of the catalogue")
    parser.add_argument("--only", nargs="*", default=(), help="names of models")
    parser.add_argument("--tvm", help="interpreter that has apache-tvm and onnx")
    parser.add_argument("--json", type=Path, help="write the rows here, too")
    options = parser.parse_args(arguments)
    found = sorted(options.models.glob("*.onnx"))
    paths = [p for p in found if not options.only or p.stem in options.only]
    if not paths:
        raise SystemExit(f"{options.models}: no ONNX files to plan")
    rows = []
    for path in paths:
        try:
            rows.append(row(path, options.target))
        except TunerError as error:
            print(f"{path.stem}: {error}", flush=True)
    print(f"\n### {options.target}\n", *strategy_table(rows), sep="\n", flush=True)
    told: dict[str, Any] = {"target": options.target, "rows": [asdict(r) for r in rows]}
    if options.tvm:
        told["tvm"] = real_groups(options.tvm, paths)
        print("\n### Real TVM\n", *real_table(rows, told["tvm"]), sep="\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps(told, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
