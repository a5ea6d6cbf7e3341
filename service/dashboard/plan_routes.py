"""Pages of a plan: kernels, partition, roofline, one kernel, why, and what differs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from fastapi import Depends, Query, Response
from fastapi.responses import JSONResponse, RedirectResponse

from service.dashboard.differences import (
    MAX_LINES,
    against_no_fusion,
    best_partitions,
    pairings,
    total,
    totals,
)
from service.dashboard.explanations import explanation, solved
from service.dashboard.figures import kernel_figures, plan_figures
from service.dashboard.formats import count, duration, size
from service.dashboard.highlight import highlight
from service.dashboard.kernels import (
    KernelRow,
    baseline_rows,
    kernel_rows,
    seconds_of,
)
from service.dashboard.pages import HEADERS
from service.dashboard.partition import DEFAULT_BOXES, MAX_BOXES, partition_view
from service.dashboard.ribbons import ribbons
from service.dashboard.roofline import roofline_view
from service.dashboard.shared import (
    Json,
    Names,
    find_kernel,
    find_names,
    find_plan,
    new_router,
    pages,
)
from service.dashboard.sides import sides_view, without_fusion
from service.dashboard.source import Api, ApiDep, ApiProblem
from service.dashboard.tensors import flows
from service.jobs.numbers import Number

Order = Literal["launch", "time", "ratio", "roof", "traffic"]
JobId = Annotated[str, Query(max_length=100)]

PAGE_KERNELS: Final = 200
"""Kernels in one table; more are on the next page, so that a page stays small."""

MAX_TRIALS: Final = 40
"""Trials of one kernel that its page shows, the fastest first."""

MAX_SOURCE: Final = 200_000
"""Characters of source that a page shows; the whole text is one link away."""

router = new_router()


def plan_values(plan: Json, names: Names, order: Order, start: int) -> dict[str, Any]:
    """What the tables of a plan show."""
    rows = _sorted(kernel_rows(plan, names), order)
    return {
        "plan": plan,
        "figures": plan_figures(plan),
        "rows": rows[start : start + PAGE_KERNELS],
        "row_count": len(rows),
        "page_rows": PAGE_KERNELS,
        "start": start,
        "order": order,
        "baselines": baseline_rows(plan),
        "largest_share": max((row.share for row in rows), default=0.0) or 1.0,
        "has_measured": any(row.measured_seconds is not None for row in rows),
    }


def _sorted(rows: tuple[KernelRow, ...], order: Order) -> tuple[KernelRow, ...]:
    """Rows with what matters most first; launch order breaks ties."""
    match order:
        case "launch":
            return rows
        case "time":
            return tuple(sorted(rows, key=lambda row: -row.seconds))
        case "ratio":
            return tuple(sorted(rows, key=lambda row: -(row.ratio or 0)))
        case "roof":
            return tuple(sorted(rows, key=lambda row: row.roof or 0))
        case "traffic":
            return tuple(sorted(rows, key=lambda row: -row.traffic_bytes))


@router.get("/plans")
async def open_plan(
    api: ApiDep, key: Annotated[str, Query(max_length=100)] = ""
) -> Response:
    """Go to the plan whose key was typed in; without a key, to the list."""
    wanted = key.strip().lower()
    if not wanted:
        return RedirectResponse("/cache", status_code=303)
    await find_plan(api, wanted)
    return RedirectResponse(f"/plans/{wanted}", status_code=303)


@router.get("/plans/{key}")
async def plan_page(
    api: ApiDep,
    key: str,
    order: Order = "launch",
    start: Annotated[Number, Query()] = 0,
) -> Response:
    """The best stored plan of a key, in canonical ids."""
    plan = await find_plan(api, key)
    origin, pin = await asyncio.gather(
        api.find(f"/v1/plans/{key}/revisions"), api.find(f"/v1/plans/{key}/pin")
    )
    values = plan_values(plan, {}, order, start)
    return pages.page(
        "plan.html",
        section="cache",
        key=key,
        job_id="",
        origin=origin,
        pin=pin,
        best=best_partitions(plan, origin),
        **values,
    )


@router.get("/plans/{key}/partition")
async def plan_partition(
    api: ApiDep,
    key: str,
    limit: Annotated[int, Query(ge=3, le=MAX_BOXES)] = DEFAULT_BOXES,
    expand: Annotated[str, Query(max_length=30)] = "",
    job: JobId = "",
) -> Response:
    """Boxes and arrows of a plan; with a job, in the names of its submitter."""
    plan, names, priced = await asyncio.gather(
        find_plan(api, key), find_names(api, job), api.find(f"/v1/plans/{key}/cuts")
    )
    prices = {
        (cut["a"], cut["b"]): -cut["extra_seconds"]
        for cut in (priced or {}).get("cuts", ())
        if cut["extra_seconds"] is not None
    }
    return _json(partition_view(plan, names, limit=limit, expand=expand, prices=prices))


@router.get("/plans/{key}/roofline")
async def roofline_page(api: ApiDep, key: str, job: JobId = "") -> Response:
    """Each kernel under the roofs of its device."""
    plan, names = await asyncio.gather(find_plan(api, key), find_names(api, job))
    device = await api.find(f"/v1/devices/{plan['target']['id']}")
    rows = _sorted(kernel_rows(plan, names), "time")
    return pages.page(
        "roofline.html",
        section="jobs" if job else "cache",
        key=key,
        job_id=job,
        plan=plan,
        device=device,
        families=sorted({row.family for row in rows}),
        rows=rows[:PAGE_KERNELS],
        row_count=len(rows),
        has_measured=any(row.measured_seconds is not None for row in rows),
        largest_share=max((row.share for row in rows), default=0.0) or 1.0,
    )


@router.get("/plans/{key}/roofline.json")
async def roofline_data(api: ApiDep, key: str, job: JobId = "") -> Response:
    """Roofs and points of the drawing."""
    plan, names = await asyncio.gather(find_plan(api, key), find_names(api, job))
    device = await api.find(f"/v1/devices/{plan['target']['id']}")
    numbers = (device or {}).get("numbers") or {}
    base = f"/plans/{key}/kernels/"
    return _json(roofline_view(kernel_rows(plan, names), numbers, base))


@router.get("/plans/{key}/kernels/{name}")
async def kernel_page(
    api: ApiDep,
    key: str,
    name: str,
    job: JobId = "",
    language: Literal["opencl", "cuda", ""] = "",
) -> Response:
    """One kernel: what it does, what it costs and why, its trials and its source."""
    plan, names = await asyncio.gather(find_plan(api, key), find_names(api, job))
    kernel = find_kernel(plan, name)
    rows = kernel_rows(plan, names)
    at = next(i for i, row in enumerate(rows) if row.name == name)
    reads, writes = flows(plan, kernel, names)
    trials = await _trials(api, key, job, kernel)
    return pages.page(
        "kernel.html",
        section="jobs" if job else "cache",
        key=key,
        job_id=job,
        plan=plan,
        kernel=kernel,
        row=rows[at],
        before=rows[at - 1].name if at else "",
        after=rows[at + 1].name if at + 1 < len(rows) else "",
        figures=kernel_figures(rows[at]),
        reads=reads,
        writes=writes,
        **trials,
        **await _source(api, kernel, language),
    )


async def _source(api: Api, kernel: Json, language: str) -> dict[str, Any]:
    """The text in the language asked for, else in the one that this target runs."""
    digests: Mapping[str, str] = kernel.get("sources") or {}
    chosen = language if language in digests else next(iter(sorted(digests)), "")
    if not language and "opencl" in digests:
        chosen = "opencl"
    address = f"/v1/blobs/sha256/{digests[chosen]}" if chosen else ""
    text = await api.find_text(address) if address else ""
    return {
        "languages": sorted(digests),
        "language": chosen,
        "source_address": address,
        "source_lines": highlight(text[:MAX_SOURCE]) if text else (),
        "source_is_cut": len(text) > MAX_SOURCE,
    }


async def _trials(api: Api, key: str, job: str, kernel: Json) -> dict[str, Any]:
    """Trials of a kernel in the job that found its plan, and the samples of its own."""
    found: dict[str, Any] = {
        "trials": (),
        "trial_count": 0,
        "own": None,
        "trial_job": "",
    }
    if not job:
        origin = await api.find(f"/v1/plans/{key}/revisions")
        runs = [one["job"] for one in (origin or {}).get("revisions", ())]
        job = next((one for one in reversed(runs) if one), "")
    if not job:
        return found
    listed = await api.find(
        f"/v1/jobs/{job}/trials", kernel=kernel.get("fingerprint") or "?", sample=1000
    )
    if listed is None or not listed["trials"]:
        return found
    ordered = sorted(listed["trials"], key=lambda one: one["seconds"] or float("inf"))
    own = next((one for one in ordered if one["schedule"] == kernel["schedule"]), None)
    detail = own and await api.find(f"/v1/jobs/{job}/trials/{own['number']}")
    return {
        "trials": ordered[:MAX_TRIALS],
        "trial_count": listed["total"],
        "own": detail,
        "trial_job": job,
    }


Node = Annotated[str, Query(min_length=1, max_length=500)]


@router.get("/plans/{key}/explain")
async def explain_page(
    api: ApiDep,
    key: str,
    a: Node,
    b: Node,
    job: JobId = "",
    *,
    part: bool = False,
    solve: bool = False,
) -> Response:
    """Why two nodes share a kernel, or do not, and what the other choice would cost."""
    plan, names = await asyncio.gather(find_plan(api, key), find_names(api, job))
    answer = await api.get(f"/v1/plans/{key}/explain", a=a, b=b)
    told = explanation(plan, answer, names)
    template = "_explain.html" if part else "explain.html"
    return pages.page(
        template,
        section="jobs" if job else "cache",
        key=key,
        job_id=job,
        told=told,
        said=await _solved(api, key, a, b) if solve and told.other else "",
    )


@router.get("/plans/{key}/explain/solved")
async def solved_part(api: ApiDep, key: str, a: Node, b: Node) -> Response:
    """What a second solution with the other choice costs; a part of a page."""
    return pages.page("_solved.html", said=await _solved(api, key, a, b))


async def _solved(api: Api, key: str, a: str, b: str) -> str:
    """The price of the other choice in a sentence, or why it is not known."""
    try:
        return solved(await api.get(f"/v1/plans/{key}/explain/solved", a=a, b=b))
    except ApiProblem as problem:
        document = problem.document
        hint = f" ({document['hint']})" if document.get("hint") else ""
        return f"Not solved: {document['detail']}{hint}."


Revision = Annotated[int, Query(ge=0, le=2**31)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two plans to be compared.

    Attributes:
        path: where the API tells how they differ; empty for a plan beside no fusion.
        ends: of each its part, its label, and the key of its page or nothing.
    """

    before: Json
    after: Json
    path: str = ""
    ends: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a plan is compared with: another key, or two of its own revisions.

    Attributes:
        job: whose page leads here, if one does.
    """

    other: str
    before: int
    after: int
    job: str

    @property
    def query(self) -> dict[str, str]:
        """The same as parameters of an address."""
        told = {
            "other": self.other,
            "before": self.before,
            "after": self.after,
            "job": self.job,
        }
        return {name: str(value) for name, value in told.items() if value}


async def _pair(
    api: Api, key: str, plan: Json, origin: Json | None, wanted: Wanted
) -> Pair:
    """The two plans that a link asks for; without a second one, no fusion is it."""
    revisions = (origin or {}).get("revisions", ())
    if wanted.before and wanted.after:
        numbers = (wanted.before, wanted.after)
        digests = {one["revision"]: one["digest"] for one in revisions}
        path = f"/v1/plans/{key}/revisions/{wanted.before}/diff/{wanted.after}"
        if any(number not in digests for number in numbers):
            await api.get(path)  # says which one is missing
        first, second = await asyncio.gather(
            *(api.get(f"/v1/blobs/sha256/{digests[number]}") for number in numbers)
        )
        labels = (f"revision {number}" for number in numbers)
        ends = tuple(zip(("before", "after"), labels, ("", ""), strict=True))
        return Pair(before=first, after=second, path=path, ends=ends)
    if wanted.other:
        return Pair(
            before=await find_plan(api, wanted.other),
            after=plan,
            path=f"/v1/plans/{wanted.other}/diff/{key}",
            ends=(
                ("before", wanted.other[:12], wanted.other),
                ("after", key[:12], key),
            ),
        )
    operators = await _operators(api, key, origin, wanted.job)
    return Pair(before=without_fusion(plan, operators), after=plan)


async def _operators(
    api: Api, key: str, origin: Json | None, job: str
) -> Sequence[Json]:
    """What operators take by themselves, as a tuning run of this key has told."""
    submitted = await api.find(f"/v1/jobs/{job}") if job else None
    own = job if submitted and submitted["plan_key"] == key else ""
    runs = [one["job"] for one in (origin or {}).get("revisions", ())]
    for run in (own, *reversed(runs)):
        found = await api.find(f"/v1/jobs/{run}/contest") if run else None
        if found and found["operators"]:
            return tuple(found["operators"])
    return ()


def _wanted(
    other: Annotated[str, Query(max_length=100)] = "",
    before: Revision = 0,
    after: Revision = 0,
    job: JobId = "",
) -> Wanted:
    return Wanted(other=other.strip().lower(), before=before, after=after, job=job)


WantedDep = Annotated[Wanted, Depends(_wanted)]


async def _found(api: Api, key: str, job: str) -> tuple[Json, Names, Json | None]:
    """A plan, the viewer's names for its nodes, and where it came from."""
    return await asyncio.gather(
        find_plan(api, key),
        find_names(api, job),
        api.find(f"/v1/plans/{key}/revisions"),
    )


