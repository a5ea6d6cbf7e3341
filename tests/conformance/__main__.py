"""Prints what becomes of every node test: `python -m tests.conformance [WORD]`."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing

from tests.conformance.cases import all_cases
from tests.conformance.ledger import read_ledger
from tests.conformance.running import Outcome, Result, run_case
from tuner.runtime.opencl import OpenCLBackend

TOLD = 100
"""Cases between two lines that say how far it is."""


def table(results: Sequence[Result]) -> str:
    """Totals, then the library's, the refused, excused and failed in detail."""
    totals = Counter(result.outcome for result in results)
    lines = [f"{outcome:<10} {totals[outcome]:>5}" for outcome in Outcome]
    lines.append(f"{'all':<10} {len(results):>5}")
    library = Counter(name for result in results for name in result.library)
    lines += ["", "in the library:"]
    lines += [f"{count:>5}  {name}" for name, count in library.most_common()]
    for outcome in (Outcome.REFUSED, Outcome.EXCUSED, Outcome.FAILED):
        reasons: dict[str, list[str]] = defaultdict(list)
        for result in results:
            if result.outcome is outcome:
                reasons[result.reason].append(result.name)
        lines += ["", f"{outcome}:"]
        lines += [
            f"{len(names):>5}  {reason}: {', '.join(names[:3])}"
            for reason, names in sorted(reasons.items(), key=lambda p: -len(p[1]))
        ]
    return "\n".join(lines)


def main() -> int:
    """Run the cases whose names hold the word, by default all.

    Interrupted, the table is that of the cases so far.
    """
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    with closing(OpenCLBackend()) as backend:
        ledger = read_ledger()
        cases = [case for case in all_cases() if word in case.name]
        results: list[Result] = []
        try:
            for case in cases:
                results.append(run_case(case, backend, ledger))
                if len(results) % TOLD == 0:
                    sys.stderr.write(f"{len(results)} of {len(cases)}\n")
        except KeyboardInterrupt:
            sys.stderr.write(f"stopped after {len(results)} of {len(cases)}\n")
    print(table(results))  # noqa: T201
    return int(any(result.outcome is Outcome.FAILED for result in results))


if __name__ == "__main__":
    sys.exit(main())
