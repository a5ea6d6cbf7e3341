"""Takes the pictures of `docs/images` from a running service.

Start `fuseplan demo` on a machine that does nothing else, wait for its table, then:
`python -m tests.browser.pictures http://127.0.0.1:8321 docs/images`.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import FLAGS, NAMES

DRAWN = ("#history canvas", "#partition[data-boxes]")

AN_ARROW = """() => {
  const box = document.querySelector("#partition").getBoundingClientRect();
  const graph = document.querySelector("#partition .graph")._cyreg.cy;
  const inside = (p) => p.x > 40 && p.x < box.width - 200 && p.y > 90
    && p.y < box.height - 60;
  const edges = graph.edges().filter(
    (e) => inside(e.renderedMidpoint()) && e.data("bytes") > 1e5);
  const edge = edges[1] ?? edges[0];
  const from = edge.renderedSourceEndpoint(), middle = edge.renderedMidpoint();
  return [box.left + (from.x + middle.x) / 2, box.top + (from.y + middle.y) / 2];
}"""


def main(address: str, folder: Path) -> None:
    """Take every picture of the newest job of a service."""
    found = next(filter(None, map(shutil.which, NAMES)))
    with httpx.Client(base_url=address) as http:
        job = http.get("/v1/jobs").json()["jobs"][0]
        plan = http.get(f"/v1/plans/{job['plan_key']}").json()
    run, key = f"/jobs/{job['id']}", job["plan_key"]
    at = _kernel(plan)
    kernel = plan["kernels"][at]["name"]
    query = f"?job={job['id']}"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        for name, path, height in (
            ("overview", "/", 640),
            ("run", run, 1010),
            ("roofline", f"/plans/{key}/roofline{query}", 1010),
            ("kernel", f"/plans/{key}/kernels/{kernel}{query}", 900),
            ("analysis", f"{run}/analysis", 900),
        ):
            page = _open(browser, address + path, height=height)
            page.screenshot(path=folder / f"{name}.png")
        dark = _open(browser, address + run, height=1010, color_scheme="dark")
        dark.screenshot(path=folder / "run-dark.png")
        phone = _open(browser, address + run, height=844, width=390)
        phone.screenshot(path=folder / "run-phone.png")
        page = _open(browser, f"{address}{run}?expand={at}-{at}", height=900)
        page.locator("#partition-section").screenshot(
            path=folder / "partition-inside.png"
        )
        page = _open(browser, address + run, height=1010)
        page.locator("#partition").scroll_into_view_if_needed()
        page.mouse.click(*page.evaluate(AN_ARROW))
        page.wait_for_selector("#partition-detail .why")
        page.locator("#partition-section").screenshot(path=folder / "partition-why.png")
        browser.close()


def _kernel(plan: dict[str, Any]) -> int:
    """A generated kernel of some nodes, such that its page shows everything."""
    sizes = {
        index: len(kernel["nodes"])
        for index, kernel in enumerate(plan["kernels"])
        if kernel["sources"] and kernel["measurement"]
    }
    return min(sizes, key=lambda index: (abs(sizes[index] - 6), index))


def _open(
    browser: Browser, address: str, *, height: int, width: int = 1280, **options: Any
) -> Page:
    context = browser.new_context(
        viewport={"width": width, "height": height}, **options
    )
    page = context.new_page()
    page.goto(address, wait_until="networkidle")
    page.wait_for_timeout(500)
    return page


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
