"""The command; see the package."""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import benchmarks.tuning as package
from benchmarks.tuning.keeping import Log, OutOfTime
from benchmarks.tuning.running import Known, Tuned, tune
from benchmarks.tuning.telling import HEAD, line, plot, saving, say, told_saving
from tuner.errors import TunerError
from tuner.frontend.model import parse
from tuner.model import Model, load
from tuner.runtime.runner import Runner
from tuner.search.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Sequence

Json = dict[str, Any]
SCHEMA: Final = "fuseplan.tuning-benchmark/1"


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


def shapes(text: str) -> dict[str, int]:
    """Dimension sizes from `batch=1,seq=64`."""
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: int(size) for name, _, size in pairs}


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


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tuning",
        description=(package.__doc__ or "").split("\n")[0],
    )
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


if __name__ == "__main__":
    sys.exit(main())
