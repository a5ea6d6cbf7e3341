"""How fast the dashboard is when a job is large: 10,000 trials, 5,000 nodes.

    python -m benchmarks.ui [--output FILE] [--repeats N]

Starts the service with such a job and opens every view in headless Chromium: first
contentful paint, the time until everything is drawn, bytes without the libraries that a
browser keeps, boxes laid out, and how long the screen takes to answer a key or a click.
The figures are medians over the repeats with the libraries kept; a goal that is missed
is marked, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from service.store import connect, upgrade
from tests.browser.driving import Page, chromium
from tests.browser.views import BOXES, DEEP_PAGES, SENT, wait_for_drawings
from tests.service.dashboard.samples import store_earlier_plan, store_job

PAINT_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 0.1
MAX_BYTES: Final = 1_000_000
MAX_BOXES: Final = 300
START_SECONDS: Final = 240.0
"""How long the service may take to start beside other work."""

TRIALS: Final = 10_000
LAYERS: Final = 130
"""Layers of the sample encoder with more than 5,000 nodes."""

_COMMAND: Final = str(Path(sys.executable).with_name("fuseplan"))
_PAINT: Final = (
    "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
)
_LISTEN: Final = """() => {
  window.answers = [];
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) window.answers.push(one.duration);
  }).observe({ type: "event", durationThreshold: 16, buffered: false });
}"""
_AFTER_PAINT: Final = """() => new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 120))))"""
_LEAST_SECONDS: Final = 0.016
"""The browser tells of no shorter answers."""


def _keys(page: Page) -> None:
    page.focus("#partition")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("w")


def _match(page: Page) -> None:
    page.locator(".side").nth(1).focus()
    page.keyboard.press("ArrowDown")


def _gap(page: Page) -> None:
    page.click(".switch [data-show=gap]")


def _details(page: Page) -> None:
    page.locator(".nodes summary").first.click()


def _axis(page: Page) -> None:
    page.focus("select[name=colour]")
    page.keyboard.press("ArrowDown")


def _seconds(page: Page) -> None:
    page.click(".switch [data-axis=time]")


def _theme(page: Page) -> None:
    page.click("#theme")


ACTS: Final[Mapping[str, tuple[tuple[str, Any], ...]]] = {
    "plan": (("walk boxes and arrows", _keys), ("open a row", _details)),
    "run": (("show the gap", _gap), ("walk boxes and arrows", _keys)),
    "analysis": (("colour by failure", _axis),),
    "compare": (("across seconds", _seconds),),
    "baseline": (("find on the other side", _match),),
    **dict.fromkeys(("fleet", "roofline", "quality"), (("dark colours", _theme),)),
}


@contextmanager
def service() -> Iterator[str]:
    """A service with a large job; yields its address."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        _fill(f"sqlite:///{folder}/fuseplan/fuseplan.db")
        environment = {**os.environ, "XDG_DATA_HOME": folder, "XDG_STATE_HOME": folder}
        process = subprocess.Popen(
            [_COMMAND, "serve", "--port", str(port)],
            env={**environment, "FUSEPLAN_WORKER": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _wait(f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def _fill(url: str) -> None:
    upgrade(url)
    database = connect(url)
    store_job(database, name="1", minutes=0)
    store_job(database, name="4", layers=LAYERS, trials=TRIALS, minutes=3)
    store_earlier_plan(database, name="4", layers=LAYERS)
    database.close()


def _wait(address: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            if httpx.get(f"{address}/readyz").status_code == httpx.codes.OK:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.1)
    sys.exit("the service did not start")


def measure(address: str, repeats: int) -> list[dict[str, Any]]:
    """One row a view."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(f"{address}{DEEP_PAGES['run']}")
        wait_for_drawings(page, "run")
        return [_row(page, address, name, repeats) for name in DEEP_PAGES]


def _row(page: Page, address: str, name: str, repeats: int) -> dict[str, Any]:
    paints, drawn = [], []
    for _ in range(repeats):
        started = time.monotonic()
        page.goto(address + DEEP_PAGES[name], wait_until="load")
        wait_for_drawings(page, name)
        drawn.append(time.monotonic() - started)
        page.evaluate(_AFTER_PAINT)
        paint = page.evaluate(_PAINT)
        paints.append(None if paint is None else paint / 1000)
    sent = page.evaluate(SENT)
    drawn_boxes = page.evaluate(BOXES)
    seen = [paint for paint in paints if paint is not None]
    return {
        "view": name,
        "first_paint_seconds": statistics.median(seen) if seen else None,
        "drawn_seconds": statistics.median(drawn),
        "bytes": sent,
        "boxes": drawn_boxes,
        "answers_seconds": {what: _answer(page, act) for what, act in _acts(name)},
    }


def _acts(name: str) -> tuple[tuple[str, Any], ...]:
    return ACTS.get(name, ())


def _answer(page: Page, act: Any) -> float:
    """The longest time from a key or click to the next picture."""
    page.evaluate(_LISTEN)
    act(page)
    page.evaluate(_AFTER_PAINT)
    told = page.evaluate("window.answers")
    return max([_LEAST_SECONDS, *(one / 1000 for one in told)])


def missed(row: Mapping[str, Any]) -> list[str]:
    """Goals that a view misses."""
    paint = row["first_paint_seconds"]
    slow = [a for a in row["answers_seconds"].values() if a > ANSWER_SECONDS]
    goals = {
        "first paint": paint is None or paint > PAINT_SECONDS,
        "answer": bool(slow),
        "bytes": row["bytes"] > MAX_BYTES,
        "boxes": row["boxes"] > MAX_BOXES,
    }
    return [name for name, is_missed in goals.items() if is_missed]


def show(rows: list[dict[str, Any]]) -> None:
    """The table."""
    head = ("view", "paint ms", "drawn ms", "KB", "boxes", "answer ms", "missed")
    print("{:10} {:>9} {:>9} {:>7} {:>6} {:>10}  {}".format(*head))
    for row in rows:
        answers = row["answers_seconds"].values()
        paint = row["first_paint_seconds"]
        painted = "-" if paint is None else f"{paint * 1e3:.0f}"
        print(
            f"{row['view']:10} {painted:>9}"
            f" {row['drawn_seconds'] * 1e3:>9.0f} {row['bytes'] / 1e3:>7.0f}"
            f" {row['boxes'] or '':>6}"
            f" {format(max(answers) * 1e3, '.0f') if answers else '':>10}"
            f"  {', '.join(missed(row))}"
        )


def main() -> int:
    """Measure, print, and say whether a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--output", "-o", type=Path, help="file for the figures as JSON"
    )
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    with service() as address:
        rows = measure(address, given.repeats)
    show(rows)
    if given.output is not None:
        told = {"trials": TRIALS, "layers": LAYERS, "views": rows}
        given.output.write_text(json.dumps(told, indent=1) + "\n")
    return int(any(missed(row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
