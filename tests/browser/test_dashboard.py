"""The dashboard in a real browser."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect

from service.store import jobs
from service.store.jobs import EventDraft
from tests.browser.conftest import Site, Watched
from tests.service.dashboard.samples import STARTED

Watch = Callable[..., Watched]

VENDOR = Path(__file__).parent / "vendor"
AXE = VENDOR / "axe-4.10.3.min.js"

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
    "device": "/devices/cpu",
    "cache": "/cache",
    "submit": "/submit",
    "roofline": f"/plans/{KEY}/roofline?job={JOB}",
    "kernel": f"/plans/{KEY}/kernels/k3?job={JOB}",
    "explain": f"/plans/{KEY}/explain?a=n1&b=n3&job={JOB}",
    "baseline": f"/plans/{KEY}/diff?job={JOB}",
    "diff": f"/plans/{KEY}/diff?other={DEEP_KEY}",
    "trials": f"/jobs/{JOB}/trials",
    "trial": f"/jobs/{JOB}/trials/5",
    "analysis": f"/jobs/{JOB}/analysis",
}
DRAWINGS = {
    **dict.fromkeys(("plan", "deep"), ("#partition[data-boxes]",)),
    **dict.fromkeys(("job", "failed"), ("#partition[data-boxes]", "#history canvas")),
    "roofline": ("#roofline canvas",),
    "analysis": ("#scatter canvas", "#parallel canvas"),
}
"""What has been drawn before a page is looked at."""

LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
}


GRAPH = {
    "schema": "fuseplan.graph/1",
    "opset": {"": 18},
    "inputs": [{"name": "x", "dtype": "f32", "shape": [64, 256]}],
    "nodes": [
        {
            "name": name,
            "op": op,
            "domain": "",
            "inputs": [given],
            "outputs": [made],
            "attributes": {},
        }
        for name, op, given, made in (("a", "Relu", "x", "h"), ("b", "Exp", "h", "y"))
    ],
    "outputs": ["y"],
}


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_pages_load_in_silence(
    watch: Watch, artifacts: Path, name: str, look: str
) -> None:
    """No console error, no policy violation, no sideways scroll; a picture is kept."""
    watched = watch(**LOOKS[look])
    page = watched.open(PAGES[name])
    for drawing in DRAWINGS.get(name, ()):
        page.wait_for_selector(drawing)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= LOOKS[look]["viewport"]["width"]  # type: ignore[index]
    page.screenshot(path=artifacts / f"{name}-{look}.png", full_page=True)
    watched.assert_quiet()


@pytest.mark.parametrize("look", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_everybody_can_use_the_pages(watch: Watch, name: str, look: str) -> None:
    """axe-core finds nothing serious: names, roles, contrast, order of headings."""
    watched = watch(bypass_csp=True, **LOOKS[look])
    page = watched.open(PAGES[name])
    for drawing in DRAWINGS.get(name, ()):
        page.wait_for_selector(drawing)
    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run({ resultTypes: ['violations'] })")
    serious = [
        (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"])
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
    assert serious == []


@pytest.mark.parametrize(
    "path",
    [
        f"/plans/{DEEP_KEY}",
        f"/jobs/{DEEP}",
        f"/jobs/{DEEP}/analysis",
        f"/jobs/{DEEP}/trials",
        f"/plans/{DEEP_KEY}/roofline",
        f"/plans/{DEEP_KEY}/diff",
        f"/plans/{DEEP_KEY}/kernels/k7",
    ],
)
def test_a_page_stays_small(watch: Watch, path: str) -> None:
    """10,000 trials, 5,000 nodes: 300 boxes and 1 MB at most without the libraries."""
    watched = watch()
    sizes: list[int] = []
    watched.page.on(
        "response",
        lambda answer: (
            "/static/" not in answer.url and sizes.append(len(answer.body()))
        ),
    )
    page = watched.page
    page.goto(watched.address + path, wait_until="networkidle")
    if page.locator("#partition").count():
        page.wait_for_selector("#partition[data-boxes]")
        assert int(page.get_attribute("#partition", "data-boxes") or 0) <= 300
    assert 0 < sum(sizes) <= 1_000_000
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


def test_a_kernel_leads_to_its_page(watch: Watch) -> None:
    """From a box to the kernel's row and page, by links that can be shared."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{JOB}")
    page.wait_for_selector("#partition[data-boxes]")
    page.focus("#partition")
    page.keyboard.press("ArrowDown")
    page.click("#partition-detail a:has-text('Row in the table')")
    assert page.url.endswith("#k0")
    expect(page.locator("tr#k0")).to_be_in_viewport()
    page.click("#partition-detail a:has-text('Kernel page')")
    expect(page.locator("h1")).to_contain_text("k0")
    watched.assert_quiet()


