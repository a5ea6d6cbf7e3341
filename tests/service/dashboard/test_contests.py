"""Whole plans side by side on a run's page, and operators on that of a comparison."""

from __future__ import annotations

import re

import pytest
from fastapi.testclient import TestClient

from service.dashboard.contests import plan_label, plan_lines, row_label, whole_note
from service.dashboard.differences import Saved, against_no_fusion
from service.dashboard.kernels import kernel_rows
from tests.service.dashboard import samples

KEY, JOB, RUNNING = "1" * 64, "000000000001", "000000000003"
BODY = samples.plan_body()


def test_labels_speak() -> None:
    """What a plan is, not what the tuner calls it; equal plans share a line."""
    assert plan_label("plan") == "best by its kernels"
    assert plan_label("plan-4") == "partition 4"
    assert plan_label("unfused") == "without fusion"
    assert row_label({"labels": ["plan", "untuned"]}) == (
        "best by its kernels = before tuning"
    )


def test_a_run_that_says_little_says_why() -> None:
    """Not run, failed, disturbed: each is told; a sound run needs no word."""
    sound = {"seconds": 1.0, "failure": "", "contended": False}
    assert whole_note(None) == "not run"
    assert whole_note({**sound, "failure": "timeout"}) == "timeout"
    assert whole_note({**sound, "contended": True}) == "disturbed"
    assert not whole_note(sound)


def test_lines_compare_with_the_plan_that_was_kept() -> None:
    """A failed run has no time, no interval and nothing to compare."""
    rows = samples.contest_rows(BODY)
    lines = plan_lines(rows, samples.user_names(BODY))
    kept = next(line for line in lines if line.is_kept)
    assert kept.against == 1
    assert lines[1].against == lines[1].seconds / kept.seconds  # type: ignore[operator]
    failed = next(line for line in lines if line.note == "crash")
    assert (failed.seconds, failed.low_seconds, failed.against) == (None, None, None)
    assert lines[1].foreign[0].nodes.startswith("/encoder/layer.0/")
    assert len(lines[1].foreign) + lines[1].more == rows[1]["differing"]


def test_a_contest_without_a_winner_compares_nothing() -> None:
    """Where every run failed, no quotient is made up."""
    rows = [{**row, "kept": False} for row in samples.contest_rows(BODY)]
    assert all(line.against is None for line in plan_lines(rows, {}))


def test_the_run_page_shows_every_plan(used: TestClient) -> None:
    """Also in the part that is renewed while the job runs; nothing before it ran."""
    for path in (f"/jobs/{JOB}", f"/jobs/{JOB}/tables"):
        found = re.search('id="contest".*?</section>', used.get(path).text, re.DOTALL)
        assert found is not None
        table = found.group()
        assert table.count("<tr") == 6
        assert table.count(">kept<") == 1
        assert "before tuning = stored before" in table
        assert "and 3 others" in table
    assert 'id="contest"' not in used.get(f"/jobs/{RUNNING}").text


def test_what_operators_take_adds_up_over_a_kernel() -> None:
    """Where one of them is unknown there is no sum."""
    rows = kernel_rows(BODY, {})
    times = {node["id"]: 2e-6 for node in BODY["graph"]["nodes"]}
    softmax = _saved_by("k3", against_no_fusion(BODY, rows, times))
    assert softmax.apart_seconds == pytest.approx(1e-5)
    times.pop(BODY["kernels"][3]["nodes"][2])
    assert _saved_by("k3", against_no_fusion(BODY, rows, times)).apart_seconds is None


def _saved_by(name: str, saved: tuple[Saved, ...]) -> Saved:
    return next(one for one in saved if one.row.name == name)


def test_a_comparison_with_no_fusion_has_both_sides(used: TestClient) -> None:
    """Times of operators come from the run of this key, and from no other one."""
    told = used.get(f"/plans/{KEY}/diff").text
    assert "One by one" in told
    assert "of them measured, the rest predicted" in told
    sides = used.get(f"/plans/{KEY}/sides").json()["sides"]
    assert all(box["time"] for side in sides for box in side["boxes"])
    untold = used.get(f"/plans/{RUNNING[-1] * 64}/diff?job={JOB}").text
    assert "One by one" not in untold
    assert "is told by a tuning run" in untold
