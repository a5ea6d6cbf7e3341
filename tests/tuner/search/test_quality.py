"""Recorded schedule spaces, and searches compared on them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import product

import pytest

from tuner.errors import InvalidModel
from tuner.plan import Schedule
from tuner.search.quality import (
    METHODS,
    Space,
    compare,
    found_after,
    spaces_from,
    spaces_json,
)


def _space(*, trust: float = 1.0) -> Space:
    """240 schedules with one valley; the model knows a part of the truth."""
    seconds, predicted = {}, {}
    grid = product(
        (32, 64, 128, 256, 512, 1024), (1, 2, 4, 8), (1, 2, 4, 8, 16), (0, 1)
    )
    for threads, vector, items, keep in grid:
        schedule = Schedule.of(threads=threads, vector=vector, items=items, keep=keep)
        away = (
            abs(math.log2(threads / 128))
            + abs(math.log2(vector / 4))
            + 0.5 * abs(math.log2(items / 2))
            + keep
        )
        seconds[schedule] = 1e-3 * (1 + 0.4 * away)
        predicted[schedule] = 1e-3 * (1 + 0.4 * away) ** trust
    return Space(name="valley", kernel="k", seconds=seconds, predicted=predicted)


def test_a_space_survives_its_json() -> None:
    """Times, failures and predictions come back, the default first."""
    space = _space()
    space.seconds[space.default] = math.inf  # type: ignore[index]
    space = replace(space, texts={space.default: "a program"})
    stored = json.loads(json.dumps(spaces_json([space], {"name": "here"})))
    assert spaces_from(stored) == (space,)
    assert spaces_from(stored)[0].default == space.default
    with pytest.raises(InvalidModel, match="schedule-spaces"):
        spaces_from({"schema": "other"})


def test_a_space_worth_searching_is_large_and_varied() -> None:
    """At least 200 schedules, the best 1.5 times faster than the median."""
    space = _space()
    assert space.is_worthy
    flat = dict.fromkeys(space.seconds, 1.0)
    same = Space(name="", kernel="", seconds=flat, predicted=flat)
    assert not same.is_worthy


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_stays_in_the_space(name: str) -> None:
    """So many schedules of the space, equal for equal seeds."""
    space = _space()
    first = list(METHODS[name](space, 30, 3))
    assert len(first) == 30
    assert set(first) <= set(space.seconds)
    assert list(METHODS[name](space, 30, 3)) == first


def test_ours_finds_the_best_where_the_model_is_right_in_part() -> None:
    """Within 5 % after ten trials, also with a model that knows the half."""
    for trust in (1.0, 0.5):
        space = _space(trust=trust)
        found = found_after(space, space, METHODS["ours"], trials=(10,), seed=0)
        assert found[10].excess <= 0.05


def test_what_others_teach_is_tried_first() -> None:
    """A schedule that is fast on other kernels is the second trial, after the default.

    Whoever knows a recording whole needs one.
    """
    space = _space(trust=0.0)
    *_, taught = space.seconds
    learned = {**dict.fromkeys(space.seconds, 1.0), taught: 0.5}
    found = replace(space, learned=learned)
    assert list(METHODS["ours"](found, 2, 0)) == [space.default, taught]
    best = found_after(space, space, METHODS["knowing"], trials=(1,), seed=0)
    assert best[1].excess == 0


def test_a_tuning_run_tries_what_it_would_try() -> None:
    """Ours keeps to the schedules of a run, its default too; all may be let in."""
    whole = _space()
    some = list(whole.seconds)[::8]
    space = replace(
        whole,
        seconds={s: whole.seconds[s] for s in some},
        predicted={s: whole.predicted[s] for s in some},
    )
    tried = frozenset(some[::2])
    found = replace(space, tried=tried - {space.default})
    assert set(METHODS["ours"](found, 100, 0)) == tried
    assert set(METHODS["of all"](found, 100, 0)) == set(some)
    assert list(METHODS["ours"](space, 9, 0)) == list(METHODS["of all"](found, 9, 0))


def test_ours_does_not_need_the_model() -> None:
    """With a model that says nothing, it is still better than chance."""
    space = _space(trust=0.0)
    rows = compare([space], [space], seeds=3)
    at_20 = {row["method"]: row["share"] for row in rows if row["trials"] == 20}
    assert at_20["ours"] >= at_20["random"]


def test_the_second_recording_judges() -> None:
    """A schedule that was lucky once is judged by its other time."""
    space = _space()
    seconds = dict(space.seconds)
    lucky = max(seconds, key=lambda s: seconds[s])
    seen = Space(
        name="valley",
        kernel="k",
        seconds={**seconds, lucky: 1e-6},
        predicted=space.predicted,
    )
    found = found_after(seen, space, lambda *_: iter([lucky]), trials=(1,), seed=0)
    assert found[1].share < 0
