"""Tests of reading models in processes that they may kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from onnx import helper
from structlog.testing import capture_logs

from service.errors import ModelNotReadable
from service.jobs import reader
from service.jobs.planning import Planner, Question
from service.jobs.reader import ReaderLimits, ReaderPool
from tests.service.api.models import graph_onnx
from tests.waiting import when
from tuner.errors import InvalidModel, InvalidOption, UnknownTarget
from tuner.ir.custom import CustomOperator, FusionRule, RuleSet


def pool_of(**given: float) -> ReaderPool:
    """A pool of one process."""
    told = {"memory_bytes": 4 * 2**30, "read_seconds": 60.0, "plan_seconds": 5.0}
    limits = ReaderLimits(**{**told, **given})  # type: ignore[arg-type]
    return ReaderPool(processes=1, limits=limits)


@pytest.fixture(scope="module")
def pool() -> Iterator[ReaderPool]:
    """One process for all tests of this module that leave it alive."""
    made = pool_of()
    yield made
    made.close()


def question(data: bytes = b"", target: str = "cpu", **options: object) -> Question:
    """A question about the small model."""
    return Question(
        data=data or graph_onnx(), form="onnx", target=target, options=options
    )


def test_a_child_says_what_this_process_would(pool: ReaderPool) -> None:
    """Key, names and the plan's bytes are the same."""
    here = Planner(plan_seconds=5.0)
    assert pool.outline(question()) == here.outline(question())
    assert pool.plan(question()) == here.plan(question())


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (question(b"\x08\x07garbage"), InvalidModel),
        (question(target="sm_12"), UnknownTarget),
        (question(surprise=1), InvalidOption),
    ],
)
def test_a_refusal_keeps_its_class(
    pool: ReaderPool, asked: Question, error: type[Exception]
) -> None:
    """Errors of the planner come across, and the process lives on."""
    with pytest.raises(error) as caught:
        pool.outline(asked)
    with pytest.raises(error) as expected:
        Planner(plan_seconds=5.0).outline(asked)
    assert str(caught.value) == str(expected.value)


def test_a_process_that_dies_is_replaced() -> None:
    """The one question fails, the next one is answered by a new process."""
    pool = pool_of()
    pool.outline(question())
    [child] = pool._pool.idle

    os.kill(child.process.pid, signal.SIGSTOP)
    # Not before it is asked: one that died earlier is replaced, and nothing fails.
    asked = child.uses + 1
    when(
        lambda: child.uses == asked, lambda: os.kill(child.process.pid, signal.SIGKILL)
    )
    with pytest.raises(ModelNotReadable, match="ended with code -9"):
        pool.outline(question())
    assert pool.outline(question()).nodes == 3
    pool.close()


def test_a_process_that_hangs_is_killed() -> None:
    """After the time that reading may take."""
    pool = pool_of(read_seconds=60.0)
    pool.outline(question())
    [child] = pool._pool.idle
    os.kill(child.process.pid, signal.SIGSTOP)
    hasty = ReaderLimits(memory_bytes=2**32, read_seconds=0.2, plan_seconds=1.0)
    pool._limits = hasty
    with pytest.raises(ModelNotReadable, match=r"longer than 0\.2 seconds"):
        pool.outline(question())
    assert child.process.returncode == -signal.SIGKILL
    pool.close()


def test_memory_is_limited() -> None:
    """A process that wants more than it is given ends, whatever wanted it."""
    pool = pool_of(memory_bytes=2**20)
    with pytest.raises(ModelNotReadable):
        pool.outline(question())
    pool.close()


def test_a_closed_pool_leaves_nothing_behind() -> None:
    """Every process is gone."""
    pool = pool_of()
    pool.warm()
    [child] = pool._pool.idle
    pool.close()
    assert child.process.returncode is not None


def test_rules_reach_the_process() -> None:
    """Operators of rules are known in the child; key and plan are those of this one."""
    gate = CustomOperator(
        domain="com.acme",
        name="Gate",
        inputs=("x",),
        attributes=(("low", -0.5),),
        expression="max(x, low)",
    )
    alone = FusionRule(name="r", action="alone", kinds=("com.acme::Gate",))
    rules = RuleSet(operators=(gate,), fusion=(alone,))
    value = helper.make_tensor_value_info("x", 1, [64, 64])
    result = helper.make_tensor_value_info("y", 1, [64, 64])
    nodes = [
        helper.make_node("Gate", ["x"], ["g"], domain="com.acme"),
        helper.make_node("Exp", ["g"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [value], [result])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    asked = question(bytes(model.SerializeToString()))
    limits = ReaderLimits(memory_bytes=4 * 2**30, read_seconds=60.0, plan_seconds=5.0)
    pool = ReaderPool(processes=1, limits=limits, rules=rules)
    try:
        here = Planner(plan_seconds=5.0, rules=rules)
        assert pool.outline(asked) == here.outline(asked)
        revision = pool.plan(asked)
        assert revision == here.plan(asked)
        assert revision.kernels == 2
    finally:
        pool.close()


def test_what_a_child_warns_of_is_logged(
    monkeypatch: pytest.MonkeyPatch, pool: ReaderPool
) -> None:
    """With its kind, a refuted bound every time; its stderr is nobody's log.

    Of others each place in the code is told once for a question, as Python does.
    """
    with capture_logs() as lines:
        pool.outline(question())
        assert lines == []
        monkeypatch.setattr(reader, "_MODULE", "tests.service.jobs.doubting")
        doubting = pool_of()
        for width in (64, 96):
            doubting.outline(question(graph_onnx(width=width)))
        doubting.close()
    each = ["UnsoundBound", "RuntimeWarning", "UnsoundBound"]
    assert [line["kind"] for line in lines] == 2 * each
    refuted = [line for line in lines if line["kind"] == "UnsoundBound"]
    assert all("bound of a test" in line["problem"] for line in refuted)


def test_a_child_whose_parent_is_gone_ends_silently() -> None:
    """Who was to hear that it is ready was killed meanwhile: it leaves no traceback."""
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    number = theirs.fileno()
    command = [sys.executable, "-m", reader._MODULE, str(number), str(4 * 2**30), "5"]
    ended = subprocess.run(
        [*command, json.dumps(RuleSet().as_json)],
        cwd=reader._ROOT,
        pass_fds=(number,),
        capture_output=True,
        timeout=300,
        check=False,
    )
    theirs.close()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
