"""What tuning costs and gives: models from an empty database, under several budgets.

    python -m benchmarks.tuning MODEL ... [--after OTHER --shape batch=1,seq=128]
        [--budgets 60,180,600] [--trials 1000] [--json FILE] [--plot FILE.svg]
        [--log FILE --minutes 1.4]

A model is a file, or the name of one in the folder `--models`. For every model and
budget: wall-clock seconds, kernel runs, kernels measured against the candidates of the
partition, the gap that was proved with measured kernels, and the times of the whole
plans. `--after` tunes another model twice, with the largest budget: from an empty
database, and with what the last run of each model has measured. What shared layers save
is told in two ways: the seconds that the runs took which were not made again, and how
much sooner the second run knew as much as the first one in the end. (Both may use up
their budget: what one has spared, it spends on more kernels.) The plot has the proved
gap over the device time spent, with a dot where a run ended.

`--log` keeps the results of every batch, and the same command goes on where it was
ended: by `--minutes`, within which every call ends, or killed. A machine that is quiet
for minutes at a time can so make a benchmark of an hour; the wall-clock seconds are the
sum of the pieces.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import signal
import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, Final, NoReturn

from tuner.errors import TunerError
from tuner.frontend.model import parse
from tuner.model import Model, load
from tuner.plan import Options
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget
from tuner.search.session import TuningSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tuner.runtime.requests import Measures

Json = dict[str, Any]
Known = dict[str, Json]
SCHEMA: Final = "fuseplan.tuning-benchmark/1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How far a run was when it had spent so much.

    Attributes:
        seconds: device time and solving, as the budget counts them.
        measured_gap: how far the best plan may be from the best; None: not known yet.
    """

    seconds: float
    trials: int
    stage: str
    best_seconds: float
    measured_gap: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """One run.

    Attributes:
        wall_seconds: of everything, the first solve and whole plans too.
        trials: kernel runs.
        kernels_measured: distinct kernels that were run.
        kernels_known: distinct kernels that an earlier run had measured.
        runs_known: of them, each with one schedule.
        spared_seconds: what those took when they were measured.
        candidates: of the partition problem.
        whole_seconds: time of each whole plan, by label; failed ones are left out.
    """

    model: str
    budget_seconds: float
    wall_seconds: float
    trials: int
    kernels_measured: int
    kernels_known: int
    runs_known: int
    spared_seconds: float
    candidates: int
    kernels: int
    measured_optimal: bool
    measured_gap: float | None
    winner: str
    partial_reason: str
    contended: int
    failures: Mapping[str, int]
    whole_seconds: Mapping[str, float]
    timeline: tuple[Moment, ...]


class OutOfTime(Exception):
    """This call may measure no longer."""


