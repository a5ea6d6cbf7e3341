"""Everything that the pattern graphs ask of the planner, judged.

`python -m tests.tuner.fusion.patterns [NAME ...]` prints for each pattern the plan of
least traffic, the plans of `ideal` and what a device's plan does with pairs of nodes;
then how many of each are as they must be. It exits 1 when one is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import SHARED
from tests.tuner.fusion.pattern_plans import Verdict, judge
from tests.tuner.fusion.pattern_targets import TARGET, Moved, Pair, moved, pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What was found of one pattern.

    Attributes:
        least: the plan of least traffic by the reference rules.
        ideal: plans for `ideal`, by the reference rules and by all families.
        pairs: what the plan for a device does with pairs.
    """

    least: Verdict
    ideal: Moved
    pairs: Sequence[Pair]

    @property
    def checks(self) -> dict[str, bool]:
        """Every promise, and whether it is kept."""
        least, ideal = self.least, self.ideal
        found = {
            "golden bytes and legal": least.reached,
            "golden kernels": least.kernels == least.golden_kernels,
            "proved": least.gap <= 1e-6,
            "ideal: golden bytes, legal, as reported": not ideal.faults
            and ideal.reported == ideal.judged == ideal.golden,
            "ideal, full legality: at most the golden": ideal.full <= ideal.golden,
        }
        for pair in self.pairs:
            word = "together" if pair.must else "apart, or unless"
            key = f"{TARGET}: {'/'.join(pair.nodes)} {word}"
            found[key] = pair.is_kept
        return found


def judged(path: Path) -> Judged:
    """Judge one pattern."""
    return Judged(
        least=judge(path),
        ideal=moved(path),
        pairs=pairs(path),
    )


def lines(found: Judged) -> Iterator[str]:
    """One pattern in words."""
    v = found.least
    broken = [name for name, kept in found.checks.items() if not kept]
    yield (
        f"{v.name:34} {'MISSED' if broken else 'ok':7} {v.moved:>10} bytes, "
        f"golden {v.golden:>10}; {v.kernels} of {v.golden_kernels} kernels; "
        f"gap {v.gap:.1e}; {v.candidates} candidates; {v.seconds:.2f} s; "
        f"ideal {found.ideal.reported}, full {found.ideal.full}"
    )
    for name in broken:
        yield f"    not kept: {name}"
    faults = (*v.faults, *found.ideal.faults)
    yield from (f"    {fault}" for fault in dict.fromkeys(faults))
    for pair in found.pairs:
        if pair.must or not pair.together:
            continue
        yield (
            f"    {'/'.join(pair.nodes)} together though apart is advised, unless "
            f"{pair.unless or 'nothing'}: {pair.schedule}; "
            f"{1e6 * pair.seconds:.3f} us, apart {1e6 * pair.apart_seconds:.3f} us"
        )


def summary(found: Sequence[Judged]) -> Iterator[str]:
    """How many of each promise are kept."""
    firm = [name for name in found[0].checks if not name.startswith(TARGET)]
    for name in firm:
        kept = sum(one.checks[name] for one in found)
        yield f"{kept} of {len(found)}  {name}"
    every = [pair for one in found for pair in one.pairs]
    must = [pair for pair in every if pair.must]
    never = [pair for pair in every if not pair.must]
    apart = sum(not pair.together for pair in never)
    unless = sum(pair.together and pair.is_kept for pair in never)
    yield f"{sum(p.together for p in must)} of {len(must)}  {TARGET}: pairs together"
    yield (
        f"{apart + unless} of {len(never)}  {TARGET}: pairs apart, {unless} of them by"
        " what the generator does"
    )


def say(told: Iterable[str]) -> None:
    """Print lines at once."""
    for line in told:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Judge every pattern, or those that are named."""
    found = []
    for path in sorted((SHARED / "patterns").glob("*.onnx")):
        if not arguments or path.stem in arguments:
            found.append(judged(path))
            say(lines(found[-1]))
    if not found:
        say(["no such pattern"])
        return 1
    say(summary(found))
    return 0 if all(all(one.checks.values()) for one in found) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
