"""Pages of a job's trials: the list, one trial, and what all of them say together."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from fastapi import Path, Query, Response

from service.dashboard.accuracy import by_size, importance, quality
from service.dashboard.figures import quality_figures, trial_figures
from service.dashboard.jobs import job_line
from service.dashboard.kernels import Json
from service.dashboard.shared import find_plan_or_none, new_router, pages
from service.dashboard.source import Api, ApiDep
from service.dashboard.strips import strip
from service.jobs.numbers import Number

PAGE_TRIALS: Final = 100
SAMPLE: Final = 1500
"""Trials that a drawing gets, evenly spaced: what a browser draws without a pause."""

AXES: Final[Mapping[str, str]] = {
    "trial": "trial",
    "seconds": "measured time",
    "predicted_seconds": "predicted time",
    "ratio": "measured / predicted",
    "spread": "width of the interval",
    "best_seconds": "best plan so far",
    "uses": "uses in the model",
}
"""What a scatter can show, beside every knob of a schedule."""

COLOURS: Final = ("family", "failure", "contended")

router = new_router()


@router.get("/jobs/{job_id}/trials")
async def trial_list(
    api: ApiDep,
    job_id: str,
    kernel: Annotated[str, Query(max_length=100)] = "",
    family: Annotated[str, Query(max_length=30)] = "",
    failure: Annotated[str, Query(max_length=20)] = "",
    cursor: Annotated[Number, Query()] = 0,
) -> Response:
    """What a job tried, one page at a time, filtered by the server."""
    chosen = {"kernel": kernel, "family": family, "failure": failure}
    asked = {name: value or None for name, value in chosen.items()}
    job, listed = await asyncio.gather(
        api.get(f"/v1/jobs/{job_id}"),
        api.get(f"/v1/jobs/{job_id}/trials", limit=PAGE_TRIALS, cursor=cursor, **asked),
    )
    plan = await find_plan_or_none(api, job["plan_key"])
    return pages.page(
        "trials.html",
        section="jobs",
        job=job_line(job, datetime.now(UTC)),
        key=job["plan_key"],
        job_id=job_id,
        trials=listed["trials"],
        total=listed["total"],
        failures=listed["failures"],
        next_cursor=listed["next"],
        cursor=cursor,
        chosen=chosen,
        families=sorted({k["family"] for k in (plan or {}).get("kernels", ())}),
        kernel_names=kernel_names(plan),
    )


def kernel_names(plan: Json | None) -> Mapping[str, str]:
    """Fingerprint -> the kernels of the plan that have it: `k3` or `k3 and 4 more`."""
    found: dict[str, list[str]] = defaultdict(list)
    for kernel in (plan or {}).get("kernels", ()):
        found[kernel.get("fingerprint") or ""].append(kernel["name"])
    return {
        fingerprint: names[0] + (f" and {len(names) - 1} more" if names[1:] else "")
        for fingerprint, names in found.items()
    }


@router.get("/jobs/{job_id}/trials/{number}")
async def trial_page(
    api: ApiDep, job_id: str, number: Annotated[Number, Path()]
) -> Response:
    """One trial: parameters, samples, what it said and how far it was off."""
    job, trial = await asyncio.gather(
        api.get(f"/v1/jobs/{job_id}"), api.get(f"/v1/jobs/{job_id}/trials/{number}")
    )
    plan = await find_plan_or_none(api, job["plan_key"])
    siblings = await api.find(
        f"/v1/jobs/{job_id}/trials", kernel=trial["kernel"], sample=500
    )
    others = (siblings or {}).get("trials", ())
    times = sorted(one["seconds"] for one in others if one["seconds"])
    return pages.page(
        "trial.html",
        section="jobs",
        job=job_line(job, datetime.now(UTC)),
        key=job["plan_key"],
        job_id=job_id,
        trial=trial,
        figures=trial_figures(trial, times),
        kernels=[
            kernel["name"]
            for kernel in (plan or {}).get("kernels", ())
            if kernel.get("fingerprint") == trial["kernel"]
        ],
        strip=strip(trial["samples"]),
        others=len(others),
    )


@router.get("/jobs/{job_id}/analysis")
async def analysis_page(
    api: ApiDep,
    job_id: str,
    x: Annotated[str, Query(max_length=40)] = "predicted_seconds",
    y: Annotated[str, Query(max_length=40)] = "seconds",
    colour: Literal["family", "failure", "contended"] = "family",
    kernel: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """Predicted against measured, any against any, and which knob mattered."""
    job = await api.get(f"/v1/jobs/{job_id}")
    trials, total = await _all(api, job_id)
    plan = await find_plan_or_none(api, job["plan_key"])
    knobs = sorted({name for trial in trials for name in trial["schedule"]})
    axes = {**AXES, **{f"knob:{name}": f"knob {name}" for name in knobs}}
    of_kernel = [one for one in trials if not kernel or one["kernel"] == kernel]
    measured = quality(trials)
    return pages.page(
        "analysis.html",
        section="jobs",
        job=job_line(job, datetime.now(UTC)),
        key=job["plan_key"],
        job_id=job_id,
        total=total,
        axes=axes,
        x=x if x in axes else "predicted_seconds",
        y=y if y in axes else "seconds",
        colour=colour,
        colours=COLOURS,
        quality=measured,
        sizes=by_size(trials),
        figures=quality_figures(measured),
        knobs=importance(of_kernel),
        kernel=kernel,
        kernels=_tuned(trials, kernel_names(plan)),
        source=f"/v1/jobs/{job_id}/trials?sample={SAMPLE}",
    )


def _tuned(trials: list[Json], names: Mapping[str, str]) -> list[tuple[str, str]]:
    """Kernels that were tried in more than one way, with a name that people know."""
    times: dict[str, int] = defaultdict(int)
    for trial in trials:
        times[trial["kernel"]] += bool(trial["schedule"])
    return [
        (fingerprint, f"{names.get(fingerprint) or fingerprint[:22]} ({n} trials)")
        for fingerprint, n in sorted(times.items(), key=lambda pair: -pair[1])
        if n > 1
    ]


async def _all(api: Api, job_id: str) -> tuple[list[Json], int]:
    """All trials where they are few, else an even sample of them."""
    listed = await api.get(f"/v1/jobs/{job_id}/trials", sample=2000)
    found: list[Json] = [dict(trial) for trial in listed["trials"]]
    return found, int(listed["total"])
