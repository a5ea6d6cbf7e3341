"""Takes the pictures of `docs/images` from a real run, in one command.

    python -m tests.browser.pictures [--address URL] [--budget-seconds N] [FOLDER]

Without an address it starts the service of `fuseplan demo` with a new database, and
tunes its model twice, the second time under the smaller set of legality rules, so that
there is something to compare.
Do that on a machine that does nothing else: every picture shows measured times.
"""

from __future__ import annotations

import argparse
import base64
import struct
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from service.cli.demo import MODEL, example_model, serving
from tests.browser.driving import Browser, Page, chromium
from tests.browser.views import A_FRAME, AN_ARROW, addresses, wait_for_drawings

LOOKS: Final = {
    "": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "-dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    "-phone-dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark"},
}
PATIENCE_MS: Final = 240_000
"""A machine that tunes beside this answers late."""

COLOURS: Final = 96
"""Colours of a picture: text, lines and a dozen hues need no more."""

INDEXED: Final = """async ([text, most]) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const { width, height } = image;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const data = context.getImageData(0, 0, width, height).data;
  const seen = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
    seen.set(colour, (seen.get(colour) ?? 0) + 1);
  }
  const apart = (a, b) => ((a >> 16) - (b >> 16)) ** 2
    + (((a >> 8) & 255) - ((b >> 8) & 255)) ** 2 + ((a & 255) - (b & 255)) ** 2;
  // The colours seen most; one that is near a taken one waits for a second round.
  const order = [...seen.keys()].sort((a, b) => seen.get(b) - seen.get(a));
  const chosen = [];
  for (const least of [300, 60, 0])
    for (const colour of order) {
      if (chosen.length >= most) break;
      if (chosen.every((one) => apart(one, colour) > least)) chosen.push(colour);
    }
  const nearest = new Map();
  for (const colour of order) {
    let best = 0;
    for (let k = 1; k < chosen.length; k += 1)
      if (apart(chosen[k], colour) < apart(chosen[best], colour)) best = k;
    nearest.set(colour, best);
  }
  let told = "";
  const part = [];
  for (let i = 0; i < data.length; i += 4) {
    part.push(nearest.get((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]));
    if (part.length === 8192) told += String.fromCharCode(...part.splice(0));
  }
  told += String.fromCharCode(...part);
  return { width, height, palette: chosen, pixels: btoa(told) };
}"""
"""A picture as places in a palette; Chromium itself reads the PNG."""


class Camera:
    """Takes small pictures.

    Args:
        browser: what draws.
        folder: where pictures are put.
    """

    def __init__(self, browser: Browser, folder: Path) -> None:
        self._browser = browser
        self._folder = folder
        self._dark_room = browser.new_page()
        self._dark_room.goto("about:blank")

    def open(self, url: str, name: str, **options: Any) -> Page:
        """A page of its own on which everything is drawn."""
        page = self._browser.new_context(**options).new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.goto(url, wait_until="load")
        wait_for_drawings(page, name)
        page.wait_for_timeout(300)
        return page

    def take(self, name: str, picture: bytes) -> int:
        """Store a picture with few colours; gives its size in bytes."""
        text = base64.b64encode(picture).decode()
        told = self._dark_room.evaluate(INDEXED, [text, COLOURS])
        small = palette_png(
            told["width"], told["height"], told["palette"], told["pixels"]
        )
        (self._folder / f"{name}.png").write_bytes(small)
        return len(small)


