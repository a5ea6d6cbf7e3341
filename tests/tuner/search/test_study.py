"""The search for one kernel's schedule."""

from __future__ import annotations

import pytest

from tuner.plan import Schedule
from tuner.search.study import KernelStudy, Sampler, sampler_for

SPACE = tuple(
    Schedule.of(threads=t, vector=v, rows=r)
    for t in (16, 32, 64, 128)
    for v in (1, 2, 4, 8)
    for r in (1, 2, 4)
    if t * v <= 256
)


def seconds(schedule: Schedule) -> float:
    """A smooth landscape with one best point."""
    return (
        1.0
        + abs(schedule["threads"] - 64) / 64
        + abs(schedule["vector"] - 4)
        + schedule["rows"]
    )


def run(study: KernelStudy, trials: int) -> list[Schedule]:
    """Propose and tell so many times."""
    found = []
    for _ in range(trials):
        schedule = study.propose()
        if schedule is None:
            break
        study.tell(schedule, seconds(schedule))
        found.append(schedule)
    return found


def test_no_schedule_is_run_twice_and_all_are_in_the_space() -> None:
    """A whole search visits every legal schedule exactly once."""
    found = run(KernelStudy(SPACE, seed=1), len(SPACE) + 5)
    assert sorted(found, key=str) == sorted(SPACE, key=str)


def test_the_models_best_come_first() -> None:
    """As many as asked for, and one more, follow the given ranking."""
    assert run(KernelStudy(SPACE, seed=1, first=3), 4) == list(SPACE[:4])


@pytest.mark.parametrize("sampler", ["ranked", "guided", "tpe"])
def test_every_sampler_visits_each_schedule_once(sampler: Sampler) -> None:
    """Whatever searches, nothing is repeated and nothing is left out."""
    study = KernelStudy(SPACE, seed=1, sampler=sampler)
    assert sorted(run(study, len(SPACE) + 5), key=str) == sorted(SPACE, key=str)


def test_the_size_of_the_space_chooses_the_sampler() -> None:
    """Small spaces are run through, middling ones scored whole, large ones sampled."""
    chosen = [sampler_for(size) for size in (1, 12, 13, 4096, 5000)]
    assert chosen == ["ranked", "ranked", "guided", "guided", "tpe"]


def test_a_right_model_needs_two_runs() -> None:
    """When the model ranks well, its second trial is the best there is."""
    ranked = sorted(SPACE, key=seconds)
    ranked = [SPACE[-1], *(s for s in ranked if s != SPACE[-1])]
    expected = {s: seconds(s) for s in SPACE}
    study = KernelStudy(ranked, seed=0, expected=expected)
    best = min(map(seconds, run(study, 2)))
    assert best == min(map(seconds, SPACE))


def test_a_wrong_model_is_unlearned() -> None:
    """When the model ranks upside down, a dozen runs come within 20 % all the same."""
    expected = {s: 1 / seconds(s) for s in SPACE}
    ranked = sorted(SPACE, key=lambda s: expected[s])
    study = KernelStudy(ranked, seed=0, expected=expected)
    best = min(map(seconds, run(study, 12)))
    assert best <= 1.2 * min(map(seconds, SPACE))


def test_a_schedule_outside_the_space_does_no_harm() -> None:
    """A result of a schedule that is not legal any more is taken note of only."""
    study = KernelStudy(SPACE, seed=1)
    study.tell(Schedule.of(threads=7), 1e-9)
    assert sorted(run(study, len(SPACE)), key=str) == sorted(SPACE, key=str)


def test_equal_seeds_and_answers_give_equal_proposals() -> None:
    """A replayed study proposes the same schedules."""
    assert run(KernelStudy(SPACE, seed=3), 20) == run(KernelStudy(SPACE, seed=3), 20)


def test_a_schedule_told_from_outside_is_not_proposed() -> None:
    """What an earlier run measured is not run again."""
    study = KernelStudy(SPACE, seed=1)
    study.tell(SPACE[0], 1.0)
    assert SPACE[0] not in run(study, len(SPACE))


def test_a_factor_on_all_expectations_changes_nothing() -> None:
    """Only how schedules compare is expected, not how fast the kernel is."""
    ranked = sorted(SPACE, key=lambda s: s["threads"])
    told = {s: float(s["threads"]) for s in SPACE}
    thousandth = {s: told[s] * 1e-3 for s in SPACE}
    found = [
        run(KernelStudy(ranked, seed=0, expected=e), 15) for e in (told, thousandth)
    ]
    assert found[0] == found[1]


def test_how_slow_a_bad_schedule_is_does_not_matter() -> None:
    """One that takes a hundred times as long bends the surface no more than ten."""

    def proposed(slow: float) -> Schedule | None:
        study = KernelStudy(SPACE, seed=0)
        for schedule in SPACE[:3]:
            study.tell(schedule, seconds(schedule))
        study.tell(SPACE[-1], slow)
        return study.propose()

    assert proposed(1e2) == proposed(1e3)


def test_failures_do_not_end_the_search() -> None:
    """A kernel whose first schedules fail is still searched."""
    study = KernelStudy(SPACE, seed=1)
    for _ in range(10):
        schedule = study.propose()
        assert schedule is not None
        study.tell(schedule, None)
    assert study.propose() is not None


def test_an_empty_space_is_refused() -> None:
    """A study without schedules is a mistake of the caller."""
    with pytest.raises(ValueError, match="at least one"):
        KernelStudy((), seed=0)
