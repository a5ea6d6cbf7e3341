"""Commands that need no device: plan, lookup, export, strip."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import anatomy, inputs, output, views
from service.cli.exits import BadArgument, CacheMiss
from service.dashboard.formats import size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from service.cli.lookups import Found, Least
    from service.jobs.planning import Prepared
    from tuner.plan import Plan

ModelPath = Annotated[
    Path,
    typer.Argument(metavar="MODEL", help="ONNX or graph JSON; - reads stdin."),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        help="Device of the catalogue, an alias, or a device file: my.toml.",
    ),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="Sizes of open dimensions: batch=1,seq=64; for plan also seq=1..512.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, errors too.")]
Legality = Annotated[
    str | None,
    typer.Option("--legality", help="Rule set of candidates: reference or full."),
]
Rules = Annotated[
    list[Path] | None,
    typer.Option("--rules", help="TOML file with operators and fusion rules."),
]
MemoryCap = Annotated[
    str | None,
    typer.Option("--memory-cap", help="Most memory of the plan: 512MiB."),
]
OptionsText = Annotated[
    str, typer.Option("--options", help="Further plan options as a JSON object.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan plan model.onnx --target sm_90 --json")(plan)
    app.command(
        epilog="Example: fuseplan lookup model.onnx --target sm_90 --require measured"
    )(lookup)
    app.command(
        epilog="Example: fuseplan export model.onnx -t sm_90 -f cuda -o kernels/"
    )(export)
    app.command(epilog="Example: fuseplan strip model.onnx -o light.onnx")(strip)


def plan(
    model: ModelPath,
    target: Target = "cpu",
    shape: Shapes = None,
    legality: Legality = None,
    options: OptionsText = "{}",
    memory_cap: MemoryCap = None,
    rules: Rules = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            min=0.1,
            help="Seconds for the solver. Without it work is counted instead, so that"
            " a plan does not depend on how fast the machine is.",
            show_default=False,
        ),
    ] = None,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="List each fusion group and why it ends there."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan a model for a target, without running it and without a service."""
    given = with_cap(with_legality(options, legality), memory_cap)
    fixed, ranges = inputs.ranges(shape or ())
    if ranges:
        from service.cli import pieces

        asked = pieces.Ranged(model, target, fixed, ranges, given, rules or ())
        found = pieces.plan(asked, time_limit_seconds=time_limit)
        if as_json:
            output.emit(pieces.in_names(found))
        else:
            pieces.show(found, groups=groups)
        return
    prepared = inputs.read_model(model, target, shape or (), given, rules or ())
    planned = make(prepared, time_limit_seconds=time_limit)
    shown = {**planned.joined(), "profile": anatomy.profile(planned)}
    if groups:
        shown["groups"] = anatomy.groups(planned)
    if as_json:
        output.emit(shown)
        return
    views.show_plan(shown)
    anatomy.show_profile(shown["profile"])
    if groups:
        anatomy.show_groups(shown["groups"])


def with_legality(options: str, legality: str | None) -> dict[str, Any]:
    """The options object, with the rule set that its own option names."""
    given = dict(inputs.json_object("--options", options))
    return given if legality is None else given | {"legality": legality}


def with_cap(given: dict[str, Any], memory_cap: str | None) -> dict[str, Any]:
    """The options object, with the memory cap that its own option names."""
    if memory_cap is None:
        return given
    return given | {"memory_cap_bytes": inputs.bytes_of("--memory-cap", memory_cap)}


@dataclass(frozen=True, kw_only=True)
class Planned:
    """An analytic plan with everything that a command may print of it."""

    prepared: Prepared
    plan: Plan
    stored: Mapping[str, Any]
    plan_seconds: float

    def joined(self) -> dict[str, Any]:
        """The plan in the model's own names, with its envelope."""
        from tuner import document

        model = self.prepared.model
        return {
            "plan_key": self.prepared.key.key,
            "digest": document.digest(document.encode(self.stored)),
            **document.joined(self.stored, model.names),
            "timing": {
                "import_seconds": model.import_seconds,
                "plan_seconds": self.plan_seconds,
            },
        }


def make(prepared: Prepared, *, time_limit_seconds: float | None = None) -> Planned:
    """Plan a model that was read; no service and no device take part."""
    from tuner import document, pipeline

    started = time.perf_counter()
    made = pipeline.make_plan(
        prepared.model,
        prepared.device,
        prepared.options,
        time_limit_seconds=time_limit_seconds,
    )
    key = prepared.key
    stored = document.body(made, target=dict(key.target), toolchain=dict(key.toolchain))
    seconds = time.perf_counter() - started
    return Planned(prepared=prepared, plan=made, stored=stored, plan_seconds=seconds)


def replayed(prepared: Prepared, body: Mapping[str, Any]) -> Planned:
    """The plan that a body describes, for a model that was read."""
    from service.cli import replay
    from tuner import document

    made = replay.plan_of(body, prepared)
    key = prepared.key
    stored = document.body(made, target=dict(key.target), toolchain=dict(key.toolchain))
    return Planned(prepared=prepared, plan=made, stored=stored, plan_seconds=0.0)


