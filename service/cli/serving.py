"""Commands that start long-lived processes, and the database they share."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from service.cli import inputs, output

_GRACE_SECONDS: Final = 5
"""How long open streams may last after an interrupt."""


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(epilog="Example: fuseplan serve --port 8321")(serve)
    app.command(epilog="Example: fuseplan worker --device cpu")(worker)
    group = typer.Typer(help="Look after the database.", no_args_is_help=True)
    group.command(epilog="Example: fuseplan db upgrade")(upgrade)
    group.callback()(_group)
    app.add_typer(group, name="db", epilog="Example: fuseplan db upgrade")


def _group() -> None:
    """Look after the database."""


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

    from service.app import create_app

    given = inputs.settings(
        host=host,
        port=port,
        device=device,
        worker=False if no_worker else None,
        database_url=database_url,
    )
    application = create_app(given)
    output.note(f"fuseplan: {given.address} (database {given.url})")
    uvicorn.run(
        application,
        host=given.host,
        port=given.port,
        log_config=None,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )


def worker(
    device: Annotated[
        str | None, typer.Option("--device", "-d", help="Device to measure on.")
    ] = None,
) -> None:
    """Tune what the service has queued, on one device."""


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
        output.emit({"database": given.url, "revision": revision})
    else:
        output.line(f"{given.url} is at revision {revision}")
