"""The dashboard in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from service.store import jobs
from service.store.jobs import EventDraft
from tests.browser.conftest import Site, Watched
from tests.service.dashboard.samples import STARTED

Watch = Callable[..., Watched]

KEY, DEEP_KEY = "1" * 64, "4" * 64
JOB, FAILED, RUNNING, DEEP = (f"0000{name:0>8}" for name in "1234")
PAGES = {
    "overview": "/",
    "jobs": "/jobs",
    "job": f"/jobs/{JOB}",
    "failed": f"/jobs/{FAILED}",
    "plan": f"/plans/{KEY}",
    "deep": f"/plans/{DEEP_KEY}",
    "devices": "/devices",
}
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_pages_load_in_silence(
    watch: Watch, artifacts: Path, name: str, look: str
) -> None:
    """No console error, no policy violation, no sideways scroll; a picture is kept."""
    watched = watch(**LOOKS[look])
    page = watched.open(PAGES[name])
    if "/plans/" in PAGES[name] or "/jobs/" in PAGES[name]:
        page.wait_for_selector("#partition[data-boxes]")
    if name in {"job", "failed"}:
        page.wait_for_selector("#history canvas")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= LOOKS[look]["viewport"]["width"]  # type: ignore[index]
    page.screenshot(path=artifacts / f"{name}-{look}.png", full_page=True)
    watched.assert_quiet()


def test_a_page_stays_small(watch: Watch) -> None:
    """1200 kernels: at most 300 boxes, at most 1 MB without the kept libraries."""
    watched = watch()
    sizes: list[int] = []
    watched.page.on(
        "response",
        lambda answer: (
            "/static/" not in answer.url and sizes.append(len(answer.body()))
        ),
    )
    page = watched.open(f"/plans/{DEEP_KEY}")
    page.wait_for_selector("#partition[data-boxes]")
    assert int(page.get_attribute("#partition", "data-boxes") or 0) <= 300
    assert sum(sizes) <= 1_000_000
    watched.assert_quiet()


def test_a_run_of_kernels_opens(watch: Watch, artifacts: Path) -> None:
    """Keyboard alone: choose a box, read what it holds, open it, close it again."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/plans/{DEEP_KEY}")
    page.wait_for_selector("#partition[data-boxes]")
    page.focus("#partition")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    detail = page.locator("#partition-detail")
    expect(detail.locator("h3")).to_contain_text("…")
    page.keyboard.press("Enter")
    page.wait_for_selector(".graph-tools button:has-text('Close')")
    page.screenshot(path=artifacts / "opened-light.png")
    page.focus("#partition")
    page.keyboard.press("Escape")
    page.wait_for_selector(".graph-tools button:has-text('Close')", state="detached")
    watched.assert_quiet()


def test_a_kernel_leads_to_its_row(watch: Watch) -> None:
    """From a box to the kernel table, by a link that can be shared."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{JOB}")
    page.wait_for_selector("#partition[data-boxes]")
    page.focus("#partition")
    page.keyboard.press("ArrowDown")
    page.click("#partition-detail a")
    assert page.url.endswith("#k0")
    expect(page.locator("tr#k0")).to_be_in_viewport()
    watched.assert_quiet()


def test_a_running_job_is_seen_live(watch: Watch, site: Site) -> None:
    """A new trial reaches curve and figures without a reload."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{RUNNING}")
    page.wait_for_selector("#history canvas")
    page.evaluate("window.sameDocument = true")
    data = {"trials": 61, "best_seconds": 0.00125, "gap": 0.01}
    with site.database.write() as session:
        event = EventDraft(type="trial", data=data)
        jobs.append(session, RUNNING, (event,), now=STARTED)
        progress = jobs.Progress(trials=61, best_seconds=0.00125, gap=0.01)
        jobs.advance(session, RUNNING, batch=2, progress=progress)
    chart = page.locator("#history")
    expect(chart).to_have_attribute(
        "aria-label", "Time of the best plan: 1.25 ms after 61 trials"
    )
    figures = page.locator(".figures").first
    expect(figures).to_contain_text("1.25 ms")
    assert page.evaluate("window.sameDocument")
    watched.assert_quiet()


def test_the_theme_is_kept(watch: Watch) -> None:
    """A chosen theme outlives the page, and the drawing follows it."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{JOB}")
    page.wait_for_selector("#partition[data-boxes]")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    watched.open("/jobs")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    watched.assert_quiet()


def test_tables_need_no_script(watch: Watch, artifacts: Path) -> None:
    """Without JavaScript kernels, baselines and figures are all there."""
    watched = watch(java_script_enabled=False, **LOOKS["light"])
    page = watched.page
    page.goto(f"{watched.address}/jobs/{JOB}")
    assert page.locator("table.kernels tbody tr").count() == 48
    assert page.locator("#history .placeholder").is_visible()
    page.click("th a:has-text('Predicted')")
    assert "order=time" in page.url
    page.screenshot(path=artifacts / "noscript-light.png", full_page=True)
