"""What all routes of the dashboard share: files, templates, and how a plan is found."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import APIRouter

from service.dashboard.assets import load_assets
from service.dashboard.pages import Pages, explaining
from service.dashboard.source import Api, ApiProblem

Json = Mapping[str, Any]
Names = Mapping[str, Sequence[str]]

NOT_FOUND: Final = 404
_BEST: Final = ("measured", "compiled", "analytic")
_KEY: Final = re.compile("[0-9a-f]{64}")

assets = load_assets()
pages = Pages(assets)


def new_router() -> APIRouter:
    """A router whose problems are pages, and which the API's description leaves out."""
    return APIRouter(route_class=explaining(pages), include_in_schema=False)


async def find_plan(api: Api, key: str) -> Json:
    """The plan of a key that somebody may have typed.

    It is read by its digest, so that people who look are not counted as builds that
    look plans up.

    Raises:
        ApiProblem: it is no key, or there is no plan.
    """
    if not _KEY.fullmatch(key):
        raise ApiProblem(
            NOT_FOUND,
            {
                "title": "This is not a plan key",
                "detail": "A plan key has 64 hexadecimal digits.",
                "hint": "copy it from a job, or from `fuseplan plan`",
            },
        )
    origin = await api.find(f"/v1/plans/{key}/revisions")
    served = (origin or {}).get("served") or {}
    digest = next((served[evidence] for evidence in _BEST if evidence in served), "")
    if digest:
        return await api.get(f"/v1/blobs/sha256/{digest}")
    return await api.get(f"/v1/plans/{key}")


async def find_plan_or_none(api: Api, key: str) -> Json | None:
    """The same, or None where there is no plan yet."""
    try:
        return await find_plan(api, key)
    except ApiProblem:
        return None


async def find_names(api: Api, job: str) -> Names:
    """Names of the model that a job was submitted with; none without a job."""
    if not job:
        return {}
    submitted = await api.find(f"/v1/jobs/{job}")
    return (submitted or {}).get("names") or {}


def find_kernel(plan: Json, name: str) -> Json:
    """A kernel of a plan.

    Raises:
        ApiProblem: the plan has no kernel of this name.
    """
    for kernel in plan["kernels"]:
        if kernel["name"] == name:
            return dict(kernel)
    raise ApiProblem(
        NOT_FOUND,
        {
            "title": "This plan has no such kernel",
            "detail": f"None of its {len(plan['kernels'])} kernels is named {name}.",
            "hint": "a newer plan may have other kernels: open the plan again",
        },
    )
