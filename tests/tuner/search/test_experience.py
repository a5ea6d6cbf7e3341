"""What kernels teach about the schedules of others."""

from __future__ import annotations

import json
import math
from importlib.resources import files
from itertools import product

import pytest

from tuner.errors import InvalidModel
from tuner.plan import PRICE_REVISION, Schedule
from tuner.search import experience
from tuner.search.experience import Experience, Lesson, shipped

SPACE = tuple(
    Schedule.of(threads=threads, unroll=unroll, vector=vector)
    for threads, unroll, vector in product((16, 64, 256), (1, 2, 4, 8), (1, 2, 4))
)


def _lesson(*, regime: str = "row", size: float = 1.0, unrolled: float = 1.0) -> Lesson:
    """A kernel whose unrolled loops take other times than predicted."""
    predicted = {s: size * (1 + 16 / s["threads"]) for s in SPACE}
    seconds = {s: predicted[s] * s["unroll"] ** -unrolled for s in SPACE}
    return Lesson(regime=regime, seconds=seconds, predicted=predicted)


def test_what_the_model_cannot_know_is_learned_from_other_kernels() -> None:
    """Kernels of any size teach the same; the next is ranked as it will be measured."""
    known = Experience.learned([_lesson(size=1e-3), _lesson(size=5.0)])
    factors = known.factors("row", SPACE)
    unseen = _lesson(size=77.0)
    expected = {s: unseen.predicted[s] * factors[s] for s in SPACE}
    best = min(SPACE, key=lambda s: expected[s])
    assert unseen.seconds[best] == min(unseen.seconds.values())
    assert 2 < factors[SPACE[0]] / factors[best] < 8


def test_a_right_model_is_not_corrected() -> None:
    """Where the prediction was right, every schedule keeps its place."""
    known = Experience.learned([_lesson(unrolled=0.0)] * 3)
    factors = known.factors("row", SPACE)
    assert all(value == pytest.approx(1.0, abs=1e-3) for value in factors.values())


def test_a_regime_has_its_own_lesson() -> None:
    """What holds for one regime is not said of another with the same knobs."""
    lessons = [_lesson(regime="tile")] * 3 + [_lesson(regime="window", unrolled=-1.0)]
    known = Experience.learned(lessons)
    one, eight = (Schedule.of(threads=16, unroll=u, vector=1) for u in (1, 8))
    tile, window = (
        known.factors(regime, (one, eight)) for regime in ("tile", "window")
    )
    assert tile[eight] < tile[one]
    assert window[eight] > window[one]


def test_other_knobs_teach_nothing() -> None:
    """Kernels of a kind that nobody measured stay as they are predicted."""
    known = Experience.learned([_lesson()])
    others = (Schedule.of(threads=16, items=1), Schedule.of(threads=32, items=2))
    assert known.factors("row", others) == dict.fromkeys(others, 1.0)
    assert Experience().factors("row", SPACE) == dict.fromkeys(SPACE, 1.0)
    assert known.factors("row", ()) == {}


def test_a_knob_that_some_kernels_lack_is_one_kind() -> None:
    """Kernels with and without streamed results teach each other."""
    known = Experience.learned([_lesson()])
    streamed = tuple(Schedule.of(**s.as_dict, stream=1) for s in SPACE)
    factors = known.factors("row", streamed)
    plain = known.factors("row", SPACE)
    assert list(factors.values()) == pytest.approx(list(plain.values()))


def test_failures_and_extremes_do_no_harm() -> None:
    """Failed schedules are left out; beyond what was measured nothing is made up."""
    lesson = _lesson()
    failed = {**lesson.seconds, SPACE[3]: math.inf}
    none = dict.fromkeys(SPACE, math.inf)
    lessons = [
        Lesson(regime="row", seconds=failed, predicted=lesson.predicted),
        Lesson(regime="row", seconds=none, predicted=lesson.predicted),
    ]
    known = Experience.learned(lessons)
    largest, larger = (
        Schedule.of(threads=256, unroll=unroll, vector=4) for unroll in (8, 1024)
    )
    factors = known.factors("row", (largest, larger))
    assert factors[larger] == pytest.approx(factors[largest])
    assert math.isfinite(factors[largest])


def test_what_was_learned_survives_its_file() -> None:
    """Text and back; a file of something else is refused with its schema."""
    known = {"cpu": Experience.learned([_lesson()]), "gpu": Experience()}
    assert experience.read(experience.write(known)) == known
    with pytest.raises(InvalidModel, match="experience/1"):
        experience.read('{"schema": "other"}')


def test_what_is_shipped_corrects_the_prices_of_this_version() -> None:
    """A change of prices asks for `python -m benchmarks.search_quality learn`."""
    text = files("tuner.search").joinpath(experience.FILE).read_text()
    assert json.loads(text)["prices"] == PRICE_REVISION


def test_what_is_shipped_can_be_read() -> None:
    """Processors have lessons of products and rows; other devices are not touched."""
    known = shipped("cpu")
    tile = Schedule.of(threads=256, lanes=16, rows=4, columns=4, depth=32)
    thin = Schedule.of(threads=64, lanes=32, rows=8, columns=1, depth=8)
    factors = known.factors("tile", (tile, thin))
    assert all(0.01 < value < 100 for value in factors.values())
    assert factors[tile] != factors[thin]
    assert shipped("fpga") == Experience()
