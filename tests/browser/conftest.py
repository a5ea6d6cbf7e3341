"""A real Chromium, and a real service with stored jobs for it to look at."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from service.app import create_app
from service.settings import Settings
from service.store import Database
from tests.service.dashboard import samples
from tests.service.dashboard.samples import store_earlier_plan, store_job

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-quic",
    "--no-first-run",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE_MS = 120_000
"""How long a page may take on a machine that does other work; a sound one is quick."""

ARTIFACTS = Path(__file__).parents[1] / "artifacts"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A running service: its address, and the database behind it."""

    address: str
    database: Database


@dataclass(kw_only=True)
class Watched:
    """A page whose complaints are collected.

    Attributes:
        complaints: console errors and warnings, uncaught errors, policy violations.
    """

    page: Page
    address: str
    complaints: list[str] = field(default_factory=list)

    def open(self, path: str) -> Page:
        """Go to a path of the service and wait until nothing loads."""
        self.page.goto(self.address + path, wait_until="load")
        return self.page

    def assert_quiet(self) -> None:
        """Fail when the page complained, about the policy or anything else."""
        seen = self.page.evaluate("window.fuseplanViolations ?? []")
        assert not [*self.complaints, *seen]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Chromium of this machine; absent, the tests skip, or fail in CI.

    Its driver keeps an event loop running in this thread for as long as it lives, so it
    ends with the module: the tests of other folders start loops of their own.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = "no Chromium on this machine: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def few_words() -> Iterator[None]:
    """No line a request: what the service says of an error is still heard."""
    before = structlog.get_config()
    errors = structlog.make_filtering_bound_logger(logging.ERROR)
    structlog.configure(wrapper_class=errors, cache_logger_on_first_use=False)
    yield
    structlog.configure(**before)


@pytest.fixture(scope="package")
def site(
    few_words: None,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """A service on a free port with jobs in every interesting state."""
    folder = tmp_path_factory.mktemp("site")
    app = create_app(Settings(data_home=folder, worker=False, event_poll_seconds=0.05))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        while not server.started:
            assert thread.is_alive(), "the service did not start"
            time.sleep(0.02)
        database: Database = app.state.context.database
        started = samples.STARTED
        object.__setattr__(
            app.state.context, "clock", lambda: started + timedelta(minutes=9)
        )
        store_job(database, name="1", minutes=0)
        store_job(database, name="2", state="failed", minutes=1)
        store_job(database, name="3", state="running", minutes=2)
        store_job(database, name="4", layers=130, trials=10_000, minutes=3)
        store_job(database, name="5", state="queued", layers=1, minutes=4)
        store_job(database, name="6", layers=1, minutes=5)
        for name, layers in (("1", 4), ("4", 130)):
            store_earlier_plan(database, name=name, layers=layers)
        yield Site(address=f"http://127.0.0.1:{port}", database=database)
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def tab(chromium: Browser, site: Site) -> Iterator[Watched]:
    """One page for all checks that only look; opening it again is what is cheap."""
    context, watched = _watched(chromium, site, {})
    yield watched
    context.close()


def _watched(
    chromium: Browser, site: Site, options: dict[str, object]
) -> tuple[BrowserContext, Watched]:
    context = chromium.new_context(**options)  # type: ignore[arg-type]
    context.add_init_script(
        "window.fuseplanViolations = [];"
        "document.addEventListener('securitypolicyviolation', (event) =>"
        " window.fuseplanViolations.push(event.violatedDirective));"
    )
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    watched = Watched(page=page, address=site.address)
    page.on("console", lambda message: _hear(watched, message.type, message.text))
    page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    return context, watched


@pytest.fixture
def watch(chromium: Browser, site: Site) -> Iterator[object]:
    """Opens pages in a browser context of one's own, and watches them."""
    contexts: list[BrowserContext] = []

    def watch_(**options: object) -> Watched:
        context, watched = _watched(chromium, site, options)
        contexts.append(context)
        return watched

    yield watch_
    for context in contexts:
        context.close()


def _hear(watched: Watched, kind: str, text: str) -> None:
    if kind in {"error", "warning"}:
        watched.complaints.append(f"{kind}: {text}")


@pytest.fixture(scope="session")
def artifacts() -> Path:
    """Where screenshots are kept to be looked at."""
    ARTIFACTS.mkdir(exist_ok=True)
    return ARTIFACTS
