"""Every view of the dashboard: where it is, and what is drawn when it is ready."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from playwright.sync_api import Page

KEY, DEEP_KEY, SPARE_KEY = "1" * 64, "4" * 64, "6" * 64
JOB, FAILED, RUNNING, DEEP, RIVAL = (f"0000{name:0>8}" for name in "12346")


def addresses(
    *,
    key: str,
    job: str,
    kernel: str,
    other: str,
    rival: str,
    trial: int = 5,
    device: str = "cpu",
) -> dict[str, str]:
    """Every view that shows something of one job and its plan."""
    return {
        "overview": "/",
        "jobs": "/jobs",
        "run": f"/jobs/{job}",
        "plan": f"/plans/{key}",
        "fleet": f"/fleet?device={device}",
        "devices": "/devices",
        "device": f"/devices/{device}",
        "quality": f"/devices/{device}/quality",
        "cache": "/cache",
        "submit": "/submit",
        "roofline": f"/plans/{key}/roofline?job={job}",
        "kernel": f"/plans/{key}/kernels/{kernel}?job={job}",
        "explain": f"/plans/{key}/explain?a=n1&b=n3&job={job}",
        "baseline": f"/plans/{key}/diff?job={job}",
        "diff": f"/plans/{key}/diff?other={other}",
        "tuned": f"/plans/{key}/diff?before=1&after=2&job={job}",
        "compare": f"/compare?job={job}&job={rival}",
        "trials": f"/jobs/{job}/trials",
        "trial": f"/jobs/{job}/trials/{trial}",
        "analysis": f"/jobs/{job}/analysis",
    }


PAGES: Final = {
    **addresses(key=KEY, job=JOB, kernel="k3", other=DEEP_KEY, rival=RIVAL),
    "failed": f"/jobs/{FAILED}",
}
DEEP_PAGES: Final = addresses(key=DEEP_KEY, job=DEEP, kernel="k7", other=KEY, rival=JOB)
"""The same views of a job with 10,000 trials of a model with 5,000 nodes."""

DRAWINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "plan": ("#partition[data-boxes]",),
    **dict.fromkeys(("run", "failed"), ("#partition[data-boxes]", "#history canvas")),
    "roofline": ("#roofline canvas",),
    "analysis": ("#scatter canvas", "#parallel canvas"),
    "fleet": ("#timeline canvas",),
    "quality": ("#drift canvas",),
    "compare": ("#runs canvas",),
    **dict.fromkeys(("baseline", "diff", "tuned"), ("#sides[data-drawn]",)),
}
"""What has been drawn before a page is looked at."""

A_FRAME: Final = """() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(done)))"""
"""Resolves when the page was drawn once more: what scrolls is where it will be."""

AN_ARROW: Final = """() => {
  const box = document.querySelector("#partition").getBoundingClientRect();
  const graph = document.querySelector("#partition .graph")._cyreg.cy;
  const inside = (p) => p.x > 40 && p.x < box.width - 200 && p.y > 90
    && p.y < box.height - 60;
  const places = (edge) => {
    const ends = [edge.sourceEndpoint(), edge.targetEndpoint()];
    const middle = edge.midpoint();
    return [middle, ...ends.map((end) => (
      {x: (end.x + middle.x) / 2, y: (end.y + middle.y) / 2}))];
  };
  const most = Math.max(...graph.edges().map((e) => e.data("bytes") ?? 0));
  for (const edge of graph.edges().filter((e) => e.data("bytes") > most / 10)) {
    for (const place of places(edge)) {
      const seen = {
        x: place.x * graph.zoom() + graph.pan().x,
        y: place.y * graph.zoom() + graph.pan().y,
      };
      const hit = graph.renderer().findNearestElement(place.x, place.y, true, false);
      if (inside(seen) && hit === edge[0]) return [box.left + seen.x, box.top + seen.y];
    }
  }
  throw new Error("no arrow can be clicked");
}"""
"""Where on the screen an arrow of the partition is."""

BOXES: Final = """() => [...document.querySelectorAll("[data-boxes]")]
  .reduce((sum, one) => sum + Number(one.dataset.boxes), 0)"""
"""Boxes laid out on a page, in all of its graphs."""

SENT: Final = """() => [
  ...performance.getEntriesByType("navigation"),
  ...performance.getEntriesByType("resource"),
].filter((one) => !one.name.includes("/static/"))
  .reduce((sum, one) => sum + one.decodedBodySize, 0)"""
"""Bytes of a page and of what it loaded, without files that a browser keeps."""

LOOKS: Final[Mapping[str, dict[str, Any]]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


def wait_for_drawings(page: Page, name: str) -> None:
    """Wait until everything on a view has been drawn."""
    for drawing in DRAWINGS.get(name, ()):
        page.wait_for_selector(drawing)
