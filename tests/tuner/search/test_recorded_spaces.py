"""The recording of whole schedule spaces: what it holds, and how it is gone on with."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.search_quality.__main__ import main
from benchmarks.search_quality.kernels import (
    KERNELS,
    fine_space,
    kernel_of,
    model_of,
    text_of,
)
from benchmarks.search_quality.recorded import recorded_kernel, repriced
from benchmarks.search_quality.recording import RUNS, Recording, rivals_of, waiting
from benchmarks.search_quality.replaying import taught
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Options, Schedule
from tuner.search import experience
from tuner.search.quality import LEAST_SIZE, NEAR, Space, spaces_from

SPACE = {Schedule.of(threads=16 * n): n * 1e-5 for n in range(1, 6)}
FACTS = {"device": "a processor"}
DATA = Path(__file__).parents[3] / "benchmarks" / "data"


def _recording(path: Path) -> Recording:
    found = Recording(out=path, facts=FACTS)
    found.resume()
    found.begin("softmax", "reduction:abc", SPACE, {})
    return found


def test_a_recording_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """What was measured stays, failures too; the order is that of the schedules."""
    path = tmp_path / "spaces.json"
    first, second, third, *_ = SPACE
    begun = _recording(path)
    begun.rows["softmax"] = {third: [3e-5], first: [math.inf]}
    begun.write()
    again = _recording(path)
    assert again.rows["softmax"] == {third: [3e-5], first: [math.inf]}
    again.rows["softmax"][second] = [2e-5, 4e-5, 2.5e-5]
    again.write()
    stored = json.loads(path.read_text())
    (space,) = spaces_from(stored)
    assert list(space.seconds) == [first, second, third]
    assert space.predicted[second] == SPACE[second]
    assert space.seconds[second] == 2.5e-5
    assert _recording(path).rows["softmax"][second] == [2e-5, 4e-5, 2.5e-5]
    assert stored["sizes"] == {"softmax": len(SPACE)}


def test_a_kernel_that_changed_is_recorded_again(tmp_path: Path) -> None:
    """Results of another kernel of this name, or of a schedule that went, are gone."""
    path = tmp_path / "spaces.json"
    begun = _recording(path)
    begun.rows["softmax"] = {schedule: [seconds] for schedule, seconds in SPACE.items()}
    begun.write()
    again = Recording(out=path, facts=FACTS)
    again.resume()
    fewer = dict(list(SPACE.items())[1:])
    again.begin("softmax", "reduction:abc", fewer, {})
    assert set(again.rows["softmax"]) == set(fewer)
    again.begin("softmax", "reduction:other", fewer, {})
    assert not again.rows["softmax"]


def test_the_fastest_run_again_before_a_space_is_complete(tmp_path: Path) -> None:
    """A schedule that was fast by luck alone is found out by its further runs."""
    recording = _recording(tmp_path / "spaces.json")
    lucky, *others = SPACE
    rows = recording.rows["softmax"] = {}
    for schedule in waiting(recording, "softmax", SPACE):
        rows[schedule] = [1e-6] if schedule == lucky else [SPACE[schedule]]
    assert not recording.is_complete("softmax")
    again = list(_waiting_once(recording))
    assert again == [*SPACE] * (RUNS - 1)
    assert recording.is_complete("softmax")
    seconds = recording.space("softmax").seconds
    assert min(seconds, key=lambda schedule: seconds[schedule]) == others[0]


def test_a_disturbed_schedule_keeps_nobody_from_running_again(tmp_path: Path) -> None:
    """The fastest run as often as they should, though one schedule never ran."""
    recording = _recording(tmp_path / "spaces.json")
    many = {Schedule.of(threads=16 * n): n * 1e-5 for n in range(1, 101)}
    recording.begin("softmax", "reduction:abc", many, {})
    rows = recording.rows["softmax"]
    *others, drowned = many
    for schedule in waiting(recording, "softmax", many):
        if schedule != drowned:
            rows.setdefault(schedule, []).append(many[schedule])
    assert set(rows) == set(others)
    assert all(len(rows[s]) == RUNS for s in recording.leaders("softmax"))
    assert not recording.is_complete("softmax")
    few = _recording(tmp_path / "few.json")
    *_, last = SPACE
    few.rows["softmax"] = {s: [v] for s, v in SPACE.items() if s != last}
    assert list(waiting(few, "softmax", SPACE)) == [last]


def _waiting_once(recording: Recording) -> Iterator[Schedule]:
    """Run what waits: everything takes 90 us, but what follows the lucky one 20."""
    for schedule in waiting(recording, "softmax", SPACE):
        quick = schedule == list(SPACE)[1]
        recording.rows["softmax"][schedule].append(2e-5 if quick else 9e-5)
        yield schedule


def test_another_devices_recording_is_not_gone_on_with(tmp_path: Path) -> None:
    """Times of two devices never meet in a file."""
    path = tmp_path / "spaces.json"
    begun = _recording(path)
    begun.rows["softmax"] = {schedule: [seconds] for schedule, seconds in SPACE.items()}
    begun.write()
    with pytest.raises(SystemExit, match="another device"):
        Recording(out=path, facts={"device": "another"}).resume()


def test_times_of_other_code_are_not_gone_on_with(tmp_path: Path) -> None:
    """Times of two generated texts never meet; the catalogue's numbers may change."""
    path = tmp_path / "spaces.json"
    facts = {**FACTS, "target": {"id": "cpu", "digest": "1"}}
    begun = Recording(out=path, facts=facts)
    texts = {schedule: f"text {n}" for n, schedule in enumerate(SPACE)}
    begun.begin("softmax", "reduction:abc", SPACE, texts)
    begun.rows["softmax"] = {schedule: [seconds] for schedule, seconds in SPACE.items()}
    begun.write()
    recalibrated = {**FACTS, "target": {"id": "cpu", "digest": "2"}}
    again = Recording(out=path, facts=recalibrated)
    again.resume()
    again.begin("softmax", "reduction:abc", SPACE, texts)
    assert len(again.rows["softmax"]) == len(SPACE)
    *_, last = SPACE
    again.begin("softmax", "reduction:abc", SPACE, {**texts, last: "another text"})
    assert not again.rows["softmax"]


