"""Commands for builds: fetch, lock."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli import bundles, inputs, output
from service.cli.bundles import LockPath, Require, Server
from service.cli.exits import BadArgument, CacheMiss
from service.cli.planning import AsJson, OptionsText, Shapes, Target, make

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.builds import Resolved, Resolver
    from service.bundle import Bundle
    from service.cli.lookups import Least
    from service.jobs.planning import Prepared
    from service.settings import Settings

Bundles = Annotated[
    list[Path] | None, typer.Option("--bundle", help="A bundle to look into.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Ask no service.")]
_TO_LOCK: Final[Mapping[Least, str]] = {
    "measured": "`fuseplan tune` measures one here; or name a --server or a --bundle"
    " that has it, or take less with --require analytic",
    "compiled": "`fuseplan tune` makes a better one here; or name a --server or a"
    " --bundle that has it, or take less with --require analytic",
    "analytic": "`fuseplan tune` makes a better one here; a service keeps one of each"
    " model that is handed in: name it with --server, or a --bundle that has it",
}
"""What to do about a model that cannot be locked, by the least evidence."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog="Example: fuseplan fetch model.onnx -t sm_90 -o model.plan.json"
    )(fetch)
    app.command(epilog="Example: fuseplan lock model.onnx -t sm_90 -o fuseplan.lock")(
        lock
    )


def fetch(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="ONNX or graph JSON.")
    ],
    output_path: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="File; or, with -o DIR/ or several models, a folder.",
        ),
    ] = None,
    target: Target = "cpu",
    shape: Shapes = None,
    options: OptionsText = "{}",
    require: Require = "measured",
    server: Server = "",
    lock_path: LockPath = None,
    bundle: Bundles = None,
    offline: Offline = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail when a plan is not found.")
    ] = False,
) -> None:
    """Write each model's plan for a build; what is not found is planned here.

    Asks the lock, the user's folder, bundles and the service, within two seconds all
    together. A cache that is slow, gone or broken never fails a build. One line at the
    end says what was found.
    """
    from service.cli.lookups import evidence

    started = time.monotonic()
    least = evidence(require)
    given = inputs.settings(offline=offline or None, server=server or None)
    asked = inputs.json_object("--options", options)
    inputs.require_models(models)
    places = _places(models, output_path)
    resolver, close = open_resolver(given, lock_path, bundle or ())
    try:
        for model, place in zip(models, places, strict=True):
            prepared = inputs.read_model(model, target, shape or (), asked)
            found = resolver.find(prepared.key.key, least)
            if found is None and strict:
                raise CacheMiss(
                    str(model),
                    f"no {least} plan was found",
                    hint="give a --bundle or a --server that has it, or tune and"
                    " `fuseplan lock` the model here",
                )
            document = _document(prepared, found)
            _write(place, document)
    finally:
        close()
        output.note(resolver.tally.summary(time.monotonic() - started))


def open_resolver(
    given: Settings, lock_path: Path | None, paths: tuple[Path, ...] | list[Path]
) -> tuple[Resolver, Any]:
    """Everything that a build may ask, and how to close it."""
    from service.builds import Folder, LockFile, Resolver
    from service.client import Client, ClientError

    remote = None
    opened, troubles = _opened(paths, given)
    if given.server and not given.offline:
        try:
            remote = Client(
                given.server,
                token=given.token.get_secret_value(),
                lookup_budget_seconds=given.build_seconds,
            )
        except ClientError as error:
            troubles.append(str(error))
    resolver = Resolver(
        lock=None if lock_path is None else LockFile.read(lock_path),
        folder=Folder(given.cache_folder),
        bundles=opened,
        remote=remote,
        budget_seconds=given.build_seconds,
    )
    resolver.tally.errors += troubles
    return resolver, (lambda: None) if remote is None else remote.close


def _opened(
    paths: tuple[Path, ...] | list[Path], given: Settings
) -> tuple[tuple[Bundle, ...], list[str]]:
    """Bundles that can be read, and what is wrong with the others.

    A bundle is a cache: a damaged one costs a build its plans, never its success.
    """
    from service.errors import ServiceError

    opened, troubles = [], []
    for path in paths:
        try:
            opened.append(bundles.read(path, given))
        except (BadArgument, ServiceError) as error:
            troubles.append(f"{path}: {error.problem}")
    return tuple(opened), troubles


