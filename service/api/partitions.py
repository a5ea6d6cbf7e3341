"""Questions about how a plan is cut: what each cut costs, and what tuning changed."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict

from service.api.comparing import Difference, Key
from service.api.context import ContextDep
from service.api.problems import told
from service.errors import PlanNotFound
from service.jobs import cutting, explaining
from service.store import blobs, plans

router = APIRouter(tags=["plans"])

_CUT: Final[dict[str, Any]] = {
    "a": "k0",
    "b": "k1",
    "tensors": ["t1"],
    "bytes": 8192,
    "extra_bytes": -16384,
    "extra_launches": -1,
    "extra_seconds": -4.2e-06,
}


class CutBody(BaseModel):
    """Two kernels that exchange tensors, and what one in their place would change.

    Attributes:
        a: the kernel that writes.
        b: the kernel that reads.
        extra_seconds: a bound, from bytes and launches alone; null for a device that
            the catalogue does not hold.
    """

    a: str
    b: str
    tensors: list[str]
    bytes: int
    extra_bytes: int
    extra_launches: int
    extra_seconds: float | None


class CutList(BaseModel):
    """Every cut of a plan, in launch order of the kernels that read."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"cuts": [_CUT]}]})

    cuts: list[CutBody]


Revision = Annotated[int, Path(ge=1, le=2**31, description="number of a revision")]


@router.get(
    "/v1/plans/{key}/cuts",
    operation_id="listCuts",
    summary="What does each cut cost?",
    responses=told(404, 422, 503),
)
def list_cuts(key: Key, context: ContextDep) -> CutList:
    """All tensors that pass between kernels through memory, with their price."""
    with context.database.read() as session:
        found = plans.find(session, key)
    if found is None:
        raise _missing(key, "no plan is stored")
    body = json.loads(found.body)
    return CutList(cuts=[CutBody(**cut) for cut in cutting.cuts(body)])


@router.get(
    "/v1/plans/{key}/revisions/{a}/diff/{b}",
    operation_id="diffRevisions",
    summary="What did tuning change?",
    responses=told(404, 422, 503),
)
def diff_revisions(
    key: Key, a: Revision, b: Revision, context: ContextDep
) -> Difference:
    """How two plans that a key had at different times differ."""
    with context.database.read() as session:
        history = {one.revision: one.digest for one in plans.history(session, key)}
        bodies = []
        for number in (a, b):
            digest = history.get(number)
            found = None if digest is None else blobs.find(session, digest)
            if found is None:
                raise _missing(key, f"it has no revision {number}")
            bodies.append(json.loads(found.content))
    return Difference(**explaining.differences(*bodies))


def _missing(key: str, why: str) -> PlanNotFound:
    return PlanNotFound(
        key,
        why,
        hint=f"see /v1/plans/{key}/revisions, or hand the model in again",
        extra={"reason": "unknown"},
    )
