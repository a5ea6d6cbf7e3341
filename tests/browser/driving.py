"""One headless Chromium for what drives a browser outside of the tests."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import FLAGS, NAMES

__all__ = ["Browser", "Page", "chromium"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium of this machine; the program ends with a hint where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        sys.exit("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()
