"""Commands for who may ask the service: token create, list, revoke."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from service.cli import inputs, output
from service.cli.exits import BadArgument
from service.cli.planning import AsJson


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = typer.Typer(help="Who may ask the service.", no_args_is_help=True)
    group.command(
        "create", epilog="Example: fuseplan token create ci --scope plans:read"
    )(create_token)
    group.command("list", epilog="Example: fuseplan token list")(list_tokens)
    group.command("revoke", epilog="Example: fuseplan token revoke ci")(revoke_token)
    app.add_typer(group, name="token", epilog="Example: fuseplan token list")


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
    with inputs.own_database() as database, database.write() as session:
        if tokens.find(session, name) is not None:
            raise TokenExists(
                name,
                "a token of this name exists, or did",
                hint="take another name; `fuseplan token list` shows them",
            )
        tokens.add(session, token)
        draft = AuditDraft(actor="cli", action="token.create", subject=name)
        audit.record(session, draft, now=now)
    if as_json:
        output.emit({"name": name, "token": text, "scopes": list(token.scopes)})
    else:
        output.line(text)
        output.note("fuseplan: keep it now; it is shown only once")


def list_tokens(as_json: AsJson = False) -> None:
    """Show every token that was made: name, scopes, and whether it is valid."""
    from service.store import tokens

    with inputs.own_database() as database, database.read() as session:
        found = tokens.everyone(session)
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
    with inputs.own_database() as database, database.write() as session:
        if tokens.revoke(session, name, now=now) is None:
            raise TokenNotFound(
                name, "no token has this name", hint="see `fuseplan token list`"
            )
        draft = AuditDraft(actor="cli", action="token.revoke", subject=name)
        audit.record(session, draft, now=now)
    if as_json:
        output.emit({"name": name, "state": "ended"})
    else:
        output.line(f"{name} is revoked")
