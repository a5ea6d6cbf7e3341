"""Where a stored plan is found: a service, or the database of this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from service.builds import in_words
from service.cli.exits import BadArgument, CacheMiss, ServiceDown
from service.cli.inputs import settings
from service.store import plans, schema
from service.store.database import connect
from service.store.errors import StoreError
from service.store.filesystem import database_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from service.store.plans import StoredPlan

Least = Literal["analytic", "compiled", "measured"]

UNUSABLE: Final = (ServiceDown, StoreError)
"""Errors that a build survives: it plans without the cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A stored plan, and whether a service or the database gave it."""

    source: Literal["service", "database"]
    digest: str
    body: Mapping[str, Any]


def evidence(word: str) -> Least:
    """The least evidence that a word asks for.

    Raises:
        BadArgument: it is none of the three.
    """
    for known in get_args(Least):
        if word == known:
            return known  # type: ignore[no-any-return]
    raise BadArgument(
        "--require",
        f"{word!r} is no evidence",
        hint=f"one of {', '.join(get_args(Least))}",
    )


def find(key: str, least: Least, server: str) -> Found:
    """The best stored plan of a key.

    Raises:
        CacheMiss: there is none of this evidence.
        ServiceDown: the service gave no answer.
        StoreUnavailable: the database cannot be read.
    """
    return _ask(key, least, server) if server else _read(key, least)


def _ask(key: str, least: Least, server: str) -> Found:
    from service.client import Client, Miss

    with Client(server, token=settings().token.get_secret_value()) as client:
        found = client.lookup(key, evidence=least)
    if isinstance(found, Miss):
        if found.error:
            raise ServiceDown(server, found.error, hint="start `fuseplan serve`")
        raise _miss(key, least, found.reason)
    return Found(source="service", digest=found.digest, body=found.body)


def _read(key: str, least: Least) -> Found:
    found = read_stored(key, least)
    if found is None:
        raise _miss(key, least, "unknown")
    digest = found.pointer.digest
    return Found(source="database", digest=digest, body=json.loads(found.body))


def read_stored(key: str, least: Least = "analytic") -> StoredPlan | None:
    """The best plan of a key in this machine's database; it is never created here."""
    given = settings()
    file = database_file(given.url)
    if file is not None and not file.exists():
        return None
    database = connect(given.url, busy_timeout_seconds=given.busy_timeout_seconds)
    try:
        schema.revision(database)
        with database.read() as session:
            wanted = plans.ORDER[: plans.ORDER.index(least) + 1]
            return plans.find(session, key, wanted)
    finally:
        database.close()


def _miss(key: str, least: Least, reason: str) -> CacheMiss:
    what = "plan" if least == "analytic" else f"{least} plan"
    less = "" if least == "analytic" else ", or take less with --require analytic"
    return CacheMiss(
        key,
        f"no {what} is stored ({in_words(reason)})",
        hint="`fuseplan tune MODEL` measures one here, a service keeps what is handed"
        f" in (--server){less}",
    )
