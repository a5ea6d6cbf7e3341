"""Prints the tables; see the package."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

import benchmarks.service as package
from benchmarks.service.busy import busy
from benchmarks.service.filling import databases, fill
from benchmarks.service.growth import FEW, growth
from benchmarks.service.processes import service
from benchmarks.service.shares import against_bare
from service.store import upgrade

PARTS: Final = ("bare", "growth", "busy")


def measure(
    kind: str, urls: Sequence[str], seconds: float, plans: int, parts: Sequence[str]
) -> None:
    """Print everything about one kind of database.

    Args:
        kind: what it is called.
        urls: two empty databases.
        seconds: of each run of `wrk`.
        plans: how many the second one holds.
        parts: what is measured, of `PARTS`.
    """
    print(f"\n## {kind}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        counts = (FEW, plans) if "growth" in parts else (FEW,)
        clients = []
        for url, count in zip(urls, counts, strict=False):
            upgrade(url)
            began = time.perf_counter()
            fill(url, count)
            print(f"\n{count} plans stored in {time.perf_counter() - began:.0f} s")
            clients.append(stack.enter_context(service(url, folder)))
        if "bare" in parts:
            against_bare(clients[0], folder, seconds)
        if "growth" in parts:
            growth(clients, plans, folder, seconds)
        if "busy" in parts:
            busy(clients[0], urls[0], folder, seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.service", description=package.__doc__
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    parser.add_argument(
        "--plans", type=int, default=1_000_000, help="of the larger one"
    )
    parser.add_argument("--database", default="", help="address of a PostgreSQL server")
    parser.add_argument("--only", choices=("SQLite", "PostgreSQL"), help="a database")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args(arguments)
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed")
    asked = (options.seconds, options.plans, options.parts)
    if options.only != "PostgreSQL":
        with tempfile.TemporaryDirectory() as folder:
            urls = [f"sqlite:///{folder}/{name}.db" for name in ("few", "many")]
            measure("SQLite", urls, *asked)
    if options.database and options.only != "SQLite":
        measure("PostgreSQL", list(databases(options.database)), *asked)


if __name__ == "__main__":
    main()