@router.get("/plans/{key}/diff")
async def diff_page(api: ApiDep, key: str, wanted: WantedDep) -> Response:
    """A plan beside another one or its own past; without either, beside no fusion."""
    job = wanted.job
    plan, names, origin = await _found(api, key, job)
    graph = (origin or {}).get("graph", "")
    alike = await api.find("/v1/plans", graph=graph, limit=50) if graph else None
    pair = await _pair(api, key, plan, origin, wanted)
    query = urlencode(wanted.query)
    values: dict[str, Any] = {
        "section": "jobs" if job else "cache",
        "key": key,
        "job_id": job,
        "plan": plan,
        "other": wanted.other,
        "alike": [p for p in (alike or {}).get("plans", ()) if p["key"] != key],
        "revisions": (origin or {}).get("revisions", ()),
        "sides_source": f"/plans/{key}/sides" + (f"?{query}" if query else ""),
    }
    if not pair.path:
        return pages.page(
            "baseline.html", **values, **_baseline(plan, pair.before, names)
        )
    return pages.page(
        "diff.html",
        **values,
        **_sides(await api.get(pair.path), names),
        ribbons=ribbons(pair.before, pair.after),
        source=pair.path,
        ends=pair.ends,
    )


@router.get("/plans/{key}/sides")
async def sides_data(api: ApiDep, key: str, wanted: WantedDep) -> Response:
    """Boxes and arrows of two plans, for the drawings beside each other."""
    plan, names, origin = await _found(api, key, wanted.job)
    pair = await _pair(api, key, plan, origin, wanted)
    return _json(sides_view(pair.before, pair.after, names))


