"""What people do with the dashboard, clicked through in a real browser."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from playwright.sync_api import Page, expect

from service.store import jobs
from service.store.events import EventDraft
from tests.browser.conftest import Site, Watched
from tests.browser.views import (
    A_FRAME,
    AN_ARROW,
    DEEP_KEY,
    JOB,
    KEY,
    LOOKS,
    RIVAL,
    RUNNING,
    SPARE_KEY,
)
from tests.service.dashboard.samples import STARTED

Watch = Callable[..., Watched]

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


def saved(page: Page, button: str, folder: Path) -> Path:
    """Press a button that gives a file, and keep the file."""
    with page.expect_download() as waiting:
        page.click(button)
    path = folder / waiting.value.suggested_filename
    waiting.value.save_as(path)
    return path


def test_from_the_demo_to_the_price_of_a_cut(watch: Watch) -> None:
    """The path of docs/dashboard.md: the run, an arrow, the answer; five clicks do."""
    watched = watch(**LOOKS["light"])
    page = watched.open("/")
    clicks = 1
    page.click(f"a[href='/jobs/{JOB}']")
    page.wait_for_selector("#partition[data-boxes]")
    page.locator("#partition").scroll_into_view_if_needed()
    page.evaluate(A_FRAME)
    clicks += 1
    page.mouse.click(*page.evaluate(AN_ARROW))
    detail = page.locator("#partition-detail")
    expect(detail).to_contain_text("Why not fused?")
    expect(detail).to_contain_text("crosses from one kernel to the other")
    expect(detail).to_contain_text("One kernel would save at most")
    assert clicks <= 5
    watched.assert_quiet()


def test_a_cut_shows_its_price(watch: Watch) -> None:
    """What stands on an arrow is what the interface says of the cut."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/plans/{KEY}?box=3-3")
    page.wait_for_selector("#partition[data-boxes]")
    expect(page.locator("#partition-detail h3")).to_have_text("k3")
    drawn = page.evaluate(
        """() => {
          const graph = document.querySelector("#partition .graph")._cyreg.cy;
          return Object.fromEntries(graph.edges("[?cut]").map(
            (e) => [`${e.data("from")} ${e.data("to")}`, e.data("price")]));
        }"""
    )
    told = page.request.get(f"{watched.address}/v1/plans/{KEY}/cuts").json()["cuts"]
    assert drawn == {f"{c['a']} {c['b']}": -c["extra_seconds"] for c in told}
    watched.assert_quiet()


def test_the_partition_is_kept_as_a_drawing_of_lines(
    watch: Watch, tmp_path: Path
) -> None:
    """An SVG with every box and arrow of the screen, which is well-formed XML."""
    watched = watch(accept_downloads=True, **LOOKS["light"])
    page = watched.open(f"/plans/{KEY}?expand=3-3")
    page.wait_for_selector("#partition[data-boxes]")
    root = ET.parse(
        saved(page, ".graph-tools button:has-text('SVG')", tmp_path)
    ).getroot()
    boxes = int(page.get_attribute("#partition", "data-boxes") or 0)
    name = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{name}rect")) == boxes + 1
    assert len(root.findall(f"{name}path")) == page.evaluate(
        "document.querySelector('#partition .graph')._cyreg.cy.edges().length"
    )
    watched.assert_quiet()


def test_a_table_is_kept_with_raw_numbers(watch: Watch, tmp_path: Path) -> None:
    """CSV and JSON of the kernels: a row each, times in seconds."""
    watched = watch(accept_downloads=True, **LOOKS["light"])
    page = watched.open(f"/plans/{KEY}")
    tools = "#kernels .table-tools button:has-text('{}')"
    with saved(page, tools.format("CSV"), tmp_path).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 48
    assert float(rows[3]["Predicted"]) == pytest.approx(48e-6)
    listed = json.loads(saved(page, tools.format("JSON"), tmp_path).read_text())
    assert listed[3]["Predicted"] == pytest.approx(48e-6)
    assert listed[3]["Kernel"] == "k3"
    watched.assert_quiet()


