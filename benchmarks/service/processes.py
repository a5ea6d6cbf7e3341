"""What is asked: the service on a database, and a bare handler, as processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

TOKEN: Final = "benchmark"  # noqa: S105 - of a service that lives for a minute
SERVE: Final = "import sys; from service.cli import main; sys.exit(main())"


@contextmanager
def process(words: Sequence[str], ready: str, **variables: str) -> Iterator[None]:
    """A process for as long as the block lasts; a server, once it answers `ready`."""
    started = subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        if ready:
            _wait(started, ready)
        yield
    finally:
        started.terminate()
        started.wait(30)


def _wait(started: subprocess.Popen[bytes], url: str) -> None:
    for _ in range(600):
        if started.poll() is not None:
            break
        try:
            if httpx.get(url, trust_env=False).is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise SystemExit(f"nothing answers at {url}")


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def service(url: str, folder: str) -> Iterator[httpx.Client]:
    """The service on a database; nobody tunes beside it."""
    port = free_port()
    words = ["-c", SERVE, "serve", "--port", str(port), "--no-worker"]
    variables = {
        "FUSEPLAN_DATABASE_URL": url,
        "FUSEPLAN_ADMIN_TOKEN": TOKEN,
        "FUSEPLAN_LOG_LEVEL": "warning",
        "XDG_DATA_HOME": folder,
    }
    address = f"http://127.0.0.1:{port}"
    with (
        process(words, f"{address}/readyz", **variables),
        httpx.Client(
            base_url=address,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=120,
            trust_env=False,
        ) as client,
    ):
        yield client


@contextmanager
def bare(answers: Mapping[str, httpx.Response], folder: str) -> Iterator[str]:
    """A handler that gives these answers, by name; its address."""
    told = {
        name: {
            "status": answer.status_code,
            "headers": [
                (n, v) for n, v in answer.headers.items() if n not in {"date", "server"}
            ],
            "content": answer.content.hex(),
        }
        for name, answer in answers.items()
    }
    path = Path(folder) / "answers.json"
    path.write_text(json.dumps(told))
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    words = ["-m", "benchmarks.bare", str(path), str(port)]
    with process(words, f"{address}/ready"):
        yield address