def test_why_two_were_not_fused_takes_two_clicks(watch: Watch, artifacts: Path) -> None:
    """A box, then its cut: the reason, and what the other choice would cost."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{JOB}")
    page.wait_for_selector("#partition[data-boxes]")
    page.focus("#partition")
    page.keyboard.press("ArrowDown")
    page.click("#partition-detail button:has-text('why not fused?')")
    detail = page.locator("#partition-detail")
    expect(detail).to_contain_text("One kernel would save at most")
    expect(detail).to_contain_text("Bytes moved")
    page.screenshot(path=artifacts / "why-light.png")
    shared = page.url
    assert "edge=" in shared
    page.goto(shared)
    expect(detail).to_contain_text("One kernel would save at most")
    watched.assert_quiet()


def test_an_opened_kernel_says_what_fusing_it_saves(watch: Watch) -> None:
    """Keyboard alone: open a kernel, walk to an inner arrow, read the price."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/plans/{KEY}?expand=3-3")
    page.wait_for_selector("#partition[data-boxes]")
    page.focus("#partition")
    detail = page.locator("#partition-detail")
    for _ in range(60):
        page.keyboard.press("ArrowDown")
        if detail.locator("h3").text_content() == "exp":
            break
    page.keyboard.press("w")
    expect(detail).to_contain_text("Why fused?")
    expect(detail).to_contain_text("Separate kernels would cost at least")
    watched.assert_quiet()


def test_a_point_of_the_roofline_opens_its_kernel(watch: Watch) -> None:
    """The page of the kernel is one click on its point away."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/plans/{KEY}/roofline?job={JOB}")
    page.wait_for_selector("#roofline[data-drawn]")
    place = page.evaluate(
        """() => {
          const box = document.getElementById("roofline");
          const chart = echarts.getInstanceByDom(box);
          const series = chart.getOption().series;
          const [x, y] = chart.convertToPixel({ seriesIndex: series.length - 1 },
            series[series.length - 1].data[0].value);
          const at = box.getBoundingClientRect();
          return [at.left + x, at.top + y];
        }"""
    )
    page.mouse.move(*place)
    page.mouse.click(*place)
    page.wait_for_url(re.compile(r"/kernels/k\d+\?job="))
    watched.assert_quiet()


def test_what_is_shown_stands_in_the_address(watch: Watch) -> None:
    """Axes of the scatter and of the curve come back from a shared link."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{JOB}/analysis")
    page.wait_for_selector("#scatter[data-drawn]")
    page.select_option("select[name=x]", "knob:threads")
    assert "x=knob%3Athreads" in page.url
    page.goto(page.url)
    assert page.input_value("select[name=x]") == "knob:threads"
    page.goto(f"{watched.address}/jobs/{JOB}?across=time")
    pressed = page.locator(".switch [data-axis=time]")
    expect(pressed).to_have_attribute("aria-pressed", "true")
    watched.assert_quiet()


@pytest.mark.parametrize("kind", ["PNG", "SVG"])
def test_a_drawing_is_saved_as_a_file(watch: Watch, tmp_path: Path, kind: str) -> None:
    """The button gives a file that begins as its kind does."""
    watched = watch(accept_downloads=True, **LOOKS["light"])
    page = watched.open(f"/plans/{KEY}/roofline")
    page.wait_for_selector("#roofline[data-drawn]")
    with page.expect_download() as waiting:
        page.click(f".downloads button:has-text('{kind}')")
    saved = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(saved)
    assert saved.suffix == f".{kind.lower()}"
    assert saved.read_bytes()[:4] in {b"\x89PNG", b"<svg"}
    watched.assert_quiet()


def test_a_model_is_handed_in(watch: Watch, tmp_path: Path) -> None:
    """Choose a file, press the button, and stand on the page of its plan."""
    watched = watch(**LOOKS["light"])
    page = watched.open("/submit?target=h100-sxm")
    graph = {**GRAPH, "weights": [], "constants": []}
    model = tmp_path / "tiny.json"
    model.write_text(json.dumps(graph))
    page.set_input_files("#model", model)
    expect(page.locator("#drop-title")).to_have_text("tiny.json")
    page.check("input[value=analytic]")
    page.click("button.primary")
    page.wait_for_url(re.compile(r"/plans/[0-9a-f]{64}"))
    expect(page.locator("h1")).to_contain_text("tiny.json")
    watched.assert_quiet()


def test_a_wrong_model_is_told_so(watch: Watch, tmp_path: Path) -> None:
    """What is wrong and what to do stand beside the button; nothing is lost."""
    watched = watch(**LOOKS["light"])
    page = watched.open("/submit?target=h100-sxm")
    model = tmp_path / "broken.onnx"
    model.write_bytes(b"this is no model")
    page.set_input_files("#model", model)
    page.click("button.primary")
    expect(page.locator("#submit-state")).to_contain_text(".")
    expect(page.locator("button.primary")).to_be_enabled()
    assert page.url.endswith("/submit?target=h100-sxm")
    # The browser itself reports the refused request; the page does not complain.
    assert all("status of 4" in one for one in watched.complaints)


def test_the_library_of_the_tests_is_unchanged() -> None:
    """axe-core has the hash that is written beside it."""
    digest, name = (VENDOR / "SHA256SUMS").read_text().split()
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest


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
