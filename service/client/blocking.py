"""The client that waits for its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
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


class Client:
    """A connection to one service; use it in a `with` block.

    Args:
        address: for example `http://127.0.0.1:8321`.
        token: bearer token, where the service asks for one.
        timeout_seconds: for everything but lookups and streams.
        lookup_budget_seconds: what all lookups together may take.
        clock: seconds that only grow.

    Raises:
        ServiceUnavailable: the address or the token cannot be one.
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
            self._http = httpx.Client(
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def submit(self, asked: Submit) -> Submission:
        """Hand a model in; the answer holds the best plan so far.

        Raises:
            Refused, ServiceUnavailable: see the classes.
        """
        request = requests.submit(asked, self._timeout_seconds)
        return answers.submission(self._send("POST", "/v1/plans", **request))

    def job(self, job: str) -> Job:
        """A job as it is now."""
        return answers.job(self._send("GET", f"/v1/jobs/{job}"))

    def cancel(self, job: str) -> None:
        """Ask for a job to end after the batch in flight."""
        checked(self._send("DELETE", f"/v1/jobs/{job}"))

    def get(self, path: str) -> Json:
        """Any other resource of the service."""
        return checked(self._send("GET", path))

    def events(self, job: str, *, after: str = "") -> Iterator[Event]:
        """The events of a job, past and to come, until it is over.

        A stream that is cut off goes on once, behind the last event that came.

        Args:
            job: id of the job.
            after: id of the last event seen; the stream goes on behind it.

        Raises:
            Refused, ServiceUnavailable: see the classes.
        """
        last = after
        try:
            for _ in requests.spare_tries("GET", requests.events_of(job)):
                with suppress(*requests.CUT_OFF):
                    for event in self._events(job, last):
                        last = event.id or last
                        yield event
                    return
            yield from self._events(job, last)
        except UNSENT as error:
            raise unavailable(self.address + requests.events_of(job), error) from error

    def lookup(self, key: str, *, evidence: Evidence = "analytic") -> StoredPlan | Miss:
        """The stored plan of a key; never raises, never takes longer than the budget.

        Args:
            key: plan key.
            evidence: least evidence that will do.
        """
        try:
            answer = self._read(requests.plan(key, evidence))
            found = answers.stored(key, answer)
        except FAILURES as error:
            found = failed(error)
        return self._budget.count(found)

    def lookup_many(
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
                told |= answers.many(self._read(asked))
        except FAILURES as error:
            missed = failed(error)
        return {key: self._budget.count(told.get(key, missed)) for key in wanted}

    def blob(self, digest: str) -> bytes | Miss:
        """The bytes of a digest; never raises, shares the budget of the lookups."""
        try:
            return answers.content(self._read(requests.blob(digest)))
        except FAILURES as error:
            return failed(error)

    def export_bundle(self, **query: Any) -> bytes:
        """Plans of the service as a bundle.

        Args:
            query: `key` (a list), `target`, `evidence`, as the route takes them.
        """
        answer = self._send("GET", requests.BUNDLES, params=query)
        if not is_success(answer):
            checked(answer)
        return answer.content

    def import_bundle(self, data: bytes) -> Json:
        """Hand a bundle in; gives the keys that it holds and those that it changed."""
        headers = dict(requests.ZSTD)
        answer = self._send("POST", requests.BUNDLES, content=data, headers=headers)
        return checked(answer)

    def _events(self, job: str, after: str) -> Iterator[Event]:
        """The events of one stream; fails as httpx does."""
        with self._http.stream("GET", **requests.events(job, after)) as answer:
            if not is_success(answer):
                answer.read()
                checked(answer)
            yield from answers.parse_events(answer.iter_lines())

    def _read(self, asked: Mapping[str, Any]) -> httpx.Response:
        """A whole answer within the budget, however slowly it drips.

        Raises:
            TimeoutError: the budget is spent.
        """
        with self._budget.spending() as deadline:
            left = self._budget.left(deadline)
            if left <= 0:
                raise TimeoutError
            coming: Future[httpx.Response] = Future()
            given = (coming, asked, deadline)
            threading.Thread(target=self._exchange, args=given, daemon=True).start()
            return coming.result(timeout=left)

    def _exchange(
        self,
        coming: Future[httpx.Response],
        asked: Mapping[str, Any],
        deadline: float,
    ) -> None:
        """Give an answer, or what became of it, to the one who waits for it.

        In a thread of its own: httpx and the look-up of names have time limits for
        single steps at most, so that only the one who waits can end the whole.
        """
        try:
            coming.set_result(self._answer(asked, deadline))
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            coming.set_exception(error)

    def _answer(self, asked: Mapping[str, Any], deadline: float) -> httpx.Response:
        given = {"method": "GET", **asked}
        for _ in requests.spare_tries(given["method"], given["url"]):
            with suppress(*requests.CUT_OFF):
                return self._whole(given, deadline)
        return self._whole(given, deadline)

    def _whole(self, given: Mapping[str, Any], deadline: float) -> httpx.Response:
        parts = []
        left = self._budget.left(deadline)
        with self._http.stream(timeout=left, **given) as answer:
            for part in answer.iter_raw():
                if self._budget.left(deadline) <= 0:
                    raise TimeoutError
                parts.append(part)
        return httpx.Response(
            answer.status_code,
            headers=answer.headers,
            content=b"".join(parts),
            request=answer.request,
        )

    def _send(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            for _ in requests.spare_tries(method, path):
                with suppress(*requests.CUT_OFF):
                    return self._http.request(method, path, **request)
            return self._http.request(method, path, **request)
        except UNSENT as error:
            raise unavailable(self.address + path, error) from error