@contextmanager
def ended_by(end: float) -> Iterator[None]:
    """Ends what is under way when the time is up, a batch that hangs too.

    Args:
        end: in monotonic seconds.

    Raises:
        OutOfTime: it is.
    """

    def ring(_number: int, _frame: object) -> NoReturn:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    if math.isfinite(end):
        signal.setitimer(signal.ITIMER_REAL, max(end - monotonic(), 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@dataclass(kw_only=True)
class Log:
    """Results of batches by run, on disk after each of them.

    Attributes:
        path: None keeps them nowhere.
        end: monotonic seconds after which nothing more is measured.
    """

    path: Path | None = None
    end: float = math.inf
    runs: dict[str, Json] = field(default_factory=dict)

    @classmethod
    def opened(cls, path: Path | None, minutes: float) -> Log:
        """A log with what an earlier call left in it."""
        found = cls(path=path, end=monotonic() + 60.0 * minutes)
        if path is not None and path.exists():
            found.runs.update(json.loads(path.read_text()))
        return found

    def run(self, label: str) -> Json:
        """What is known of a run: its batches' results, and the seconds they took."""
        return self.runs.setdefault(label, {"batches": [], "wall_seconds": 0.0})

    def write(self) -> None:
        """Write everything, whole or not at all."""
        if self.path is None:
            return
        draft = self.path.with_name(f"{self.path.name}.part")
        draft.write_text(json.dumps(self.runs))
        draft.replace(self.path)


def tune(
    name: str,
    model: Model,
    opened: Callable[[], AbstractContextManager[Measures]],
    budget: Budget,
    known: Known,
    log: Log,
    *,
    clock: Callable[[], float] = perf_counter,
) -> tuple[Tuned, Known]:
    """Tune a model; the run, and what it measured by measurement key.

    Args:
        name: of the run.
        model: what is tuned.
        opened: gives the device that measures.
        budget: of the run.
        known: what earlier runs measured.
        log: where results are kept, and found.
        clock: what the costs of measuring are read from.

    Raises:
        OutOfTime: the log's time was up before the run was over.
    """
    start = perf_counter()
    found: Known = {}
    timeline: list[Moment] = []
    kept = log.run(f"{name}, {budget.seconds:g} s, {budget.trials} trials")
    spent, before = 0.0, kept["wall_seconds"]
    with opened() as runner:
        session = TuningSession(model, "cpu", Options(), budget, known, clock=clock)
        while (batch := session.propose()) is not None:
            results = _results(session, batch, runner, kept, log)
            session.observe(batch, results)
            spent += sum(float(r.get("cost_seconds", 0.0)) for r in results)
            found.update(
                (item["key"], result)
                for item, result in zip(batch["items"], results, strict=True)
                if item["kind"] == "kernel"
            )
            timeline.append(_moment(session, spent))
            kept["wall_seconds"] = before + perf_counter() - start
    log.write()
    wall = kept["wall_seconds"]
    return _row(name, session, budget, wall, found, tuple(timeline)), found


def _results(
    session: TuningSession, batch: Json, runner: Measures, kept: Json, log: Log
) -> list[Json]:
    """Of a batch: from the log, or else from the device, and into the log."""
    index = batch["index"]
    if index < len(kept["batches"]):
        stored: list[Json] = kept["batches"][index]
        return stored
    if monotonic() >= log.end:
        log.write()
        raise OutOfTime
    with ended_by(log.end):
        results = session.measure(batch, runner)
    kept["batches"].append(json.loads(json.dumps(results)))
    log.write()
    return results


def _moment(session: TuningSession, spent: float) -> Moment:
    told = session.progress()
    return Moment(
        seconds=spent,
        trials=told["trials"],
        stage=told["stage"],
        best_seconds=told["best_seconds"],
        measured_gap=told["measured_gap"],
    )


def _row(
    name: str,
    session: TuningSession,
    budget: Budget,
    wall: float,
    found: Known,
    timeline: tuple[Moment, ...],
) -> Tuned:
    plan = session.plan()
    refinement = plan.refinement
    failures: dict[str, int] = {}
    for result in found.values():
        if result["failure"]:
            failures[result["failure"]] = failures.get(result["failure"], 0) + 1
    served = session.served
    return Tuned(
        model=name,
        budget_seconds=budget.seconds,
        wall_seconds=wall,
        trials=session.progress()["trials"],
        kernels_measured=len({result["kernel"] for result in found.values()}),
        kernels_known=served["kernels"],
        runs_known=served["runs"],
        spared_seconds=served["seconds"],
        candidates=plan.partition.candidate_space.candidates,
        kernels=len(plan.kernels),
        measured_optimal=refinement is not None and refinement.measured_optimal,
        measured_gap=None if refinement is None else refinement.measured_gap,
        winner=session.winner,
        partial_reason=session.partial_reason,
        contended=sum(bool(result["contended"]) for result in found.values()),
        failures=failures,
        whole_seconds={
            label: m.seconds for label, m in plan.whole.items() if not m.failure
        },
        timeline=timeline,
    )


def line(row: Tuned) -> str:
    """One run as a line of a Markdown table."""
    gap = "unknown" if row.measured_gap is None else f"{row.measured_gap:.1%}"
    whole = ", ".join(f"{n} {s * 1e3:.2f}" for n, s in row.whole_seconds.items())
    return (
        f"| {row.model} | {row.budget_seconds:.0f} | {row.wall_seconds:.0f} "
        f"| {row.trials} | {row.kernels_measured} "
        f"| {row.kernels_known} ({row.spared_seconds:.1f} s) "
        f"| {row.candidates} | {gap} | {row.winner} | {whole} "
        f"| {row.partial_reason or 'complete'} |"
    )


HEAD: Final = (
    "| model | budget s | wall s | runs | kernels measured | known before | candidates "
    "| measured gap | winner | whole plans, ms | ended |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def plot(rows: Sequence[Tuned]) -> str:
    """The proved gap over the device time spent, one line for each run, as SVG."""
    width, height, left, low = 720, 400, 60, 340
    longest = max((m.seconds for row in rows for m in row.timeline), default=1.0) or 1.0

    def place(moment: Moment) -> str:
        gap = min(moment.measured_gap or 0.0, 1.0)
        x = left + (width - left - 20) * moment.seconds / longest
        return f"{x:.1f},{low - (low - 20) * gap:.1f}"

    parts = []
    for number, row in enumerate(rows):
        known = [m for m in row.timeline if m.measured_gap is not None]
        colour = f"hsl({360 * number // max(len(rows), 1)},70%,40%)"
        points = " ".join(map(place, known))
        end = _dot(points.rpartition(" ")[2], colour) if known else ""
        title = f"{row.model}, {row.budget_seconds:.0f} s"
        parts.append(
            f'<polyline fill="none" stroke="{colour}" points="{points}"/>{end}'
            f'<text x="{left + 10}" y="{35 + 16 * number}" fill="{colour}">'
            f"{title}</text>"
        )
    axes = "".join(
        f'<text x="8" y="{low - (low - 20) * share + 4:.0f}">{share:.0%}</text>'
        for share in (0.0, 0.25, 0.5, 0.75, 1.0)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">'
        f'<path d="M{left},20 V{low} H{width - 20}" fill="none" stroke="black"/>{axes}'
        f'<text x="{left}" y="{low + 20}">0 s</text>'
        f'<text x="{width - 60}" y="{low + 20}">{longest:.0f} s</text>'
        f'<text x="{left}" y="{low + 40}">measured gap over device time and solving'
        f"</text>{''.join(parts)}</svg>\n"
    )


def _dot(point: str, colour: str) -> str:
    x, y = point.split(",")
    return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'


def shapes(text: str) -> dict[str, int]:
    """Dimension sizes from `batch=1,seq=64`."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(size) for name, _, size in pairs}


def main(arguments: Sequence[str] | None = None) -> int:
    """Tune everything that was asked for, and print and write what was found."""
    given = _parsed(arguments)
    log = Log.opened(given.log, given.minutes)
    try:
        _tune_all(given, log)
    except OutOfTime:
        more = "" if given.log else " with --log FILE, which keeps what was measured"
        say(f"not complete: call it again{more} to go on")
    except TunerError as error:
        raise SystemExit(str(error)) from error
    return 0


def _tune_all(given: argparse.Namespace, log: Log) -> None:
    rows: list[Tuned] = []
    saved: list[Json] = []
    known: Known = {}
    opened = partial(Runner, given.device)
    say(HEAD)
    for name in given.model:
        path, found = _path(name, given), {}
        for seconds in given.budgets:
            budget = Budget(seconds=seconds, trials=given.trials)
            model = _loaded(path, given)
            row, found = tune(path.stem, model, opened, budget, {}, log)
            rows.append(row)
            say(line(row))
            _write(given, rows, saved)
        known.update(found)
    for name in given.after or ():
        _tune_after(_path(name, given), given, log, known, rows, saved)


def _path(name: str, given: argparse.Namespace) -> Path:
    """The file of a model that was given as a path, or by its name.

    Raises:
        SystemExit: there is none.
    """
    named = given.models / f"{name}.onnx"
    for path in (Path(name), named):
        if path.is_file():
            return path
    raise SystemExit(f"{name}: no such file, nor is there {named}: give --models")


def _loaded(path: Path, given: argparse.Namespace) -> Model:
    """A model with the sizes that were given for dimensions it has."""
    raw = path.read_bytes()
    had = dimensions(raw)
    asked = shapes(given.shape)
    return load(raw, shapes={name: asked[name] for name in asked if name in had})


def dimensions(raw: bytes) -> frozenset[str]:
    """Names of the sizes that an ONNX model leaves open."""
    model = parse(raw)
    return frozenset(
        size.dim_param
        for each in model.graph.input
        for size in each.type.tensor_type.shape.dim
        if size.dim_param
    )


def _tune_after(
    path: Path,
    given: argparse.Namespace,
    log: Log,
    known: Known,
    rows: list[Tuned],
    saved: list[Json],
) -> None:
    """Tune another model from nothing, and with what is known."""
    budget = Budget(seconds=max(given.budgets), trials=given.trials)
    opened = partial(Runner, given.device)
    model = _loaded(path, given)
    alone, _ = tune(f"{path.stem}, alone", model, opened, budget, {}, log)
    after, _ = tune(f"{path.stem}, after", model, opened, budget, known, log)
    rows += [alone, after]
    for row in (alone, after):
        say(line(row))
    saved.append(saving(path.stem, alone, after))
    say(f"\n{told_saving(saved[-1])}")
    _write(given, rows, saved)


def saving(name: str, alone: Tuned, after: Tuned) -> Json:
    """What known kernels saved.

    Returns:
        `spared_seconds` that the known runs took and `runs_known` of them,
        `seconds_sooner` by which the second run had proved the gap that the first one
        proved in the end (None where one of them never did), and the difference of the
        whole runs.
    """
    gap = alone.timeline[-1].measured_gap if alone.timeline else None
    first, second = _reached(alone, gap), _reached(after, gap)
    sooner = None if first is None or second is None else first - second
    return {
        "model": name,
        "spared_seconds": after.spared_seconds,
        "runs_known": after.runs_known,
        "kernels_known": after.kernels_known,
        "seconds_sooner": sooner,
        "seconds": alone.wall_seconds - after.wall_seconds,
        "trials": alone.trials - after.trials,
    }


def _reached(row: Tuned, gap: float | None) -> float | None:
    """When a run had proved as small a gap; None: never, or there is none."""
    if gap is None:
        return None
    return next(
        (
            moment.seconds
            for moment in row.timeline
            if moment.measured_gap is not None and moment.measured_gap <= gap
        ),
        None,
    )


def told_saving(saved: Json) -> str:
    """What known kernels saved, in a sentence."""
    sooner = saved["seconds_sooner"]
    same = (
        "the gap that it proves alone was not reached"
        if sooner is None
        else f"the gap that it proves alone was reached {sooner:.1f} s sooner"
    )
    return (
        f"{saved['model']}: {saved['runs_known']} runs of {saved['kernels_known']} "
        f"kernels were known and spared {saved['spared_seconds']:.1f} s; {same}; the "
        f"whole run took {saved['seconds']:+.1f} s less"
    )


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", nargs="+", metavar="MODEL")
    parser.add_argument("--models", type=Path, default=Path(), metavar="FOLDER")
    parser.add_argument("--after", action="append", metavar="MODEL")
    parser.add_argument("--shape", default="")
    parser.add_argument("--device", default="cpu", choices=["cpu"])
    parser.add_argument("--budgets", type=_seconds, default=(60.0, 180.0, 600.0))
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--log", type=Path, help="go on with what is in this file")
    parser.add_argument("--minutes", type=float, default=math.inf, help="end in time")
    return parser.parse_args(arguments)


def _seconds(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or not all(0 < seconds < math.inf for seconds in found):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no list of seconds such as 60,180"
        )
    return found


def _write(given: argparse.Namespace, rows: Sequence[Tuned], saved: list[Json]) -> None:
    """Write what there is so far: a benchmark that is stopped keeps its runs."""
    if given.json is not None:
        told = {
            "schema": SCHEMA,
            "device": given.device,
            "processor": platform.processor() or platform.machine(),
            "runs": [asdict(row) for row in rows],
            "saved": saved,
        }
        given.json.write_text(json.dumps(told, indent=1) + "\n")
    if given.plot is not None:
        given.plot.write_text(plot(rows))


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
