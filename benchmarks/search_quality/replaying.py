"""Compares searches on recorded spaces."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from benchmarks.search_quality.recorded import (
    is_whole,
    lesson_of,
    recorded_kernel,
    repriced,
    target_of,
)
from benchmarks.search_quality.saying import say
from tuner.search.experience import Experience
from tuner.search.quality import (
    CHECKPOINTS,
    METHODS,
    NEAR,
    Space,
    compare,
    spaces_from,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from tuner.search.kernels import KernelState
    from tuner.search.records import Json


def replay(given: argparse.Namespace) -> None:
    """Compare the searches and print the tables."""
    stored = json.loads(given.first.read_text())
    spaces = spaces_from(stored)
    device = target_of(stored)
    kernels = {each.name: recorded_kernel(each, device) for each in spaces}
    if given.repriced:
        spaces = tuple(repriced(each, device, kernels[each.name]) for each in spaces)
    judged = json.loads((given.second or given.first).read_text())
    truths = spaces_from(judged)
    twice = {each.name for each in truths if is_whole(each, judged.get("sizes", {}))}
    stated = stored.get("sizes", {})
    known = spaces if given.untaught else taught(spaces, kernels)
    whole = [
        each
        for each in _in_both(known, truths)
        if given.all or (is_whole(each, stated) and each.name in twice)
    ]
    if len(whole) < len(spaces):
        say(f"{len(spaces) - len(whole)} spaces are not complete and left out")
    changed = sum(kernel is None for kernel in kernels.values())
    if changed:
        say(f"{changed} spaces are of other code, and keep their prices")
    worthy = [each for each in whole if given.all or each.is_worthy]
    varied = sum(each.is_worthy for each in spaces)
    say(f"{varied} of {len(spaces)} spaces are large and varied enough")
    if worthy:
        methods = given.method or [*METHODS]
        rows = compare(worthy, truths, seeds=given.seeds, methods=methods)
        _tell(rows, methods, given.seeds)
        if "ours" in methods:
            _tell_ours(rows, worthy, truths)


def _tell(rows: Sequence[Json], methods: Sequence[str], seeds: int) -> None:
    """Print how the methods did."""
    say(f"{'method':8}" + "".join(f"{n:>6} trials {'near':>5}" for n in CHECKPOINTS))
    for method in methods:
        cells = []
        for count in CHECKPOINTS:
            mine = [r for r in rows if (r["method"], r["trials"]) == (method, count)]
            share = sum(row["share"] for row in mine) / len(mine)
            near = sum(row["near_best"] for row in mine) / len(mine)
            cells.append(f"{share:12.1%} {near:>6.0%}")
        say(f"{method:8}" + "".join(cells))
    say(
        f"share of the way from median to best, mean; near: within {NEAR:.0%} of the "
        f"best; {seeds} seeds each; ours: among the schedules that a tuning run tries, "
        "of all: among all recorded; knowing: the fastest of the first recording\n"
    )


def _tell_ours(
    rows: Sequence[Json], spaces: Sequence[Space], truths: Sequence[Space]
) -> None:
    """Print how ours did on each space.

    Beside it, by how much two things fall behind the best: the schedule that was the
    fastest in the first recording, and the best of those that a tuning run tries.
    """
    found = {(r["space"], r["trials"]): r for r in rows if r["method"] == "ours"}
    judges = {truth.name: truth for truth in truths}
    say(f"{'slower than the best, ours':32}" + "".join(f"{n:>8}" for n in CHECKPOINTS))
    for each in spaces:
        truth = judges[each.name]
        cells = [f"{found[each.name, n]['excess']:8.1%}" for n in CHECKPOINTS]
        fastest = min(each.seconds, key=lambda schedule: each.seconds[schedule])
        known = truth.seconds[fastest] / truth.best_seconds - 1
        tried = min(truth.seconds[s] for s in each.tried or each.seconds)
        once = "" if each.runs and truth.runs else "  judged by single runs"
        say(
            f"{each.name:32}{''.join(cells)}  knowing {known:.1%}  best tried "
            f"{tried / truth.best_seconds - 1:.1%}{once}"
        )


def taught(
    spaces: Sequence[Space], kernels: Mapping[str, KernelState | None]
) -> list[Space]:
    """Spaces with what all others teach of each: of its code, priced as it is."""
    lessons = {each.name: lesson_of(each, kernels[each.name]) for each in spaces}
    found = []
    for each in spaces:
        is_old = kernels[each.name] is None
        others = [
            lesson
            for name, lesson in lessons.items()
            if name != each.name and (kernels[name] is None) == is_old
        ]
        known = Experience.learned(others)
        learned = known.factors(lessons[each.name].regime, tuple(each.seconds))
        found.append(replace(each, learned=learned))
    return found


def _in_both(spaces: Sequence[Space], truths: Sequence[Space]) -> list[Space]:
    """The spaces that both recordings have, with the schedules that ran in both."""
    known = {each.name: each.seconds for each in truths}
    return [
        replace(
            each,
            seconds={s: v for s, v in each.seconds.items() if s in known[each.name]},
            predicted={
                s: v for s, v in each.predicted.items() if s in known[each.name]
            },
            tried=each.tried & known[each.name].keys(),
        )
        for each in spaces
        if each.name in known
    ]