def lookup(
    what: Annotated[
        str, typer.Argument(metavar="KEY|MODEL", help="A plan key, or a model file.")
    ],
    target: Target = "cpu",
    shape: Shapes = None,
    options: OptionsText = "{}",
    memory_cap: MemoryCap = None,
    rules: Rules = None,
    require: Annotated[
        str,
        typer.Option("--require", help="Least evidence: analytic, compiled, measured."),
    ] = "analytic",
    server: Annotated[
        str, typer.Option("--server", help="Address of a service; else the database.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Look a stored plan up; a model that has none gets its analytic plan."""
    from service.cli import lookups, pieces

    least = lookups.evidence(require)
    if inputs.is_key(what):
        found = lookups.find(what, least, server)
        shown = _shown(found, what, names={})
    else:
        given = with_cap(dict(inputs.json_object("--options", options)), memory_cap)
        prepared = inputs.read_model(
            Path(what), target, shape or (), given, rules or ()
        )
        shown = _lookup_model(
            prepared,
            least,
            server,
            lambda: pieces.find(Path(what), prepared, given, rules or ()),
        )
    if as_json:
        output.emit(shown)
    else:
        output.line(f"source: {shown['source']}")
        views.show_plan(shown)


def _lookup_model(
    prepared: Prepared,
    least: Least,
    server: str,
    bucket: Callable[[], dict[str, Any] | None],
) -> dict[str, Any]:
    """The stored plan of a model, or the analytic one when that will do."""
    from service.cli import lookups

    key = prepared.key.key
    try:
        found = lookups.find(key, least, server)
    except CacheMiss:
        if least == "measured":
            raise
    except lookups.UNUSABLE as error:
        if least == "measured":
            raise
        output.note(f"fuseplan: {error}; planning without the cache")
    else:
        return _shown(found, key, names=prepared.model.names)
    found_bucket = bucket() if least == "analytic" else None
    if found_bucket is not None:
        return found_bucket
    return {"source": "analytic", **make(prepared).joined()}


def _shown(
    found: Found, key: str, names: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    from tuner import document

    return {
        "source": found.source,
        "plan_key": key,
        "digest": found.digest,
        **document.joined(found.body, names),
        "timing": {},
    }


def export(
    what: Annotated[
        str, typer.Argument(metavar="PLAN|MODEL", help="A plan key, or a model file.")
    ],
    folder: Annotated[
        Path, typer.Option("--output", "-o", help="Folder that takes the files.")
    ],
    target: Target = "cpu",
    shape: Shapes = None,
    options: OptionsText = "{}",
    memory_cap: MemoryCap = None,
    rules: Rules = None,
    form: Annotated[
        str, typer.Option("--format", "-f", help="cuda or opencl; else the target's.")
    ] = "",
    body: Annotated[
        Path | None,
        typer.Option("--plan", help="Plan body of the model: lookup KEY --json."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a plan as kernel sources, a manifest, and a host in C that runs it."""
    from service.cli import exports

    language = exports.checked(form)
    inputs.require_place(folder, folder=True)
    if inputs.is_key(what):
        if body is not None:
            raise BadArgument(
                "--plan", "a key has its own plan", hint="give the model, or no --plan"
            )
        package = exports.of_stored(what, language)
    else:
        given = with_cap(dict(inputs.json_object("--options", options)), memory_cap)
        stored = None if body is None else inputs.plan_body(body)
        prepared = inputs.read_model(
            Path(what), target, shape or (), given, rules or ()
        )
        planned = make(prepared) if stored is None else replayed(prepared, stored)
        package = exports.of_planned(planned, language)
    written = exports.write(package, folder)
    calls = exports.library_steps(package)
    if as_json:
        output.emit(
            {"folder": str(folder), "files": written, "library_calls": len(calls)}
        )
        return
    output.line(f"{folder}: {len(written)} files; start with manifest.json")
    if calls:
        output.line(
            f"{len(calls)} of {len(package.manifest['steps'])} steps are library calls,"
            " which your host must make (docs/consume.md):"
        )
        for call in calls:
            output.line(f"  {call}")


def strip(
    model: ModelPath,
    output_path: Annotated[
        Path, typer.Option("--output", "-o", help="File that takes the light model.")
    ],
    keep: Annotated[
        list[str] | None, typer.Option("--keep", help="Initializer to leave in.")
    ] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Rename everything.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Leave a model's weights out: they become inputs, and the plan stays the same."""
    from tuner.frontend.strip import strip as light

    inputs.require_place(output_path)
    data = inputs.model_bytes(model)
    with inputs.named(model):
        made = light(data, keep=tuple(keep or ()), anonymous=anonymous)
    inputs.write_bytes(output_path, made)
    done = {"output": str(output_path), "bytes": len(made), "before_bytes": len(data)}
    if as_json:
        output.emit(done)
    else:
        output.line(f"{output_path}: {size(len(made))}, was {size(len(data))}")