def test_what_another_recording_found_fast_is_run_as_often(tmp_path: Path) -> None:
    """A schedule whose only run was slow by bad luck is found out too."""
    first = _recording(tmp_path / "first.json")
    *_, unlucky = SPACE
    first.rows["softmax"] = {s: [seconds] for s, seconds in SPACE.items()}
    first.rows["softmax"][unlucky] = [1e-6]
    first.write()
    path = tmp_path / "second.json"
    second = Recording(out=path, facts=FACTS, rivals=rivals_of(first.out))
    assert second.known_kernel("softmax") == "reduction:abc"
    assert second.known_kernel("another") == ""
    more = {Schedule.of(threads=16 * n, vector=2): 1e-5 for n in range(1, 60)}
    second.begin("softmax", "reduction:abc", {**more, **SPACE}, {})
    rows = {s: [seconds] for s, seconds in {**more, **SPACE}.items()}
    second.rows["softmax"] = {**rows, unlucky: [9e-5]}
    assert not second.is_complete("softmax")
    for schedule in waiting(second, "softmax", {**more, **SPACE}):
        second.rows["softmax"][schedule].append(1e-6)
    assert second.is_complete("softmax")
    assert second.space("softmax").seconds[unlucky] == 1e-6


def _lessons(*names: str) -> list[Space]:
    spaces = []
    for n, name in enumerate(names):
        seconds = {
            Schedule.of(threads=t, unroll=u): t * (1 + u) ** (n + 1) * 1e-6
            for t in (16, 32, 64)
            for u in (1, 2, 4)
        }
        same = dict.fromkeys(seconds, 1.0)
        spaces.append(Space(name=name, kernel="k", seconds=seconds, predicted=same))
    return spaces


def test_a_space_is_never_taught_by_itself() -> None:
    """What is learned of a space does not depend on its own times."""
    spaces = _lessons("one", "two", "three")
    nests = dict.fromkeys(("one", "two", "three"))
    first, second, _ = taught(spaces, nests)
    other = {s: 1.0 / seconds for s, seconds in spaces[0].seconds.items()}
    again, changed, _ = taught([replace(spaces[0], seconds=other), *spaces[1:]], nests)
    assert again.learned == first.learned
    assert changed.learned != second.learned
    assert first.expected != spaces[0].expected


def test_learning_writes_what_a_tuning_run_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recorded kernels make a file; what was known of other devices stays."""
    name, device = "softmax-4096x128", resolve_target("cpu")
    planner = Planner(model=model_of(name), device=device, options=Options())
    state = kernel_of(planner)
    schedules = fine_space(state, device)[:12]
    facts = {**FACTS, "target": {"id": "cpu"}}
    recording = Recording(out=tmp_path / "spaces.json", facts=facts)
    recording.begin(name, state.name, dict.fromkeys(schedules, 1e-3), {})
    recording.rows[name] = {s: [1e-3 * n] for n, s in enumerate(schedules, 1)}
    recording.write()
    out = tmp_path / "experience.json"
    out.write_text(experience.write({"gpu": experience.Experience()}))
    assert main(["learn", str(recording.out), "--out", str(out)]) == 0
    assert "cpu learned from 1" in capsys.readouterr().out
    known = experience.read(out.read_text())
    assert set(known) == {"cpu", "gpu"}
    factors = known["cpu"].factors("row", schedules)
    assert len(set(factors.values())) > 1


@pytest.mark.parametrize("name", ["softmax-256x2048", "matmul-256x256x256"])
def test_spaces_are_large_and_begin_with_the_default(name: str) -> None:
    """At least 200 legal schedules, none twice; a tuning run's own are among them."""
    device = resolve_target("cpu")
    planner = Planner(model=model_of(name), device=device, options=Options())
    state = kernel_of(planner)
    found = fine_space(state, device)
    assert found[0] == state.default
    assert len(set(found)) == len(found) >= LEAST_SIZE
    assert set(state.study.space) <= set(found)


