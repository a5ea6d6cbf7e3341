"""Commands that use a device: run a whole plan, tune a model."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import inputs, output, planning, views
from service.cli.exits import BadArgument, Exit
from service.cli.planning import AsJson, ModelPath, OptionsText, Shapes
from service.dashboard.formats import clock, duration, percent, ratio, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.progress import Progress

    from service.jobs.planning import Prepared
    from tuner.ir.types import Array
    from tuner.plan import Plan
    from tuner.runtime.runner import Runner
    from tuner.search.session import TuningSession

DeviceName = Annotated[
    str, typer.Option("--device", "-d", help="Device of this machine: cpu, cuda:0.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan run model.onnx --device cpu --verify")(run)
    app.command(
        epilog="Example: fuseplan tune model.onnx --device cpu --budget-seconds 60"
    )(tune)


def run(
    model: ModelPath,
    device: DeviceName = "cpu",
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with ONNX Runtime.")
    ] = False,
    random_weights: Annotated[
        int | None,
        typer.Option("--random-weights", help="Seed of the weights that are left out."),
    ] = None,
    plan: Annotated[
        Path | None, typer.Option("--plan", help="Plan body to run: lookup KEY --json.")
    ] = None,
    shape: Shapes = None,
    options: OptionsText = "{}",
    as_json: AsJson = False,
) -> int:
    """Run a whole plan on a device, and compare it with ONNX Runtime."""
    from service.jobs.planning import target_of
    from tuner.errors import VerificationFailed
    from tuner.execution import run_plan

    given = inputs.json_object("--options", options)
    target = target_of(device).id
    prepared = inputs.read_model(model, target, shape or (), given)
    chosen = (
        planning.make(prepared).plan if plan is None else _read_plan(plan, prepared)
    )
    _require_weights(prepared, random_weights)
    try:
        report = asdict(
            run_plan(
                prepared.model,
                chosen,
                device=device,
                seed=random_weights or 0,
                verify=verify,
                values=_values(prepared),
            )
        )
    except VerificationFailed as error:
        if not as_json:
            raise
        output.emit({**_failed(chosen), "problem": str(error)})
        return Exit.VERIFICATION
    _show_run(report, as_json=as_json, verify=verify)
    return Exit.VERIFICATION if verify and not report["verified"] else Exit.OK


def _values(prepared: Prepared) -> Mapping[str, Array]:
    return prepared.model.imported.values


def _require_weights(prepared: Prepared, seed: int | None) -> None:
    """A light model runs on random weights only when the user says so."""
    imported = prepared.model.imported
    missing = [w for w in imported.graph.weights if w not in imported.values]
    if missing and seed is None:
        raise BadArgument(
            missing[0],
            f"{len(missing)} weights came without values",
            hint="--random-weights 0 fills them",
        )


def _failed(plan: Plan) -> dict[str, Any]:
    return {
        "verified": False,
        "max_abs_error": None,
        "max_rel_error": None,
        "seconds": None,
        "peak_memory_bytes": plan.memory.peak_bytes,
    }


def _show_run(report: Mapping[str, Any], *, as_json: bool, verify: bool) -> None:
    if as_json:
        output.emit(report)
        return
    verdict = "agrees with ONNX Runtime" if report["verified"] else "differs"
    reference = report.get("reference_seconds")
    facts = {
        "outputs": verdict if verify else "not compared (--verify)",
        "largest error": f"{report['max_abs_error']:.3g} absolute, "
        f"{report['max_rel_error']:.3g} relative",
        "time": duration(report["seconds"]),
        "peak memory": size(report["peak_memory_bytes"]),
    }
    if reference:
        facts["ONNX Runtime"] = (
            f"{duration(reference)} ({ratio(reference / report['seconds'])} ours)"
        )
    output.facts(facts)


def _read_plan(path: Path, prepared: Prepared) -> Plan:
    from service.cli import replay

    body = inputs.json_object(
        "--plan", inputs.read_bytes(path).decode(errors="replace")
    )
    return replay.plan_of(body, prepared)


def tune(
    model: ModelPath,
    device: DeviceName = "cpu",
    budget_seconds: Annotated[
        float, typer.Option("--budget-seconds", min=1.0, help="Device time to spend.")
    ] = 60.0,
    budget_trials: Annotated[
        int, typer.Option("--budget-trials", min=1, help="Kernel runs to spend.")
    ] = 400,
    seed: Annotated[int, typer.Option("--seed", help="Of the search.")] = 0,
    shape: Shapes = None,
    options: OptionsText = "{}",
    as_json: AsJson = False,
) -> None:
    """Tune a model on a device of this machine, without a service."""
    from service.jobs.planning import target_of
    from tuner import document
    from tuner.runtime.runner import Runner
    from tuner.search.budget import Budget
    from tuner.search.session import TuningSession

    given = inputs.json_object("--options", options)
    prepared = inputs.read_model(model, target_of(device).id, shape or (), given)
    started = time.perf_counter()
    with Runner(device) as runner, tuning_bar(budget_seconds) as update:
        session = TuningSession(
            prepared.model,
            prepared.device.id,
            prepared.options,
            Budget(seconds=budget_seconds, trials=budget_trials),
            {},
            seed,
        )
        failures = _tune(session, runner, update)
    made = session.plan()
    key = prepared.key
    stored = document.body(made, target=dict(key.target), toolchain=dict(key.toolchain))
    seconds = time.perf_counter() - started
    planned = planning.Planned(
        prepared=prepared, plan=made, stored=stored, plan_seconds=seconds
    )
    joined = {
        **planned.joined(),
        "tuning": {**session.progress(), "failures": failures, "seconds": seconds},
    }
    if as_json:
        output.emit(joined)
    else:
        views.show_plan(joined)
        views.show_measured(joined)


def _tune(
    session: TuningSession, runner: Runner, update: Callable[[Mapping[str, Any]], None]
) -> dict[str, int]:
    """Measure until the session has no more to ask; failures by kind."""
    failures: dict[str, int] = {}
    while (batch := session.propose()) is not None:
        for event in session.observe(batch, session.measure(batch, runner)):
            kind = str(event.get("failure") or "")
            if kind:
                failures[kind] = failures.get(kind, 0) + 1
        update(session.progress())
    return failures


@contextmanager
def tuning_bar(
    budget_seconds: float,
) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A progress bar on standard error; takes the progress of a session or a job."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[told]}"),
        console=output.console(to_errors=True),
    )
    with bar:
        task = bar.add_task("tuning", total=budget_seconds, told="starting")
        yield lambda progress: _advance(bar, task, budget_seconds, progress)


def _advance(
    bar: Progress, task: Any, budget_seconds: float, progress: Mapping[str, Any]
) -> None:
    left = progress.get("remaining_seconds")
    told = (
        f"{progress.get('trials') or 0} trials · best "
        f"{duration(progress.get('best_seconds'))} · gap {percent(progress.get('gap'))}"
        f" · {clock(left)} left"
    )
    done = budget_seconds - (budget_seconds if left is None else left)
    bar.update(task, completed=done, told=told)
