"""Recorded times, and their replay without the device."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from tests.tuner.runtime.graphs import GOOD, exp_add, matmul_add, source
from tuner.errors import InvalidModel
from tuner.plan import MemoryPlan
from tuner.runtime.null import NullRunner
from tuner.runtime.recording import Entry, Recorder, Recording, request_key
from tuner.runtime.requests import MeasureRequest, PlanRequest, Program, Step

BAD = source("o[i] = 1;", entry="bad")
GOOD_REQUEST = MeasureRequest(graph=exp_add(), source=GOOD)
BAD_REQUEST = MeasureRequest(graph=exp_add(), source=BAD)
LIBRARY_REQUEST = MeasureRequest(graph=matmul_add())


def _recorded() -> Recording:
    def seconds(request: MeasureRequest) -> float:
        return 1e-3 if request.source else 5e-3

    def failures(request: MeasureRequest) -> tuple[str, str] | None:
        return ("timeout", "too long") if request.source is BAD else None

    recorder = Recorder(NullRunner(seconds, failures=failures, noise=0.05))
    recorder.measure(GOOD_REQUEST, {"threads": 64})
    recorder.measure(BAD_REQUEST)
    recorder.measure(LIBRARY_REQUEST)
    return recorder.recording


def test_a_recording_survives_its_json() -> None:
    """Written and read, it holds the same samples, failures and device."""
    recording = _recorded()
    again = Recording.from_json(json.loads(json.dumps(recording.to_json())))
    assert again == recording
    assert again.find(GOOD_REQUEST) is not None
    assert len(again.entries) == 3


def test_a_replay_answers_what_was_recorded() -> None:
    """Times are the recorded medians, failures keep their kind; the rest fails."""
    recording = _recorded()
    runner = recording.replay()
    entry = recording.find(GOOD_REQUEST)
    assert entry is not None
    assert runner.measure(GOOD_REQUEST).seconds == entry.seconds
    failed = runner.measure(BAD_REQUEST)
    assert (failed.failure, failed.message) == ("timeout", "too long")
    unknown = replace(GOOD_REQUEST, source=source("o[i] = 2;"))
    assert runner.measure(unknown).failure == "runtime"
    other = recording.replay(otherwise=lambda request: 7.0)
    assert other.measure(unknown).seconds == 7.0


def test_noise_is_seeded() -> None:
    """Equal seeds give equal samples, other seeds others."""
    recording = _recorded()
    first = recording.replay(noise=0.1, seed=1).measure(GOOD_REQUEST)
    again = recording.replay(noise=0.1, seed=1).measure(GOOD_REQUEST)
    other = recording.replay(noise=0.1, seed=2).measure(GOOD_REQUEST)
    assert first == again
    assert first.samples != other.samples


def test_a_recording_is_a_toolchain_of_its_own() -> None:
    """What was replayed can never be taken for a measurement of the device."""
    recording = _recorded()
    told = recording.replay().toolchain
    assert told not in (recording.toolchain, "null 1")
    assert recording.toolchain in told


def test_a_kernel_is_known_whatever_its_tensors_are_called() -> None:
    """A step of a plan finds the time of the kernel that was tuned."""
    graph = exp_add()
    names = {"x": "t1", "y": "t2", "o": "t9", "h": "t4"}
    renamed = replace(
        graph,
        nodes=tuple(
            replace(
                node,
                inputs=tuple(names[n] for n in node.inputs),
                outputs=tuple(names[n] for n in node.outputs),
            )
            for node in graph.nodes
        ),
        inputs=tuple(names[n] for n in graph.inputs),
        outputs=tuple(names[n] for n in graph.outputs),
        types={names[n]: kind for n, kind in graph.types.items()},
    )
    assert request_key(replace(GOOD_REQUEST, graph=renamed)) == request_key(
        GOOD_REQUEST
    )
    weighted = matmul_add()
    plain = replace(weighted, inputs=(*weighted.inputs, *weighted.weights), weights=())
    assert request_key(replace(LIBRARY_REQUEST, graph=plain)) == request_key(
        LIBRARY_REQUEST
    )
    relaxed = replace(GOOD_REQUEST, exactness="relaxed")
    assert request_key(relaxed) != request_key(GOOD_REQUEST)


def test_whole_programs_are_their_steps_and_a_factor() -> None:
    """The sum of recorded times, times a factor that is the program's own."""
    graph = exp_add()
    program = Program(
        steps=(Step(name="a", graph=graph, source=GOOD),) * 2,
        inputs=graph.inputs,
        outputs=graph.outputs,
        types=graph.types,
        memory=MemoryPlan(buffers=(), aliases={}, arena_bytes=0, peak_bytes=0),
    )
    request = PlanRequest(programs={"plan": program}, weights={}, feeds=({}, {}))
    recording = _recorded()
    entry = recording.find(GOOD_REQUEST)
    assert entry is not None
    runner = recording.replay()
    assert runner.measure_whole(request).measurements["plan"].seconds == pytest.approx(
        2 * entry.seconds
    )
    other = recording.replay(interference=0.1, noise=0.01, seed=3)
    found = other.measure_whole(request).measurements["plan"]
    assert found.seconds == pytest.approx(other.program_seconds(program), rel=0.05)
    assert other.program_seconds(program) != pytest.approx(2 * entry.seconds, rel=1e-3)


def test_a_failed_entry_has_no_time() -> None:
    """It is infinitely slow."""
    assert math.isinf(Entry(failure="compile").seconds)


def test_other_files_are_refused() -> None:
    """A file of another kind says what was expected."""
    with pytest.raises(InvalidModel, match=r"fuseplan\.recording/1"):
        Recording.from_json({"schema": "something"})
