"""Commands that start long-lived processes, and the database they share."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
from gc import collect, freeze
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from service.cli import inputs, output
from service.cli.exits import BadArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from fastapi import FastAPI
    from starlette.types import Message, Receive, Scope, Send

    from service.settings import Settings
    from service.store import Database

_GRACE_SECONDS: Final = 5
"""How long open streams may last after an interrupt."""

_SWITCH_SECONDS: Final = 0.001
"""How long a thread computes before another one may."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan serve --port 8321")(serve)
    app.command(epilog="Example: fuseplan worker --device cpu")(worker)
    group = typer.Typer(help="Look after the database.", no_args_is_help=True)
    group.command(epilog="Example: fuseplan db upgrade")(upgrade)
    group.command(epilog="Example: fuseplan db gc --dry-run")(gc)
    group.command(epilog="Example: fuseplan db verify")(verify)
    group.command(epilog="Example: fuseplan db backup copy.db")(backup)
    group.callback()(_group)
    app.add_typer(group, name="db", epilog="Example: fuseplan db upgrade")


def _group() -> None:
    """Look after the database."""


def location(given: Settings) -> str:
    """The address of the database as people and logs may see it: without a password."""
    from service.store.address import shown

    return shown(given.url)


def serve(
    host: Annotated[
        str | None, typer.Option("--host", help="Address to listen on.")
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", "-p", help="Port to listen on; 0 is any.")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Device to tune on beside it.")
    ] = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Answer requests only; tune elsewhere.")
    ] = False,
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="SQLAlchemy address.")
    ] = None,
) -> None:
    """Answer over HTTP, show the dashboard, and tune beside it."""
    import uvicorn

    from service.api.protocol import Protocol
    from service.app import configure_logging, create_app
    from service.jobs.planning import target_of

    given = inputs.settings(
        host=host,
        port=port,
        device=device,
        worker=False if no_worker else None,
        database_url=database_url,
    )
    if given.worker:
        target_of(given.device)  # a device that cannot be is told before all else
    configure_logging(given)
    with listening(given.host, given.port) as listener:
        address = f"http://{given.host}:{listener.getsockname()[1]}"

        def started() -> None:
            settle()
            output.note(f"fuseplan: {address} (database {location(given)})")

        application = Remembering(create_app(given), started)
        config = uvicorn.Config(
            application,
            http=Protocol,
            loop="uvloop",
            log_config=None,
            access_log=False,  # our own log has a line for each request
            log_level="critical",  # errors are told once: by us, or by our own log
            timeout_graceful_shutdown=_GRACE_SECONDS,
            timeout_keep_alive=given.keep_alive_seconds,
        )
        server = uvicorn.Server(config)
        with contextlib.suppress(SystemExit):  # how the server ends a failed start
            server.run(sockets=[listener])
    if application.error is not None:
        raise application.error


def settle() -> None:
    """Tell Python that what was loaded stays, and that requests should not wait.

    A full collection looks at every object; all of those from the start live for ever.
    A thread that computes gives way to the one that answers requests after a
    millisecond instead of five.
    """
    collect()
    freeze()
    sys.setswitchinterval(_SWITCH_SECONDS)


class Remembering:
    """An application that tells when it has started, and keeps why it could not.

    The server logs such an error and ends; a command has to tell it as its own.
    """

    def __init__(self, application: FastAPI, started: Callable[[], None]) -> None:
        """Take the application, and what is to be called when it has started."""
        self._application = application
        self._started = started
        self.error: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] != "lifespan":
            await self._application(scope, receive, send)
            return

        async def hear(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._started()
            await send(message)

        try:
            await self._application(scope, receive, hear)
        except Exception as error:
            self.error = error
            raise


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address.

    Raises:
        BadArgument: the address is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise BadArgument(
            f"{host}:{port}",
            f"cannot be listened on: {_reason(error)}",
            hint="choose another --host or --port, or stop what listens there",
        ) from error


def _reason(error: OSError) -> str:
    """What the system says; names that nobody knows have numbers of their own."""
    code = error.errno or 0
    return os.strerror(code) if code > 0 else str(error.strerror).partition(" (")[0]


def worker(
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Device to measure on.")
    ] = None,
    queue: Annotated[
        str,
        typer.Option("--queue", help="The queue that it must serve; auto is its own."),
    ] = "auto",
    database_url: Annotated[
        str | None, typer.Option("--database-url", help="SQLAlchemy address.")
    ] = None,
) -> None:
    """Tune what the service has queued, on one device, until told to end."""
    from functools import partial

    from service.app import configure_logging, run_worker
    from service.jobs.devices import make_room, open_in
    from service.jobs.planning import queue_of, target_of

    given = inputs.settings(device=device, database_url=database_url)
    own = queue_of(target_of(given.device))
    if queue not in {"auto", own}:
        raise BadArgument(
            f"--queue {queue}",
            f"what {given.device} measures counts for the queue {own}",
            hint=f"--queue {own}, or auto, which is the queue of the device",
        )
    configure_logging(given)
    measuring = make_room(
        worker_niceness=given.worker_niceness, measure_niceness=given.measure_niceness
    )
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    output.note(f"fuseplan: tuning on {given.device} (database {location(given)})")
    run_worker(given, lambda: _wait(told), partial(open_in, measuring))


def _wait(told: threading.Event) -> None:
    """Wait for SIGTERM; an interrupt ends the wait as an exception."""
    while not told.wait(0.5):
        pass


def upgrade(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create the database, or bring its tables up to date."""
    from service.store import schema

    given = inputs.settings()
    revision = schema.upgrade(
        given.url, busy_timeout_seconds=given.busy_timeout_seconds
    )
    if as_json:
        output.emit({"database": location(given), "revision": revision})
    else:
        output.line(f"{location(given)} is at revision {revision}")


def gc(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, and keep it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove what is older than the settings keep, and what nothing names."""
    from dataclasses import asdict
    from datetime import UTC, datetime

    from service.jobs.upkeep import collect, retention

    given = inputs.settings()
    with _opened(given) as database:
        gone = collect(database, retention(given, datetime.now(UTC)), keep=dry_run)
    if as_json:
        output.emit({**asdict(gone), "dry_run": dry_run})
        return
    verb = "would go" if dry_run else "gone"
    output.line(
        f"{verb}: {gone.revisions} older plans, {gone.jobs} jobs,"
        f" {gone.audit_events} audit events, {gone.blobs} blobs"
        f" ({gone.blob_bytes} bytes)"
    )


def verify(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check that every plan that is served is there, byte for byte."""
    from service.store import StoreDamaged, retention

    given = inputs.settings()
    with _opened(given) as database, database.read() as session:
        found = list(retention.faults(session))
    if found:
        raise StoreDamaged(location(given), found)
    if as_json:
        output.emit({"database": location(given), "faults": []})
    else:
        output.line(f"{location(given)}: every plan is whole")


def backup(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Takes the copy.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Copy a SQLite database while the service goes on; PostgreSQL has pg_dump."""
    from service.store import backups

    given = inputs.settings()
    if path.exists():
        raise BadArgument(
            str(path),
            "exists already, and a copy replaces nothing",
            hint="name a file that is not there, or remove this one first",
        )
    inputs.require_place(path, "FILE")
    size = backups.copy(given.url, path)
    if as_json:
        output.emit({"database": location(given), "file": str(path), "bytes": size})
    else:
        output.line(f"{path}: {size} bytes")


@contextlib.contextmanager
def _opened(given: Settings) -> Iterator[Database]:
    from service.app import open_database

    database = open_database(given)
    try:
        yield database
    finally:
        database.close()
