"""Errors as problem documents (RFC 9457), and as lines on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from service.errors import ServiceError
from service.errors.table import PROBLEMS
from service.store.errors import StoreError, StoreUnavailable
from tuner.errors import TunerError

MEDIA_TYPE: Final = "application/problem+json"

MOST_WHERE: Final = 200
MOST_TEXT: Final = 1000
"""Characters of a place, and of what is said of it: whoever names a node may name it
with a megabyte, and logs, lines and pages that quote it have no room for that."""

_LEFT_OUT: Final = "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An error, ready to be told over HTTP (RFC 9457) or on a terminal.

    Attributes:
        detail: what is wrong.
        where: the place that it is about.
        hint: what to do.
        instance: the request that it happened in.
        extra: further members, such as `reason` or `errors`.
    """

    code: str
    status: int
    exit_code: int
    title: str
    detail: str
    where: str = ""
    hint: str = ""
    instance: str = ""
    extra: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def document(self) -> dict[str, Any]:
        """The problem+json document."""
        document: dict[str, Any] = {
            "type": f"urn:fuseplan:problem:{self.code}",
            "title": self.title,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            "where": self.where,
            "hint": self.hint,
        }
        if self.instance:
            document["instance"] = f"urn:fuseplan:request:{self.instance}"
        return {**document, **self.extra}


def shortened(text: str, most: int = MOST_TEXT) -> str:
    """A text of bounded length: of a longer one the beginning and the end."""
    if len(text) <= most:
        return text
    kept = most - len(_LEFT_OUT)
    return text[: kept - kept // 2] + _LEFT_OUT + text[-(kept // 2) :]


def problem(  # noqa: PLR0913 - the members of RFC 9457, all by name
    code: str,
    detail: str,
    *,
    where: str = "",
    hint: str = "",
    instance: str = "",
    status: int | None = None,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Problem:
    """A problem by its code; what it quotes of others is shortened."""
    row = PROBLEMS[code]
    return Problem(
        code=code,
        status=row.status if status is None else status,
        exit_code=row.exit_code,
        title=row.title,
        detail=shortened(detail),
        where=shortened(where, MOST_WHERE),
        hint=shortened(hint),
        instance=instance,
        extra=extra or MappingProxyType({}),
        headers=headers or MappingProxyType({}),
    )


def problem_of(error: BaseException, *, instance: str = "", where: str = "") -> Problem:
    """How an error is told; one that nobody expected tells nothing of the inside.

    Args:
        error: what was raised.
        instance: the request that it happened in.
        where: the place to name when the error itself names none.
    """
    if isinstance(error, ServiceError):
        return problem(
            error.code,
            error.problem,
            where=error.where,
            hint=error.hint,
            instance=instance,
            extra=error.extra,
            headers=error.headers,
        )
    if isinstance(error, (TunerError, StoreError)):
        reason = (
            {"reason": error.reason} if isinstance(error, StoreUnavailable) else None
        )
        return problem(
            error.code,
            error.problem,
            where=error.where,
            hint=error.hint,
            instance=instance,
            extra=reason,
        )
    return problem(
        "unexpected",
        "the service failed in a way that nobody foresaw",
        where=where or f"request {instance}",
        hint="look for it in the log of the service, and report it",
        instance=instance,
    )


def invalid(errors: Sequence[Mapping[str, Any]], *, instance: str = "") -> Problem:
    """Violations of a schema, as pydantic lists them."""
    told = [
        {
            "where": shortened(".".join(map(str, error["loc"])), MOST_WHERE),
            "problem": shortened(str(error["msg"])),
            "code": str(error["type"]),
        }
        for error in errors
    ]
    first = told[0] if told else {"where": "request", "problem": "is wrong"}
    return problem(
        "invalid-request",
        first["problem"],
        where=first["where"],
        hint="see /openapi.json for what the route takes",
        instance=instance,
        extra={"errors": told},
    )
