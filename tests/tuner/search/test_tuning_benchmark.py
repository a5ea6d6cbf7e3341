"""The benchmark of what tuning costs: it goes on where it was ended."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import pytest
from onnx import parser

from benchmarks.tuning.__main__ import dimensions, main
from benchmarks.tuning.keeping import Log, OutOfTime
from benchmarks.tuning.running import Known, Tuned, tune
from benchmarks.tuning.telling import line, plot, saving, told_saving
from tests.tuner.search.conftest import made_up_seconds, no_clock, small_model
from tuner.model import Model, load
from tuner.plan import Measurement
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest
from tuner.search.budget import Budget

BUDGET = Budget(seconds=1e6, trials=6, trials_per_kernel=3)


class _Pieces(Log):
    """A log whose time is up after each batch that it has written."""

    def write(self) -> None:
        super().write()
        self.end = monotonic()


def _tune(
    model: Model, log: Log, device: NullRunner | None = None
) -> tuple[Tuned, Known]:
    """Times are made up, so that nothing depends on how busy this machine is."""

    def opened() -> AbstractContextManager[NullRunner]:
        return nullcontext(device or NullRunner(made_up_seconds))

    return tune("little", model, opened, BUDGET, {}, log, clock=no_clock)


def _piecewise(path: Path, model: Model) -> tuple[Tuned, int]:
    for pieces in range(1, 100):
        opened = Log.opened(path, 1.0)
        log = _Pieces(path=path, end=opened.end, runs=opened.runs)
        try:
            return _tune(model, log)[0], pieces
        except OutOfTime:
            continue
    raise AssertionError("it never ends")


def test_a_run_in_pieces_is_the_run_in_one(tmp_path: Path, model: Model) -> None:
    """One batch a call: nothing is measured twice, and the row is the same."""
    whole, found = _tune(model, Log())
    row, pieces = _piecewise(tmp_path / "log.json", model)
    assert found
    assert pieces > 3
    assert (row.trials, row.kernels_measured) == (whole.trials, whole.kernels_measured)
    assert row.candidates == whole.candidates > 0
    assert [moment.trials for moment in row.timeline] == [
        moment.trials for moment in whole.timeline
    ]
    assert row.wall_seconds > 0
    assert line(row).count("|") == line(whole).count("|")


def test_what_is_known_is_told_as_saved() -> None:
    """Runs that were not made again, what they took, and how much sooner all is proved.

    The second run knows everything: it proves the first one's gap at once.
    """
    model = load(small_model(layers=1))

    def opened() -> AbstractContextManager[NullRunner]:
        return nullcontext(NullRunner(made_up_seconds))

    ticks = count()
    budget = Budget(seconds=1e6, trials=120, trials_per_kernel=1)

    def clock() -> float:
        """Everything takes a second."""
        return float(next(ticks))

    alone, found = tune("small", model, opened, budget, {}, Log(), clock=clock)
    assert (alone.kernels_known, alone.runs_known, alone.spared_seconds) == (0, 0, 0.0)
    after, again = tune("small", model, opened, budget, found, Log(), clock=clock)
    assert not again
    assert after.runs_known == len(found) == alone.trials
    assert after.kernels_known == alone.kernels_measured
    saved = saving("small", alone, after)
    assert saved["spared_seconds"] == after.spared_seconds >= len(found)
    assert saved["seconds_sooner"] > len(found) // 2
    assert saved["trials"] == alone.trials
    assert f"{len(found)} runs of {after.kernels_known} kernels" in told_saving(saved)
    never = replace(after, timeline=())
    assert "was not reached" in told_saving(saving("small", alone, never))


def test_the_plot_has_a_line_for_every_run(tmp_path: Path, model: Model) -> None:
    """An image of the gap over the seconds, readable without us."""
    row, _ = _tune(model, Log(path=tmp_path / "log"))
    drawn = plot([row, row])
    assert drawn.startswith("<svg xmlns=")
    assert drawn.count("<polyline") == 2
    ended = sum(m.measured_gap is not None for m in row.timeline[-1:])
    assert drawn.count("<circle") == 2 * ended == 2
    assert "no gap" not in drawn
    early = plot([row, replace(row, timeline=row.timeline[:1])])
    assert early.count("<circle") == early.count("little, 1000000 s: no gap was") == 1


def test_a_killed_run_keeps_every_batch(tmp_path: Path, model: Model) -> None:
    """What was measured is on disk before the next batch begins."""
    path = tmp_path / "log.json"
    log = Log(path=path)
    with pytest.raises(OutOfTime):
        _tune(model, _Pieces(path=path))
    assert Log.opened(path, 1.0).runs != log.runs
    (kept,) = Log.opened(path, 1.0).runs.values()
    assert len(kept["batches"]) == 1


def test_wrong_models_get_a_sentence(tmp_path: Path) -> None:
    """A missing file, and one that is no model, end in words without a traceback."""
    with pytest.raises(SystemExit, match="no such file"):
        main([str(tmp_path / "none.onnx")])
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"{}")
    with pytest.raises(SystemExit, match="not an ONNX model"):
        main([str(broken)])


def test_a_size_is_given_to_the_models_that_leave_it_open() -> None:
    """One command may hold models with and without dimensions of that name."""
    text = """<ir_version: 10, opset_import: ["":21]>
    g (float[rows,8] X) => (float[rows,8] Y) { Y = Exp(X) }"""
    dynamic = parser.parse_model(text).SerializeToString()
    static = parser.parse_model(text.replace("rows", "4")).SerializeToString()
    assert dimensions(dynamic) == {"rows"}
    assert dimensions(static) == frozenset()


def test_a_model_may_be_named(tmp_path: Path) -> None:
    """A name stands for the file in the folder of models; what is missing is told."""
    path = tmp_path / "little.onnx"
    path.write_bytes(b"{}")
    folder = ["--models", str(tmp_path)]
    with pytest.raises(SystemExit, match="not an ONNX model"):
        main(["little", *folder])
    with pytest.raises(SystemExit, match=r"nor is there .*other\.onnx: give --models"):
        main(["other", *folder])


class _Hanging(NullRunner):
    """A device that takes for ever."""

    def measure(self, request: MeasureRequest) -> Measurement:
        """Answer too late."""
        sleep(60)
        return super().measure(request)


class _Brief(Log):
    """A log whose time is up soon after the first batch that it has written."""

    def write(self) -> None:
        super().write()
        self.end = min(self.end, monotonic() + 0.5)


def test_a_call_ends_in_time(tmp_path: Path, model: Model) -> None:
    """A batch that takes longer is given up; what was measured before it is kept."""
    path = tmp_path / "log.json"
    with pytest.raises(OutOfTime):
        _tune(model, _Brief(path=path), _Hanging(made_up_seconds))
    (kept,) = Log.opened(path, 1.0).runs.values()
    assert len(kept["batches"]) == 1


def test_budgets_are_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """Words and negative numbers get a sentence."""
    for wrong in ("soon", "60,-1", ""):
        with pytest.raises(SystemExit):
            main(["little", "--budgets", wrong])
        assert "is no list of seconds" in capsys.readouterr().err
