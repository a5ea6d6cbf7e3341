"""Commands for plans in one file: bundle export, import, key."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from service.cli import inputs, output
from service.cli.exits import BadArgument
from service.cli.planning import AsJson

if TYPE_CHECKING:
    from service.bundle import Bundle
    from service.cli.lookups import Least
    from service.settings import Settings

Server = Annotated[
    str, typer.Option("--server", help="Address of a service; FUSEPLAN_SERVER else.")
]
LockPath = Annotated[
    Path | None, typer.Option("--lock", help="A fuseplan.lock: only pinned plans.")
]
Require = Annotated[
    str, typer.Option("--require", help="Least evidence: analytic, compiled, measured.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Plans in one file.", no_args_is_help=True)
    group.command("export", epilog="Example: fuseplan bundle export -o plans.tar.zst")(
        export_bundle
    )
    group.command("import", epilog="Example: fuseplan bundle import plans.tar.zst")(
        import_bundle
    )
    group.command("key", epilog="Example: fuseplan bundle key release.pem")(create_key)
    app.add_typer(
        group, name="bundle", epilog="Example: fuseplan bundle export -o p.tar.zst"
    )


def read(path: Path, given: Settings) -> Bundle:
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
        with inputs.own_database() as database:
            data = bundle.pack(collect(database, selection), key=given.bundle_key)
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
        opened = read(path, given)
        with inputs.own_database() as database:
            taken = take_in(database, opened, clock=lambda: datetime.now(UTC))
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