def _document(prepared: Prepared, found: Resolved | None) -> dict[str, Any]:
    from tuner import document

    if found is None:
        return {"source": "analytic", **make(prepared).joined(), "timing": {}}
    return {
        "source": "lock" if found.is_locked else found.source,
        "plan_key": prepared.key.key,
        "digest": found.digest,
        **document.joined(json.loads(found.body), prepared.model.names),
        "timing": {},
    }


def _places(models: Sequence[Path], given: str | None) -> list[Path | None]:
    """Where the plan of each model goes; None is standard output.

    Raises:
        BadArgument: nothing can be written there, or two models would share a file.
    """
    if given is None:
        return [None] * len(models)
    path = Path(given)
    if len(models) == 1 and not (given.endswith("/") or path.is_dir()):
        inputs.require_place(path.parent, folder=True)
        if path.is_dir() or not path.name:
            inputs.require_place(path)
        return [path]
    inputs.require_place(path, folder=True)
    names = [f"{model.name}.plan.json" for model in models]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadArgument(
            str(path / twice),
            "two models would have this file",
            hint="fetch models of one name into folders of their own",
        )
    return [path / name for name in names]


def _write(path: Path | None, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    if path is None:
        output.emit(document)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadArgument(
            str(path.parent),
            f"cannot be made: {error.strerror}",
            hint="choose another -o",
        ) from error
    inputs.write_bytes(path, text.encode())


def lock(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="ONNX or graph JSON.")
    ],
    output_path: Annotated[
        Path, typer.Option("--output", "-o", help="The lock file.")
    ] = Path("fuseplan.lock"),
    target: Target = "cpu",
    shape: Shapes = None,
    options: OptionsText = "{}",
    require: Require = "measured",
    server: Server = "",
    bundle: Bundles = None,
    update: Annotated[
        bool, typer.Option("--add", help="Keep what the lock has for other keys.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Pin the plans of models: a locked build reads these bytes and no others."""
    from service.builds import LOCK_SCHEMA, LockedPlan, LockFile
    from service.cli.lookups import evidence
    from tuner.keys import COMPILERS
    from tuner.plan import CODEGEN_REVISION

    least = evidence(require)
    given = inputs.settings(server=server or None)
    asked = inputs.json_object("--options", options)
    inputs.require_place(output_path)
    inputs.require_models(models)
    resolver, close = open_resolver(given, None, bundle or ())
    kept = LockFile.read(output_path).plans if update and output_path.exists() else {}
    plans = dict(kept)
    try:
        for model in models:
            prepared = inputs.read_model(model, target, shape or (), asked)
            found = _found(model, prepared, least, resolver)
            plans[prepared.key.key] = LockedPlan(
                digest=found[0],
                evidence=found[1],
                target=prepared.device.id,
                model=model.as_posix(),
            )
    finally:
        close()
    toolchain = {"codegen_revision": CODEGEN_REVISION, "compilers": dict(COMPILERS)}
    text = LockFile(schema_=LOCK_SCHEMA, toolchain=toolchain, plans=plans).text()
    inputs.write_bytes(output_path, text.encode())
    if as_json:
        output.emit(json.loads(text))
    else:
        output.line(f"{output_path}: {len(plans)} plans")


def _found(
    model: Path, prepared: Prepared, least: Least, resolver: Resolver
) -> tuple[str, Any]:
    """Digest and evidence of the best plan; this machine's database is asked last.

    Builds do not ask that database: what it has is kept in the user's folder for them.
    """
    from service.builds import Folder, in_words
    from service.cli import lookups

    found = resolver.find(prepared.key.key, least)
    if found is not None:
        return found.digest, found.evidence
    stored = lookups.read_stored(prepared.key.key, least)
    if stored is not None:
        evidence = stored.pointer.evidence
        folder = Folder(inputs.settings().cache_folder)
        folder.keep(prepared.key.key, evidence, bytes(stored.body))
        return stored.pointer.digest, evidence
    why = resolver.tally.errors or [in_words(one) for one in resolver.tally.misses]
    raise CacheMiss(
        str(model),
        f"no {least} plan of it is stored ({why[-1] if why else 'never asked for'});"
        f" its key is {prepared.key.key}",
        hint=_TO_LOCK[least],
    )
