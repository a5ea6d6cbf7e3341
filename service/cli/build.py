"""Commands for builds and for who looks after them: fetch, lock, bundle, token."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli import inputs, output
from service.cli.exits import BadArgument, CacheMiss
from service.cli.planning import AsJson, OptionsText, Shapes, Target, make

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from service.builds import Resolved, Resolver
    from service.bundle import Bundle
    from service.cli.lookups import Least
    from service.jobs.planning import Prepared
    from service.settings import Settings
    from service.store import Database

Server = Annotated[
    str, typer.Option("--server", help="Address of a service; FUSEPLAN_SERVER else.")
]
LockPath = Annotated[
    Path | None, typer.Option("--lock", help="A fuseplan.lock: only pinned plans.")
]
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

Require = Annotated[
    str, typer.Option("--require", help="Least evidence: analytic, compiled, measured.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(
        epilog="Example: fuseplan fetch model.onnx -t sm_90 -o model.plan.json"
    )(fetch)
    app.command(epilog="Example: fuseplan lock model.onnx -t sm_90 -o fuseplan.lock")(
        lock
    )
    bundles = typer.Typer(help="Plans in one file.", no_args_is_help=True)
    bundles.command(
        "export", epilog="Example: fuseplan bundle export -o plans.tar.zst"
    )(export_bundle)
    bundles.command("import", epilog="Example: fuseplan bundle import plans.tar.zst")(
        import_bundle
    )
    bundles.command("key", epilog="Example: fuseplan bundle key release.pem")(
        create_key
    )
    app.add_typer(
        bundles, name="bundle", epilog="Example: fuseplan bundle export -o p.tar.zst"
    )
    keys = typer.Typer(help="Who may ask the service.", no_args_is_help=True)
    keys.command(
        "create", epilog="Example: fuseplan token create ci --scope plans:read"
    )(create_token)
    keys.command("list", epilog="Example: fuseplan token list")(list_tokens)
    keys.command("revoke", epilog="Example: fuseplan token revoke ci")(revoke_token)
    app.add_typer(keys, name="token", epilog="Example: fuseplan token list")


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
    given: Settings, lock_path: Path | None, bundles: tuple[Path, ...] | list[Path]
) -> tuple[Resolver, Any]:
    """Everything that a build may ask, and how to close it."""
    from service.builds import Folder, LockFile, Resolver
    from service.client import Client

    remote = None
    if given.server and not given.offline:
        remote = Client(
            given.server,
            token=given.token.get_secret_value(),
            lookup_budget_seconds=given.build_seconds,
        )
    opened, troubles = _opened(bundles, given)
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
            opened.append(read_bundle(path, given))
        except (BadArgument, ServiceError) as error:
            troubles.append(f"{path}: {error.problem}")
    return tuple(opened), troubles


def read_bundle(path: Path, given: Settings) -> Bundle:
    """The bundle of a file.

    Raises:
        BadArgument: the file cannot be read.
        BadBundle, BundleTooLarge: it is damaged, or unfolds to too much.
    """
    from service import signing
    from service.bundle import unpack

    return unpack(
        inputs.read_bytes(path, "bundle"),
        max_bytes=given.max_bundle_bytes,
        trusted=signing.trusted_keys(given.bundle_trust),
    )


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


def export_bundle(
    output_path: Annotated[
        Path, typer.Option("--output", "-o", help="File that takes the bundle.")
    ],
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Only this plan key.")
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Only plans for this device.")
    ] = None,
    require: Require = "analytic",
    lock_path: LockPath = None,
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Write plans with all that they name into one file."""
    from service import bundle
    from service.builds import LockFile
    from service.cli.lookups import evidence
    from service.jobs.bundling import Selection, collect

    least = evidence(require)
    given = inputs.settings(server=server or None)
    inputs.require_place(output_path)
    keys = list(key or ())
    if wrong := next((one for one in keys if not inputs.is_key(one)), None):
        raise BadArgument(
            "--key", f"{wrong!r} is no plan key", hint="64 digits of `fuseplan plan`"
        )
    if lock_path is not None:
        keys += LockFile.read(lock_path).plans
    if given.server:
        data = _export_remote(given, keys, target, least)
    else:
        selection = Selection(
            keys=tuple(keys),
            target=target,
            least=least,
            max_bytes=given.max_bundle_bytes,
        )
        database = _database(given)
        try:
            data = bundle.pack(collect(database, selection), key=given.bundle_key)
        finally:
            database.close()
    inputs.write_bytes(output_path, data)
    made = bundle.unpack(data, max_bytes=given.max_bundle_bytes)
    told = {
        "output": str(output_path),
        "bytes": len(data),
        "plans": sorted({plan.key for plan in made.plans}),
    }
    if as_json:
        output.emit(told)
    else:
        output.line(f"{output_path}: {len(told['plans'])} plans, {len(data)} bytes")  # type: ignore[arg-type]


def _export_remote(
    given: Settings, keys: list[str], target: str | None, least: Least
) -> bytes:
    from service.client import Client

    with Client(given.server, token=given.token.get_secret_value()) as client:
        query: dict[str, Any] = {"evidence": least}
        if keys:
            query["key"] = keys
        if target is not None:
            query["target"] = target
        return client.export_bundle(**query)