def palette_png(width: int, height: int, palette: list[int], pixels: str) -> bytes:
    """A PNG of colour type 3 (ISO/IEC 15948), eight bits a pixel.

    Args:
        width: pixels a row.
        height: rows.
        palette: colours as 0xRRGGBB.
        pixels: places in the palette, row by row, in base64.
    """
    places = base64.b64decode(pixels)
    rows = b"".join(
        b"\0" + places[row * width : (row + 1) * width] for row in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    colours = b"".join(colour.to_bytes(3, "big") for colour in palette)
    parts = (
        (b"IHDR", head),
        (b"PLTE", colours),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_part(kind, told) for kind, told in parts)


def _part(kind: bytes, told: bytes) -> bytes:
    check = zlib.crc32(kind + told)
    return struct.pack(">I", len(told)) + kind + told + struct.pack(">I", check)


@contextmanager
def demo(budget_seconds: float) -> Iterator[str]:
    """A service with two tuned runs of the encoder that comes with Fuseplan."""
    with (
        serving("cpu", None, fresh=True) as service,
        httpx.Client(base_url=service.address, timeout=60.0) as http,
    ):
        for options in ("{}", '{"legality": "reference"}'):
            _tune(http, budget_seconds, options)
        yield service.address


def _tune(http: httpx.Client, budget_seconds: float, options: str) -> None:
    answer = http.post(
        "/v1/plans",
        params={
            "target": "cpu",
            "mode": "tuned",
            "budget_seconds": budget_seconds,
            "options": options,
            "title": MODEL,
        },
        content=example_model(),
        headers={"Content-Type": "application/onnx"},
    )
    answer.raise_for_status()
    path = answer.headers["Location"]
    while http.get(path).json()["state"] in {"queued", "running"}:
        time.sleep(1.0)


def main(address: str, folder: Path) -> None:
    """Take every picture of the oldest tuned job of a service."""
    folder.mkdir(parents=True, exist_ok=True)
    with httpx.Client(base_url=address, timeout=60.0) as http:
        places, run, at = _places(http)
    sizes = []
    with chromium() as browser:
        camera = Camera(browser, folder)
        for look, options in LOOKS.items():
            for name, path in places.items():
                page = camera.open(address + path, name, **options)
                sizes.append(camera.take(f"{name}{look}", page.screenshot()))
                page.context.close()
        sizes += _close_ups(camera, address + run, at)
        sizes.append(_beside(camera, address + places["baseline"]))
    sys.stdout.write(f"{len(sizes)} pictures, {sum(sizes) / 1e6:.1f} MB in {folder}\n")


def _places(http: httpx.Client) -> tuple[dict[str, str], str, int]:
    """Addresses of the views, of the run, and the place of a telling kernel."""
    done = [
        job
        for job in reversed(http.get("/v1/jobs").json()["jobs"])
        if job["state"] in {"succeeded", "partial"}
    ]
    if not done:
        sys.exit("no job has ended here: tune a model first")
    job = done[0]
    alike = [one for one in done[1:] if one["title"] == job["title"]]
    rival = next(iter(alike), done[-1])
    plan = http.get(f"/v1/plans/{job['plan_key']}").json()
    trials = http.get(f"/v1/jobs/{job['id']}/trials?failure=none").json()["trials"]
    at = _kernel(plan)
    places = addresses(
        key=job["plan_key"],
        job=job["id"],
        kernel=plan["kernels"][at]["name"],
        other=rival["plan_key"],
        rival=rival["id"],
        trial=next((one["number"] for one in trials if one["schedule"]), 0),
        device=job["target"],
    )
    a, b = _ends(plan)
    key, id_ = job["plan_key"], job["id"]
    places["explain"] = f"/plans/{key}/explain?a={a}&b={b}&job={id_}"
    return places, places["run"], at


def _kernel(plan: dict[str, Any]) -> int:
    """A generated kernel of some nodes, such that its page shows everything."""
    sizes = {
        index: len(kernel["nodes"])
        for index, kernel in enumerate(plan["kernels"])
        if kernel["sources"] and kernel["measurement"]
    }
    return min(sizes, key=lambda index: (abs(sizes[index] - 6), index), default=0)


def _ends(plan: dict[str, Any]) -> tuple[str, str]:
    """The last node of a kernel and the first of one that reads what it writes."""
    for kernel in plan["kernels"]:
        for reader in plan["kernels"]:
            if set(kernel["outputs"]) & set(reader["inputs"]):
                return kernel["nodes"][-1], reader["nodes"][0]
    first = plan["graph"]["nodes"][0]["id"]
    return first, first


def _close_ups(camera: Camera, run: str, at: int) -> list[int]:
    """The partition alone: a kernel that was opened, and an arrow with its answer."""
    options = {"viewport": {"width": 1280, "height": 1010}, "color_scheme": "light"}
    opened = camera.open(f"{run}?expand={at}-{at}", "run", **options)
    inside = opened.locator("#partition-section").screenshot()
    page = camera.open(run, "run", **options)
    page.locator("#partition").scroll_into_view_if_needed()
    page.evaluate(A_FRAME)
    page.mouse.click(*page.evaluate(AN_ARROW))
    page.wait_for_selector("#partition-detail .why")
    page.reload()  # the link of the arrow shows it in the middle
    page.wait_for_selector("#partition-detail .why")
    answer = page.locator("#partition-section").screenshot()
    return [
        camera.take("partition-inside", inside),
        camera.take("partition-why", answer),
    ]


def _beside(camera: Camera, baseline: str) -> int:
    """The plan beside no fusion, with a kernel chosen on the side of the plan."""
    options = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"}
    page = camera.open(baseline, "baseline", **options)
    page.locator(".side").nth(1).focus()
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.wait_for_timeout(400)
    return camera.take("sides", page.locator("#sides-section").screenshot())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("docs/images"))
    parser.add_argument("--address", help="a service that runs already")
    parser.add_argument("--budget-seconds", type=float, default=30.0)
    given = parser.parse_args()
    if given.address:
        main(given.address, given.folder)
    else:
        with demo(given.budget_seconds) as started:
            main(started, given.folder)
