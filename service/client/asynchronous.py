"""The same client for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import httpx

from service.client import answers, requests
from service.client.answers import UNSENT, checked, is_success, unavailable
from service.client.budget import (
    FAILURES,
    LEFT_OUT,
    LOOKUP_BUDGET_SECONDS,
    Budget,
    Counts,
    failed,
)
from service.client.values import (
    Event,
    Evidence,
    Found,
    Job,
    Json,
    Miss,
    StoredPlan,
    Submission,
    Submit,
)

if TYPE_CHECKING:
    from types import TracebackType


class AsyncClient:
    """A connection to one service; use it in an `async with` block.

    Methods, arguments and errors are those of `Client`. Lookups that run side by side
    spend their common budget once.
    """

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        timeout_seconds: float = 120.0,
        lookup_budget_seconds: float = LOOKUP_BUDGET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._budget = Budget(lookup_budget_seconds, clock)
        try:
            self._http = httpx.AsyncClient(
                base_url=self.address,
                headers=requests.bearer(token),
                timeout=timeout_seconds,
            )
        except UNSENT as error:
            raise unavailable(self.address, error) from error

    @property
    def counts(self) -> Counts:
        """What the lookups met so far."""
        return self._budget.counts

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def submit(self, asked: Submit) -> Submission:
        """Hand a model in; the answer holds the best plan so far."""
        request = requests.submit(asked, self._timeout_seconds)
        return answers.submission(await self._send("POST", "/v1/plans", **request))

    async def job(self, job: str) -> Job:
        """A job as it is now."""
        return answers.job(await self._send("GET", f"/v1/jobs/{job}"))

    async def cancel(self, job: str) -> None:
        """Ask for a job to end after the batch in flight."""
        checked(await self._send("DELETE", f"/v1/jobs/{job}"))

    async def get(self, path: str) -> Json:
        """Any other resource of the service."""
        return checked(await self._send("GET", path))

    async def events(self, job: str, *, after: str = "") -> AsyncIterator[Event]:
        """The events of a job, past and to come, until it is over."""
        last = after
        try:
            for _ in requests.spare_tries("GET", requests.events_of(job)):
                with suppress(*requests.CUT_OFF):
                    async for event in self._events(job, last):
                        last = event.id or last
                        yield event
                    return
            async for event in self._events(job, last):
                yield event
        except UNSENT as error:
            raise unavailable(self.address + requests.events_of(job), error) from error

    async def lookup(
        self, key: str, *, evidence: Evidence = "analytic"
    ) -> StoredPlan | Miss:
        """The stored plan of a key; never raises, takes no longer than the budget."""
        try:
            answer = await self._read(requests.plan(key, evidence))
            found = answers.stored(key, answer)
        except FAILURES as error:
            found = failed(error)
        return self._budget.count(found)

    async def lookup_many(
        self, keys: Sequence[str], *, evidence: Evidence = "analytic"
    ) -> dict[str, Found | Miss]:
        """Where the plans of many keys are, in a round trip for each thousand.

        Never raises, shares the budget of the lookups; `blob` gives the bodies.
        """
        wanted = tuple(dict.fromkeys(keys))
        told: dict[str, Found | Miss] = {}
        missed = LEFT_OUT
        try:
            for asked in requests.many(wanted, evidence):
                told |= answers.many(await self._read(asked))
        except FAILURES as error:
            missed = failed(error)
        return {key: self._budget.count(told.get(key, missed)) for key in wanted}

    async def blob(self, digest: str) -> bytes | Miss:
        """The bytes of a digest; never raises, shares the budget of the lookups."""
        try:
            return answers.content(await self._read(requests.blob(digest)))
        except FAILURES as error:
            return failed(error)

    async def export_bundle(self, **query: Any) -> bytes:
        """Plans of the service as a bundle."""
        answer = await self._send("GET", requests.BUNDLES, params=query)
        if not is_success(answer):
            checked(answer)
        return answer.content

    async def import_bundle(self, data: bytes) -> Json:
        """Hand a bundle in; gives the keys that it holds and those that it changed."""
        sent = {"content": data, "headers": dict(requests.ZSTD)}
        return checked(await self._send("POST", requests.BUNDLES, **sent))

    async def _events(self, job: str, after: str) -> AsyncIterator[Event]:
        """The events of one stream; fails as httpx does."""
        draft = answers.Draft()
        async with self._http.stream("GET", **requests.events(job, after)) as answer:
            if not is_success(answer):
                await answer.aread()
                checked(answer)
            async for line in answer.aiter_lines():
                event = draft.take(line)
                if event is not None:
                    yield event

    async def _read(self, asked: Mapping[str, Any]) -> httpx.Response:
        """A whole answer within the budget, however slowly it drips.

        Raises:
            TimeoutError: the budget is spent.
        """
        with self._budget.spending() as deadline:
            left = self._budget.left(deadline)
            if left <= 0:
                raise TimeoutError
            async with asyncio.timeout(left):
                given = {"method": "GET", "timeout": left, **asked}
                return await self._request(**given)

    async def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            return await self._request(method, path, **request)
        except UNSENT as error:
            raise unavailable(self.address + path, error) from error

    async def _request(self, method: str, url: str, **request: Any) -> httpx.Response:
        for _ in requests.spare_tries(method, url):
            with suppress(*requests.CUT_OFF):
                return await self._http.request(method, url, **request)
        return await self._http.request(method, url, **request)
