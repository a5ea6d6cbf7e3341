"""Where pages get their figures: the public JSON API of the same application.

A page asks the API as any other client would, in the same process and without a
socket, so that it can never show a figure that the API does not give.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final

import httpx
from fastapi import Depends, Request

Json = Mapping[str, Any]

_PASSED_ON: Final = ("authorization", "cookie", "x-request-id")
"""Headers of the page's request that the API sees: who asks, and for which request."""
_ERROR: Final = 400
_PLAIN: Final = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^\x00-\x20?#%\\/]+)+")
"""A path whose parts are names: what a page was asked for stands in it."""


class ApiProblem(Exception):
    """The API refused, with the problem document that a page shows.

    Attributes:
        status: HTTP status.
        document: the RFC 9457 problem.
    """

    def __init__(self, status: int, document: Json) -> None:
        self.status = status
        self.document = document
        super().__init__(str(document.get("detail", status)))


class Api:
    """The JSON API as the asker of one page may see it.

    What a page asks twice is asked once: all its figures are of one moment.
    """

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self._answers: dict[tuple[str, str], Json] = {}

    async def get(self, path: str, **query: str | int | None) -> Json:
        """A resource of the API.

        Raises:
            ApiProblem: the API answers with a problem.
        """
        asked = (path, repr(sorted(query.items())))
        if asked in self._answers:
            return self._answers[asked]
        answer = await self._ask(path, query)
        if answer.status_code >= _ERROR:
            raise ApiProblem(answer.status_code, _document(answer))
        self._answers[asked] = dict(answer.json())
        return self._answers[asked]

    async def text(self, path: str, **query: str | int | None) -> str:
        """A resource that is text: a kernel's source, the counters.

        Raises:
            ApiProblem: the API answers with a problem.
        """
        answer = await self._ask(path, query)
        if answer.status_code >= _ERROR:
            raise ApiProblem(answer.status_code, _document(answer))
        return answer.text

    async def find_text(self, path: str) -> str:
        """The same, or "" where the API answers with a problem."""
        try:
            return await self.text(path)
        except ApiProblem:
            return ""

    async def find(self, path: str, **query: str | int | None) -> Json | None:
        """The same, or None where the API answers with a problem."""
        try:
            return await self.get(path, **query)
        except ApiProblem:
            return None

    async def _ask(self, path: str, query: Mapping[str, Any]) -> httpx.Response:
        if not _PLAIN.fullmatch(path):
            raise ApiProblem(
                httpx.codes.NOT_FOUND,
                {
                    "title": "There is no such page",
                    "detail": "The address holds a name that nothing here can have.",
                    "hint": "open it from a list, or copy the whole name",
                },
            )
        asked = {name: value for name, value in query.items() if value is not None}
        return await self._http.get(path, params=asked)


async def open_api(request: Request) -> AsyncIterator[Api]:
    """The API of the application that a page was asked of; a dependency."""
    headers = {
        name: request.headers[name] for name in _PASSED_ON if name in request.headers
    }
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=request.app, client=_client(request)),
        base_url=str(request.base_url),
        headers=headers,
        trust_env=False,
    ) as http:
        yield Api(http)


ApiDep = Annotated[Api, Depends(open_api, scope="function")]


def _client(request: Request) -> tuple[str, int]:
    asker = request.client
    return ("127.0.0.1", 0) if asker is None else (asker.host, asker.port)


def _document(answer: httpx.Response) -> Json:
    try:
        return dict(answer.json())
    except ValueError:
        return {"title": f"HTTP {answer.status_code}", "code": "unexpected"}