def test_a_kernel_is_found_in_the_other_partition(watch: Watch) -> None:
    """By keys: what fusion joined is marked on the other side, and has a link."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/plans/{KEY}/diff?job={JOB}")
    page.wait_for_selector("#sides[data-drawn]")
    page.locator(".side").nth(1).focus()
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    told = page.locator("#sides-told")
    expect(told).to_contain_text("this plan: k3 (1 kernel, 48.0 µs)")
    expect(told).to_contain_text("The same nodes are in no fusion: ")
    marked = """() => [...document.querySelectorAll("#sides .graph")].map(
      (one) => one._cyreg.cy.nodes(".mark").map((node) => node.data("nodes")).flat())"""
    plain, ours = page.evaluate(marked)
    body = page.request.get(f"{watched.address}/v1/plans/{KEY}").json()
    assert set(ours) == set(body["kernels"][3]["nodes"])
    assert set(ours) <= set(plain)
    said = told.text_content()
    page.reload()
    expect(told).to_have_text(str(said))
    watched.assert_quiet()


def test_runs_are_compared_in_one_drawing(watch: Watch) -> None:
    """Choose two runs, see both curves, share the link with its axis."""
    watched = watch(**LOOKS["light"])
    page = watched.open("/compare")
    page.check(f"#job-{JOB}")
    page.check(f"#job-{RIVAL}")
    page.click("button.primary")
    page.wait_for_selector("#runs[data-drawn]")
    page.click(".switch [data-axis=time]")
    assert "across=time" in page.url
    page.goto(page.url)
    page.wait_for_selector("#runs[data-drawn]")
    curves = page.evaluate(
        "echarts.getInstanceByDom(document.getElementById('runs'))"
        ".getOption().series.map((s) => s.data.length)"
    )
    assert len(curves) == 2
    assert all(0 < points <= 400 for points in curves)
    expect(page.locator(".switch [data-axis=time]")).to_have_attribute(
        "aria-pressed", "true"
    )
    watched.assert_quiet()


def test_the_gap_closes_to_the_certificate(watch: Watch) -> None:
    """The curve of the gap is one click away, and has a link of its own."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{JOB}")
    page.wait_for_selector("#history canvas")
    page.click(".switch [data-show=gap]")
    assert "show=gap" in page.url
    page.goto(page.url)
    page.wait_for_selector("#history canvas")
    last = page.evaluate(
        "echarts.getInstanceByDom(document.getElementById('history'))"
        ".getOption().series[0].data.at(-1)"
    )
    assert last == pytest.approx([60, 10 / 60], rel=1e-3)
    watched.assert_quiet()