def import_bundle(
    path: Annotated[Path, typer.Argument(metavar="BUNDLE", help="A .tar.zst file.")],
    server: Server = "",
    as_json: AsJson = False,
) -> None:
    """Take the plans of a bundle over, where they are better than what is stored."""
    from service.client import Client
    from service.jobs.bundling import take_in

    given = inputs.settings(server=server or None)
    if given.server:
        token = given.token.get_secret_value()
        with Client(given.server, token=token) as client:
            told = dict(client.import_bundle(inputs.read_bytes(path, "bundle")))
    else:
        opened = read_bundle(path, given)
        database = _database(given)
        try:
            taken = take_in(database, opened, clock=lambda: datetime.now(UTC))
        finally:
            database.close()
        told = {"keys": list(taken.keys), "added": list(taken.added)}
    if as_json:
        output.emit(told)
    else:
        output.line(f"{path}: {len(told['keys'])} plans, {len(told['added'])} new")


def create_key(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Takes the key.")],
    as_json: AsJson = False,
) -> None:
    """Make a key that signs bundles; prints the public key that others trust."""
    from service.signing import create_key as create

    public = create(path)
    if as_json:
        output.emit({"key": str(path), "public": public})
    else:
        output.line(public)
        output.note(
            f"Sign with FUSEPLAN_BUNDLE_KEY={path}; trust with"
            f" FUSEPLAN_BUNDLE_TRUST={public}"
        )


def create_token(
    name: Annotated[str, typer.Argument(help="Who or what uses it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="plans:read, jobs:submit, plans:write, admin."),
    ] = None,
    days: Annotated[
        int | None, typer.Option("--days", min=1, help="How long it is valid.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a bearer token; its text is shown once and stored nowhere."""
    import secrets

    from service.errors import TokenExists
    from service.store import audit, tokens
    from service.store.audit import AuditDraft
    from service.store.tokens import SCOPES, Token

    words = scope or ["plans:read"]
    if unknown := sorted(set(words) - set(SCOPES)):
        raise BadArgument(
            "--scope", f"{unknown[0]!r} is none", hint=f"one of {', '.join(SCOPES)}"
        )
    text = f"fp_{secrets.token_urlsafe(32)}"
    now = datetime.now(UTC)
    token = Token(
        id=secrets.token_hex(8),
        name=name,
        hash=tokens.hash_of(text),
        scopes=tokens.scopes_of(words),
        created_at=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    database = _database(inputs.settings())
    try:
        with database.write() as session:
            if tokens.find(session, name) is not None:
                raise TokenExists(
                    name,
                    "a token of this name exists, or did",
                    hint="take another name; `fuseplan token list` shows them",
                )
            tokens.add(session, token)
            draft = AuditDraft(actor="cli", action="token.create", subject=name)
            audit.record(session, draft, now=now)
    finally:
        database.close()
    if as_json:
        output.emit({"name": name, "token": text, "scopes": list(token.scopes)})
    else:
        output.line(text)
        output.note("fuseplan: keep it now; it is shown only once")


def list_tokens(as_json: AsJson = False) -> None:
    """Show every token that was made: name, scopes, and whether it is valid."""
    from service.store import tokens

    database = _database(inputs.settings())
    try:
        with database.read() as session:
            found = tokens.everyone(session)
    finally:
        database.close()
    now = datetime.now(UTC)
    rows = [
        {
            "name": one.name,
            "scopes": list(one.scopes),
            "state": "valid" if one.is_valid(now) else "ended",
            "created_at": one.created_at.isoformat(),
            "expires_at": one.expires_at and one.expires_at.isoformat(),
            "revoked_at": one.revoked_at and one.revoked_at.isoformat(),
        }
        for one in found
    ]
    if as_json:
        output.emit({"tokens": rows})
        return
    cells = [(r["name"], ", ".join(r["scopes"]), r["state"]) for r in rows]  # type: ignore[arg-type]
    output.table(("name", "scopes", "state"), cells)  # type: ignore[arg-type]


def revoke_token(
    name: Annotated[str, typer.Argument(help="Name of the token.")],
    as_json: AsJson = False,
) -> None:
    """End a token; a running service knows within a second."""
    from service.errors import TokenNotFound
    from service.store import audit, tokens
    from service.store.audit import AuditDraft

    now = datetime.now(UTC)
    database = _database(inputs.settings())
    try:
        with database.write() as session:
            if tokens.revoke(session, name, now=now) is None:
                raise TokenNotFound(
                    name, "no token has this name", hint="see `fuseplan token list`"
                )
            draft = AuditDraft(actor="cli", action="token.revoke", subject=name)
            audit.record(session, draft, now=now)
    finally:
        database.close()
    if as_json:
        output.emit({"name": name, "state": "ended"})
    else:
        output.line(f"{name} is revoked")


def _database(given: Settings) -> Database:
    """This machine's database, with its tables up to date."""
    from service.store import connect, schema

    schema.upgrade(given.url, busy_timeout_seconds=given.busy_timeout_seconds)
    return connect(given.url, busy_timeout_seconds=given.busy_timeout_seconds)
