"""Memory-bound kernels beside ONNX Runtime, PyTorch, Inductor, TVM and JAX.

    python -m benchmarks.peers --environment FOLDER [--output FOLDER] [--quick]

The peers live in an environment of their own, which is made where `--environment`
says if it is not there. Each library runs in its own process, and all others are
stopped meanwhile. Results are compared before anything is timed; rounds in which other
processes took more than 3 % of a core are repeated. Writes `peers.json` (environment,
raw samples, intervals), `peers.md` and `peers.svg`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.peers import environment, report
from benchmarks.peers.cases import SIZES, suite
from benchmarks.peers.measuring import PEERS, ROUNDS, Effort, measure, open_peers

QUICK_ROUNDS = 3
_REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def made(folder: Path) -> Path:
    """The Python of the peers' environment, which is made if it is not there."""
    python = folder / "bin" / "python"
    stamp = folder / "requirements.txt"
    wanted = _REQUIREMENTS.read_text(encoding="utf-8")
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python.absolute()
    print(f"making the peers' environment in {folder}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    for line in wanted.splitlines():
        if line and not line.startswith("#"):  # one that fails leaves the others
            subprocess.run([*install, line], check=False)
    stamp.write_text(wanted, encoding="utf-8")
    return python.absolute()


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--environment", type=Path, required=True, help="of the peers")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument(
        "--quick", action="store_true", help="three rounds of the cache-resident size"
    )
    parser.add_argument("--cases", nargs="*", default=[], help="only these")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--budget", type=float, default=5.0, help="seconds a case")
    parser.add_argument(
        "--minutes", type=float, default=15.0, help="after these, no round is repeated"
    )
    parser.add_argument("--exactness", choices=("strict", "relaxed"), default="strict")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sizes, options.rounds = ["cache"], QUICK_ROUNDS
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write what was found."""
    options = parsed(arguments)
    chosen = suite(options.sizes, options.cases)
    effort = Effort(
        rounds=options.rounds,
        repeats=options.rounds,
        budget_seconds=options.budget,
        exactness=options.exactness,
    )
    start = time.perf_counter()
    late = replace(effort, repeats=0)
    document: dict[str, Any] = {"environment": environment.report(), "rows": []}
    with open_peers(made(options.environment), options.peers) as peers:
        document["peers"] = {
            name: {"missing": p.missing} if p.missing else p.about
            for name, p in peers.items()
        }
        for case in chosen:
            is_late = time.perf_counter() - start > 60 * options.minutes
            row = report.figures(measure(case, peers, late if is_late else effort))
            document["rows"].append(row)
            print(_line(row), flush=True)
    document["effort"] = vars(options) | {
        "environment": str(options.environment),
        "output": str(options.output),
    }
    document["seconds"] = time.perf_counter() - start
    document["summary"] = report.summary(document["rows"])
    _write(options.output, document)
    print(*report.lines(document["summary"]), sep="\n")


def _line(row: dict[str, Any]) -> str:
    found = row["ratio"]
    said = "no ratio"
    if found:
        said = (
            f"{row['best_peer']} / ours {found['median']:.2f} "
            f"({found['low']:.2f} to {found['high']:.2f})"
        )
    failed = {n: s["failed"] for n, s in row["sides"].items() if "failed" in s}
    more = "".join(f"\n    {name}: {why}" for name, why in failed.items())
    state = ", contended" if row["contended"] else ""
    return f"{row['case']}/{row['size']}: {said}{state}{more}"


def _write(folder: Path, document: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = document["rows"]
    text = json.dumps(document, indent=1)
    (folder / "peers.json").write_text(text, encoding="utf-8")
    page = [*report.table(rows), "", *report.lines(document["summary"]), ""]
    (folder / "peers.md").write_text("\n".join(page), encoding="utf-8")
    (folder / "peers.svg").write_text(report.plot(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