def test_like_is_drawn_beside_like(watch: Watch) -> None:
    """What was timed alone is named and dotted so; the rest was timed by turns."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/jobs/{JOB}")
    page.wait_for_selector("#history canvas")
    lines = page.evaluate(
        "echarts.getInstanceByDom(document.getElementById('history')).getOption()"
        ".series.find((one) => one.name === 'best').markLine.data"
        ".map((line) => [line.name, line.lineStyle?.type === 'dotted'])"
    )
    alone = {name for name, dotted in lines if dotted}
    assert alone == {"this plan, alone", "ONNX Runtime, alone"}
    turns = {name for name, dotted in lines if not dotted}
    assert turns >= {"this plan, measured whole", "without fusion, measured"}
    watched.assert_quiet()


def test_a_part_of_the_time_line_has_a_link(watch: Watch) -> None:
    """What was zoomed into comes back; a job on the line opens its page."""
    watched = watch(**LOOKS["light"])
    page = watched.open("/fleet?device=cpu&zoom=0.00~50.00")
    page.wait_for_selector("#timeline[data-drawn]")
    ends = page.evaluate(
        """() => {
          const chart = echarts.getInstanceByDom(document.getElementById("timeline"));
          const before = chart.getOption().dataZoom[0];
          chart.dispatchAction({ type: "dataZoom", start: 10, end: 30 });
          return [before.start, before.end];
        }"""
    )
    assert ends == [0, 50]
    page.wait_for_url(re.compile(r"zoom=10\.00%7E30\.00|zoom=10\.00~30\.00"))
    page.click("table a:has-text('encoder.onnx') >> nth=0")
    page.wait_for_url(re.compile(r"/jobs/"))
    watched.assert_quiet()


def test_a_plan_is_pinned_exported_and_evicted(watch: Watch, tmp_path: Path) -> None:
    """Pinned it cannot be evicted; let go, it can, and the page says what it was."""
    watched = watch(accept_downloads=True, **LOOKS["light"])
    page = watched.open(f"/plans/{SPARE_KEY}")
    bundle = saved(page, "#keeping a:has-text('Export')", tmp_path)
    assert bundle.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    page.click("#keeping [data-do=pin]")
    expect(page.locator("#keeping")).to_contain_text("pinned by local")
    expect(page.locator("#keeping [data-do=evict]")).to_be_disabled()
    page.click("#keeping [data-do=pin]")
    expect(page.locator("#keeping")).not_to_contain_text("pinned by")
    page.click("#keeping [data-do=evict]")
    page.click("#keeping [data-do=evict]:has-text('Sure?')")
    page.wait_for_url(re.compile(r"/cache$"))
    expect(page.locator("main")).not_to_contain_text(SPARE_KEY[:12])
    page.goto(f"{watched.address}/plans/{SPARE_KEY}")
    expect(page.locator("main")).to_contain_text("evicted")


def test_who_may_not_is_told_so(watch: Watch, site: Site) -> None:
    """A refused change says what is wrong and what to do, beside the button."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/plans/{DEEP_KEY}")
    page.request.put(f"{site.address}/v1/plans/{DEEP_KEY}/pin")
    page.click("#keeping [data-do=evict]")
    page.click("#keeping [data-do=evict]:has-text('Sure?')")
    expect(page.locator("#keeping-state")).to_contain_text("The plan is pinned")
    expect(page.locator("#keeping-state")).to_contain_text("Let it go first")
    page.request.delete(f"{site.address}/v1/plans/{DEEP_KEY}/pin")
    # The browser itself reports the refused request; the page does not complain.
    assert all("status of 4" in one for one in watched.complaints)


def test_before_and_after_tuning_are_compared(watch: Watch) -> None:
    """From the plan's page to what tuning changed, by two clicks."""
    watched = watch(**LOOKS["light"])
    page = watched.open(f"/plans/{KEY}")
    page.click(".tabs a:has-text('Compare')")
    page.click("form:has(select[name=before]) button")
    page.wait_for_url(re.compile(r"before=1&after=2"))
    expect(page.locator("main")).to_contain_text("revision 1")
    expect(page.locator("table.sides tbody tr")).to_have_count(48)
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
    page.goto(f"{watched.address}/jobs/{JOB}/analysis")
    page.wait_for_selector("#parallel[data-drawn]")
    page.locator("#parallel").scroll_into_view_if_needed()
    box = page.locator("#parallel").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 40, box["y"] + 80)
    page.mouse.down()
    page.mouse.move(box["x"] + 40, box["y"] + 160, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"keep=0%3A"))
    page.goto(page.url)
    page.wait_for_selector("#parallel[data-drawn]")
    kept = page.evaluate(
        """() => echarts.getInstanceByDom(document.getElementById("parallel"))
          .getModel().getComponent("parallelAxis", 0).activeIntervals"""
    )
    low, high = page.url.partition("keep=0%3A")[2].split("%7E")
    assert kept == [[pytest.approx(float(low)), pytest.approx(float(high))]]
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