@pytest.mark.parametrize(
    ("knob", "without"),
    [("depth", "unroll"), ("unroll", "persistent")],
    ids=["products", "columns"],
)
def test_what_is_tried_holds_the_best(knob: str, without: str) -> None:
    """A tuning run's own schedules are few, and one of them is near the best of all."""
    stored = json.loads((DATA / "spaces-cpu-2.json").read_text())
    device = resolve_target("cpu")
    checked = 0
    for found in spaces_from(stored):
        knobs = found.default.as_dict
        is_meant = knob in knobs and without not in knobs
        kernel = recorded_kernel(found, device) if is_meant else None
        if kernel is not None:
            tried = [s for s in kernel.study.space if s in found.seconds]
            best = min(found.seconds[schedule] for schedule in tried)
            assert best <= (1 + NEAR) * found.best_seconds, found.name
            assert 2 * len(tried) < len(found.seconds)
            checked += 1
    if not checked:
        pytest.skip("all of them were recorded with other code")


def test_there_are_kernels_enough() -> None:
    """A few may turn out to be too even; twelve must be left."""
    assert len(KERNELS) >= 16


def test_a_short_recording_is_left_out_of_a_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not complete proves nothing, unless it is asked for."""
    path = tmp_path / "spaces.json"
    begun = _recording(path)
    begun.rows["softmax"] = {s: [seconds] for s, seconds in list(SPACE.items())[:3]}
    begun.write()
    assert main(["replay", str(path)]) == 0
    assert "1 spaces are not complete" in capsys.readouterr().out
    assert main(["replay", str(path), "--all", "--seeds", "1"]) == 0
    said = capsys.readouterr().out
    assert all(method in said for method in ("random", "tpe", "ours"))
    few = ["--method", "ours", "--method", "knowing"]
    assert main(["replay", str(path), "--all", "--seeds", "1", *few]) == 0
    said = capsys.readouterr().out
    assert "best tried 0.0%" in said
    assert "random" not in said


def test_a_recording_can_be_searched_under_other_prices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured times stay; the default and the prices are those of this version."""
    name, device = "softmax-4096x128", resolve_target("cpu")
    planner = Planner(model=model_of(name), device=device, options=Options())
    state = kernel_of(planner)
    schedules = fine_space(state, device)[:8]
    recording = Recording(
        out=tmp_path / "spaces.json", facts={**FACTS, "target": {"id": "cpu"}}
    )
    backwards = {s: 1e-3 * n for n, s in enumerate(reversed(schedules), 1)}
    texts = {s: text_of(state, s, device) for s in schedules}
    recording.begin(name, state.name, backwards, texts)
    recording.rows[name] = {s: [seconds] for s, seconds in backwards.items()}
    recording.write()
    (stored,) = spaces_from(json.loads(recording.out.read_text()))
    found = repriced(stored, device, recorded_kernel(stored, device))
    assert stored.default == schedules[-1]
    assert found.default == schedules[0]
    assert found.seconds == stored.seconds
    assert set(found.predicted.values()).isdisjoint(stored.predicted.values())
    assert found.tried == set(state.study.space)
    command = ["replay", str(recording.out), "--repriced", "--all", "--seeds", "1"]
    assert main(command) == 0
    assert "of other code" not in capsys.readouterr().out


def test_a_recording_of_other_code_keeps_its_prices(tmp_path: Path) -> None:
    """No price of this version is put beside a time of another's program."""
    name, device = "softmax-4096x128", resolve_target("cpu")
    planner = Planner(model=model_of(name), device=device, options=Options())
    state = kernel_of(planner)
    schedules = fine_space(state, device)[:3]
    texts = {schedules[1]: text_of(state, schedules[1], device)}
    seconds = dict.fromkeys(schedules, 1e-3)
    same = Space(
        name=name, kernel=state.name, seconds=seconds, predicted=seconds, texts=texts
    )
    assert recorded_kernel(same, device) is not None
    for other in (
        replace(same, texts={**texts, schedules[2]: "another program"}),
        replace(same, kernel="reduction:other"),
        replace(same, name="no such kernel"),
    ):
        assert recorded_kernel(other, device) is None
        assert repriced(other, device, None) == other
