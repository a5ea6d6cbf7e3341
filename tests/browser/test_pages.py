"""Every page in a real browser: it loads in silence, for everybody, and stays small."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Page

from service.dashboard.routes import router
from tests.browser.conftest import Watched
from tests.browser.views import (
    BOXES,
    DEEP_PAGES,
    DRAWINGS,
    LOOKS,
    PAGES,
    SENT,
    wait_for_drawings,
)

VENDOR = Path(__file__).parent / "vendor"
AXE = VENDOR / "axe-4.10.3.min.js"

SAME_TEMPLATE = frozenset({"failed"})
"""Views whose markup is another view's, so that axe-core has nothing new to see."""

LONG = frozenset({"failed", "plan", "run", "trials", "tuned"})
"""Views of many screens; their pictures show the first."""

GRAPHS = {"#partition[data-boxes]", "#sides[data-drawn]"}

MAX_BYTES = 1_000_000
MAX_BOXES = 300


@pytest.fixture(autouse=True)
def quiet(tab: Watched) -> Iterator[None]:
    """A page of these tests never complains: console, policy, uncaught errors."""
    tab.complaints.clear()
    yield
    tab.assert_quiet()


def look(tab: Watched, name: str) -> Page:
    """The page as a look has it: colours first, then the size, then the load."""
    options: dict[str, Any] = LOOKS[name]
    tab.page.emulate_media(color_scheme=options["color_scheme"])
    tab.page.set_viewport_size(options["viewport"])
    return tab.page


def serious(page: Page, *, rules: str = "") -> list[Any]:
    """Serious and critical findings of axe-core."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(f"() => {{ {AXE.read_text()}\n }}")
    only = f", runOnly: ['{rules}']" if rules else ""
    found = page.evaluate(f"axe.run({{ resultTypes: ['violations']{only} }})")
    return [
        (one["id"], one["nodes"][0]["html"][:200], one["nodes"][0]["failureSummary"])
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]


def is_within(page: Page, width: int) -> bool:
    """Whether nothing makes the page scroll sideways."""
    return bool(page.evaluate("document.documentElement.scrollWidth") <= width)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(tab: Watched, artifacts: Path, name: str) -> None:
    """Silent, nothing serious in axe-core, readable in the dark, no sideways scroll."""
    page = look(tab, "light")
    tab.open(PAGES[name])
    wait_for_drawings(page, name)
    assert is_within(page, 1280)
    page.screenshot(path=artifacts / f"{name}-light.png", full_page=name not in LONG)
    if name not in SAME_TEMPLATE:
        assert serious(page) == []
    page.emulate_media(color_scheme="dark")
    if name not in SAME_TEMPLATE:
        assert serious(page, rules="color-contrast") == []
    page.screenshot(path=artifacts / f"{name}-dark.png")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone(tab: Watched, artifacts: Path, name: str) -> None:
    """390 pixels: nothing makes the page itself scroll sideways."""
    page = look(tab, "phone")
    tab.open(PAGES[name])
    wait_for_drawings(page, name)
    assert is_within(page, 390)
    page.screenshot(path=artifacts / f"{name}-phone.png")


def test_every_page_of_the_dashboard_is_looked_at() -> None:
    """A page that is added is added to these tests, at its largest, too."""
    routes = {route.path for route in router.routes if isinstance(route, APIRoute)}
    parts = {"/head", "/tables", "/partition", "/roofline.json", "/sides"}
    pages = {
        path
        for path in routes
        if not path.startswith("/static/")
        and not any(path.endswith(part) for part in parts)
        and path != "/plans"  # goes on to another page
    }
    shapes = {path: re.compile(re.sub(r"\{[^}]+\}", "[^/]+", path)) for path in pages}
    for given in (PAGES, DEEP_PAGES):
        seen = {path.partition("?")[0] for path in given.values()}
        missing = [p for p, s in shapes.items() if not any(map(s.fullmatch, seen))]
        assert missing == []


@pytest.mark.parametrize("name", DEEP_PAGES)
def test_a_page_stays_small(tab: Watched, name: str) -> None:
    """10,000 trials, 5,000 nodes: 300 boxes and 1 MB at most without the libraries."""
    page = look(tab, "light")
    if DRAWINGS.get(name):
        tab.open(DEEP_PAGES[name])
        wait_for_drawings(page, name)
        sent = page.evaluate(SENT)
    else:
        sent = len(page.request.get(tab.address + DEEP_PAGES[name]).body())
    assert 0 < sent <= MAX_BYTES
    if GRAPHS & set(DRAWINGS.get(name, ())):
        boxes = page.evaluate(BOXES)
        assert 0 < boxes <= MAX_BOXES


def test_the_library_of_the_tests_is_unchanged() -> None:
    """axe-core has the hash that is written beside it."""
    digest, name = (VENDOR / "SHA256SUMS").read_text().split()
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest
