"""The commands; see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import benchmarks.search_quality as package
from benchmarks.search_quality.learning import EXPERIENCE, learn
from benchmarks.search_quality.recording import record
from benchmarks.search_quality.replaying import replay
from tuner.search.quality import METHODS


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search_quality",
        description=(package.__doc__ or "").split("\n")[0],
    )
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="measure whole schedule spaces")
    recording.add_argument("out", type=Path)
    recording.add_argument("--device", default="cpu")
    recording.add_argument("--target", default="cpu", help="device of the catalogue")
    recording.add_argument("--only", action="append", help="name of a kernel")
    recording.add_argument("--most", type=int, help="schedules of each kernel, at most")
    recording.add_argument("--minutes", type=float, help="end after so long")
    recording.add_argument(
        "--rivals",
        type=Path,
        help="another recording, whose fastest schedules are run as often",
    )
    recording.set_defaults(run=record)
    replaying = commands.add_parser("replay", help="compare searches on recordings")
    replaying.add_argument("first", type=Path)
    replaying.add_argument("second", type=Path, nargs="?")
    replaying.add_argument("--seeds", type=int, default=10)
    replaying.add_argument("--all", action="store_true", help="small spaces too")
    replaying.add_argument(
        "--repriced",
        action="store_true",
        help="with the defaults and prices of this version, not those of the recording",
    )
    replaying.add_argument(
        "--untaught", action="store_true", help="without what other kernels teach"
    )
    replaying.add_argument(
        "--method", action="append", choices=[*METHODS], help="compare these alone"
    )
    replaying.set_defaults(run=replay)
    learning = commands.add_parser("learn", help="write what recorded kernels teach")
    learning.add_argument("recordings", type=Path, nargs="+")
    learning.add_argument("--out", type=Path, default=EXPERIENCE)
    learning.set_defaults(run=learn)
    given = parser.parse_args(arguments)
    given.run(given)
    return 0


if __name__ == "__main__":
    sys.exit(main())