def _sides(found: Json, names: Names) -> dict[str, Any]:
    lines = pairings(found["kernels"], names)
    return {
        "found": found,
        "totals": totals(found["totals"]),
        "lines": lines[:MAX_LINES],
        "line_count": len(lines),
    }


def _baseline(plan: Json, apart: Json, names: Names) -> dict[str, Any]:
    unfused = plan["baselines"].get("unfused") or {}
    alone = apart["kernels"]
    times = {} if apart["untimed"] else {k["nodes"][0]: seconds_of(k) for k in alone}
    saved = against_no_fusion(plan, kernel_rows(plan, names), times)
    time, traffic = unfused.get("objective_seconds"), unfused.get("traffic_bytes")
    return {
        "totals": (
            total("Time", time, plan["objective_seconds"], duration),
            total("Kernels", unfused.get("kernels"), len(plan["kernels"]), count),
            total("Traffic", traffic, plan["traffic_bytes"], size),
        ),
        "apart_kernels": len(alone),
        "apart_seconds": sum(times.values()) if times else None,
        "apart_measured": sum(bool(kernel.get("measurement")) for kernel in alone),
        "baselines": baseline_rows(plan),
        "row_count": len(plan["kernels"]),
        "saved": saved[:MAX_LINES],
        "saved_count": len(saved),
    }


def _json(value: Json) -> Response:
    return JSONResponse(value, headers={"Cache-Control": HEADERS["Cache-Control"]})
