"""Tests of many requests at once: those that wait keep no others waiting."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from service.api.context import PLANNING_THREADS, Context
from service.app import create_app, new_id, now, running
from service.jobs.planning import Outline, Planner, Question
from service.jobs.submission import Submissions
from service.settings import Settings
from service.store.plans import PlanRevision
from tests.service.api.conftest import settings
from tests.service.api.models import graph_onnx
from tests.service.tables import furnish
from tests.waiting import PATIENCE_SECONDS

MODELS = 60
"""More than there are threads (40, `anyio.to_thread`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slow:
    """A planner that is busy until it is let go.

    Attributes:
        let_go: once set, models are planned.
    """

    planner: Planner
    let_go: threading.Event = field(default_factory=threading.Event)

    def outline(self, question: Question) -> Outline:
        """As the planner says, after the wait."""
        assert self.let_go.wait(PATIENCE_SECONDS)
        return self.planner.outline(question)

    def plan(self, question: Question) -> PlanRevision:
        """As the planner says."""
        return self.planner.plan(question)


def with_planner(context: Context, planner: Slow, given: Settings) -> Context:
    """The same, but for who plans."""
    submissions = Submissions(
        settings=given,
        database=context.database,
        planner=planner,
        queue=context.submissions._queue,
        clock=now,
        new_id=new_id,
    )
    return replace(context, submissions=submissions)


def test_lookups_do_not_wait_for_models(tmp_path: Path) -> None:
    """However many models wait for a planner; in the end each of them is planned."""
    given = settings(furnish(tmp_path))
    app = create_app(given)
    slow = Slow(planner=Planner(plan_seconds=5))

    async def submit(client: httpx.AsyncClient, number: int) -> int:
        model = graph_onnx(prefix=f"n{number}_", width=32)
        headers = {"Content-Type": "application/onnx"}
        answer = await client.post(
            "/v1/plans", params={"target": "cpu"}, content=model, headers=headers
        )
        return answer.status_code

    async def crowd() -> tuple[int, list[int]]:
        async with (
            running(given) as context,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(app), base_url="http://here", timeout=60
            ) as client,
        ):
            app.state.context = with_planner(context, slow, given)
            asked = [asyncio.create_task(submit(client, n)) for n in range(MODELS)]
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    while not context.planning.locked():
                        await asyncio.sleep(0.01)
                look = client.get(f"/v1/plans/{'0' * 64}")
                found = (await asyncio.wait_for(look, PATIENCE_SECONDS / 2)).status_code
            finally:
                slow.let_go.set()
                told = await asyncio.gather(*asked)
            return found, told

    found, told = asyncio.run(crowd())
    assert found == 404
    assert told == [200] * MODELS
    assert PLANNING_THREADS < MODELS
