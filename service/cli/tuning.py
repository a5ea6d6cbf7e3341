"""The command that tunes a model on a device of this machine."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

import typer

from service.cli import inputs, output, planning, views
from service.cli.exits import BadArgument
from service.cli.planning import AsJson, ModelPath, OptionsText, Shapes
from service.dashboard.formats import clock, count, duration, percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.progress import Progress

    from service.cli.kernel_cache import Cached
    from service.jobs.planning import Prepared
    from service.store import Database
    from tuner.runtime.runner import Runner
    from tuner.search.session import TuningSession

DeviceName = Annotated[
    str, typer.Option("--device", "-d", help="Device of this machine: cpu, cuda:0.")
]
CacheMode = Literal["cold", "warm"]
PARTITIONS: Final = 3
MAX_PARTITIONS: Final = 16
"""Those of `tuner.search.stages`, without loading the tuner for a text of help."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog="Example: fuseplan tune model.onnx --device cpu --budget-seconds 60"
    )(tune)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a tuning run was asked for."""

    prepared: Prepared
    device: str
    seconds: float
    trials: int
    seed: int
    cache: CacheMode
    partitions: int

    def session(self, cached: Cached) -> TuningSession:
        """A session that starts from what is known."""
        from tuner.search.budget import Budget
        from tuner.search.session import TuningSession

        return TuningSession(
            self.prepared.model,
            self.prepared.device,
            self.prepared.options,
            Budget(seconds=self.seconds, trials=self.trials),
            cached.known,
            self.seed,
            incumbent=cached.incumbent,
            cache=self.cache,
            partitions=self.partitions,
            elsewhere=cached.elsewhere,
        )


def tune(
    model: ModelPath,
    device: DeviceName = "cpu",
    budget_seconds: Annotated[
        float, typer.Option("--budget-seconds", min=1.0, help="Device time to spend.")
    ] = 60.0,
    budget_trials: Annotated[
        int, typer.Option("--budget-trials", min=1, help="Kernel runs to spend.")
    ] = 400,
    target: Annotated[
        str,
        typer.Option(
            "--target",
            "-t",
            help="Whose numbers price what is not measured: cpu@latest.",
        ),
    ] = "",
    seed: Annotated[int, typer.Option("--seed", help="Of the search.")] = 0,
    cache: Annotated[
        str, typer.Option("--cache", help="Caches before a timed launch: cold, warm.")
    ] = "warm",
    partitions: Annotated[
        int,
        typer.Option(
            "--partitions",
            min=1,
            max=MAX_PARTITIONS,
            help="Best distinct partitions to run whole.",
        ),
    ] = PARTITIONS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be measured; run nothing.")
    ] = False,
    store: Annotated[
        bool,
        typer.Option(
            "--store/--no-store", help="Use and fill the database of this machine."
        ),
    ] = True,
    shape: Shapes = None,
    options: OptionsText = "{}",
    as_json: AsJson = False,
) -> None:
    """Tune a model on a device of this machine, without a service.

    Kernel runs of earlier models are taken from the database, and new ones are added.
    """
    from service.cli import kernel_cache

    mode = _cache_mode(cache)
    given = inputs.json_object("--options", options)
    named = _target_on(device, target)
    prepared = inputs.read_model(model, named, shape or (), given)
    asked = Asked(
        prepared=prepared,
        device=device,
        seconds=budget_seconds,
        trials=budget_trials,
        seed=seed,
        cache=mode,
        partitions=partitions,
    )
    empty = kernel_cache.Cached(known={})
    session = asked.session(kernel_cache.read(prepared) if store else empty)
    if dry_run:
        _show_forecast(_forecast(asked, session), as_json=as_json)
        return
    joined = _tuned(asked, session, store=store)
    if as_json:
        output.emit(joined)
        return
    views.show_plan(joined)
    views.show_measured(joined)
    views.show_partitions(joined["tuning"]["partitions"])
    if joined["tuning"]["partial_reason"]:
        output.line(f"partial: {joined['tuning']['partial_reason']}")


def _target_on(device: str, target: str) -> str:
    """The target that a device is tuned for: its own, by numbers of one's choice.

    What is measured is kept as that of the target, and serves all who have it.

    Raises:
        BadArgument: the target is another device.
    """
    from cost_model.device import base_of
    from service.jobs.planning import target_of

    own = target_of(device)
    if not target:
        return own.id
    asked = inputs.device_of(target)
    same = base_of(asked.id) == own.id
    if target.endswith(".toml"):
        same = (asked.kind, asked.architecture) == (own.kind, own.architecture)
    if not same:
        raise BadArgument(
            "--target",
            f"{target!r} is another device than {device}, which is {own.id}",
            hint=f"leave it out, or give {own.id}@latest after `fuseplan calibrate`",
        )
    return target


def _cache_mode(word: str) -> CacheMode:
    for known in get_args(CacheMode):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise BadArgument("--cache", f"{word!r} is neither cold nor warm", hint="warm")


def _tuned(asked: Asked, session: TuningSession, *, store: bool) -> dict[str, Any]:
    """Measure to the end; the plan with what the search has cost."""
    from service.cli import kernel_cache
    from tuner import document
    from tuner.runtime.runner import Runner

    started = time.perf_counter()
    place = inputs.own_database() if store else nullcontext()
    with place as database:
        with Runner(asked.device) as runner, tuning_bar(asked.seconds) as update:
            failures = _run(session, runner, database, update)
        kept = database is not None and kernel_cache.keep_plan(
            database, asked.prepared, session
        )
    made = session.plan()
    key = asked.prepared.key
    body = document.body(made, target=dict(key.target), toolchain=dict(key.toolchain))
    seconds = time.perf_counter() - started
    planned = planning.Planned(
        prepared=asked.prepared, plan=made, stored=body, plan_seconds=seconds
    )
    return {
        **planned.joined(),
        "tuning": {
            **session.progress(),
            "failures": failures,
            "seconds": seconds,
            "winner": session.winner,
            "partitions": session.partitions,
            "stored": kept,
            "exhausted": session.is_exhausted,
            "partial_reason": session.partial_reason,
        },
    }


def _run(
    session: TuningSession,
    runner: Runner,
    database: Database | None,
    update: Callable[[Mapping[str, Any]], None],
) -> dict[str, int]:
    """Measure until the session has no more to ask; failures by kind.

    Results are stored batch by batch: an interrupted run loses one batch.
    """
    from cost_model.device import base_of
    from service.cli import kernel_cache

    failures: dict[str, int] = {}
    while (batch := session.propose()) is not None:
        results = session.measure(batch, runner)
        events = session.observe(batch, results)
        if database is not None:
            device = base_of(session.device.id)
            kernel_cache.keep_batch(database, device, batch, results, events)
        for event in events:
            kind = str(event.get("failure") or "")
            if kind:
                failures[kind] = failures.get(kind, 0) + 1
        update(session.progress())
    return failures


def _forecast(asked: Asked, session: TuningSession) -> dict[str, Any]:
    """What the run would measure; the device is asked who it is, and nothing more."""
    from tuner.errors import DeviceUnavailable
    from tuner.runtime.runner import Runner
    from tuner.search.measuring import describe

    toolchain, absent = None, ""
    try:
        with Runner(asked.device) as runner:
            toolchain = describe(runner, session.key.toolchain)
    except DeviceUnavailable as error:
        absent = str(error)
    return {
        "plan_key": session.key.key,
        "device": asked.device,
        "target": session.device.id,
        "cache": asked.cache,
        "device_problem": absent,
        **session.forecast(toolchain),
    }


def _show_forecast(told: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        output.emit(told)
        return
    output.table(
        ("kernel", "operators", ">uses", ">schedules", ">known", ">runs", ">predicted"),
        [
            (
                row["kernel"][:24],
                views.shorten(row["operators"]),
                count(row["uses"]),
                count(row["schedules"]),
                count(row["known_runs"]),
                count(row["trials"]),
                duration(row["predicted_seconds"]),
            )
            for row in told["kernels"]
        ],
    )
    output.facts(
        {
            "kernels": f"{told['distinct_kernels']}, {told['known_kernels']} known",
            "schedules": count(told["candidate_schedules"]),
            "kernel runs": f"{told['trials']} of {told['budget_trials']} allowed",
            "time": f"{clock(told['seconds'])} of {clock(told['budget_seconds'])}",
            "basis": told["basis"],
        }
    )
    if told["device_problem"]:
        output.note(f"fuseplan: {told['device_problem']}; nothing counts as known")


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
    done = budget_seconds - (budget_seconds if left is None else left)
    bar.update(task, completed=done, told=said(progress))


def said(progress: Mapping[str, Any]) -> str:
    """One line: runs so far, the best plan's time, how far it may be from the best.

    The gap is to what was proved with measured kernels, once there is such a proof;
    before, it is the solver's own.
    """
    proved = progress.get("measured_gap")
    gap = progress.get("gap") if proved is None else proved
    name = "gap" if proved is None else "measured gap"
    return (
        f"{progress.get('trials') or 0} trials · best "
        f"{duration(progress.get('best_seconds'))} · {name} {percent(gap)}"
        f" · {clock(progress.get('remaining_seconds'))} left"
    )
