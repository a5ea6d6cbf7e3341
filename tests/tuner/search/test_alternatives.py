"""The next best partitions: found by leaving kernels out, and run whole."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from onnx import parser

from tests.tuner.fusion.enumerator import least_cost
from tests.tuner.search.conftest import (
    LARGE,
    body_of,
    made_up_seconds,
    run_to_end,
    session_of,
    through_json,
)
from tuner.fusion.legality import Refusal, check
from tuner.ir.graph import Region
from tuner.model import Model, load
from tuner.plan import Choice, Options, Pin
from tuner.runtime.null import NullRunner
from tuner.runtime.requests import MeasureRequest, PlanRequest, PlanResult
from tuner.runtime.timing import summarise
from tuner.search.alternatives import Alternatives
from tuner.search.budget import Budget
from tuner.search.costs import Price
from tuner.search.rounds import Round
from tuner.search.session import TuningSession
from tuner.search.stages import VARY_SHARE

Json = dict[str, Any]


@pytest.fixture(scope="module")
def little() -> Model:
    """Few enough operators to try every partition."""
    text = """<ir_version: 10, opset_import: ["":21]>
    g (float[64,96] X, float[64,96] Z) => (float[64,96] Y, float[64,1] S)
    <int64[1] axes = {1}>
    { a = Exp(X)  b = Mul(a, Z)  S = ReduceSum<keepdims=1>(b, axes)
      c = Div(b, S)  d = Tanh(c)  Y = Add(d, X) }"""
    return load(parser.parse_model(text).SerializeToString())


def _session(
    model: Model,
    partitions: int,
    budget: Budget = LARGE,
    seed: int = 7,
    options: Options = Options(),  # noqa: B008 - it is frozen
) -> TuningSession:
    tuning = TuningSession(
        model,
        "cpu",
        options,
        budget,
        seed=seed,
        partitions=partitions,
        clock=lambda: 0.0,
    )
    tuning._run.others = Alternatives(partitions - 1, most_factor=10.0)
    return tuning


def _is_other(batch: Json) -> bool:
    return bool(batch["items"][0].get("avoided"))


def _batches(tuning: TuningSession, runner: NullRunner) -> Iterator[Json]:
    """Batches, each before it is measured."""
    while (batch := tuning.propose()) is not None:
        yield batch
        tuning.observe(batch, through_json(tuning.measure(batch, runner)))


def _least_without(
    tuning: TuningSession, price: Price, without: Choice, *, larger: bool
) -> float:
    """Cost of the cheapest partition without a kernel, by trying everything.

    With `larger`, kernels of the same nodes that write still more are left out, too:
    the planner looks at those only that somebody reads from.
    """
    graph = tuning.model.graph
    banned = without.region

    def priced(region: Region) -> float:
        family = check(graph, region, profile="full")
        assert not isinstance(family, Refusal)
        more = larger and set(banned.outputs) <= set(region.outputs)
        if region.nodes == banned.nodes and (more or region.outputs == banned.outputs):
            return math.inf
        return price(region, family)

    return least_cost(graph, priced, "full")


def _seeded(seed: int) -> Callable[[MeasureRequest], float]:
    """Other times for every seed."""

    def seconds(request: MeasureRequest) -> float:
        text = request.source.text if request.source else repr(request.graph.nodes)
        digest = hashlib.sha256(f"{seed}/{text}".encode()).digest()
        return 1e-5 + digest[0] / 255 * 5e-5

    return seconds


@pytest.mark.parametrize("seed", range(3))
def test_the_second_best_is_what_trying_everything_finds(
    little: Model, seed: int
) -> None:
    """No partition without one of the best one's kernels is cheaper than the second."""
    tuning = _session(little, 2, seed=seed)
    others = tuning._run.others
    runner = NullRunner(_seeded(seed))
    for batch in _batches(tuning, runner):
        if _is_other(batch):
            break
    price, best = tuning._run.costs.price("measured"), tuning._run.best()
    low, high = (
        min(
            _least_without(tuning, price, choice, larger=larger)
            for choice in best.solution.partition.choices
        )
        for larger in (False, True)
    )
    for _ in _batches(tuning, runner):
        if others.is_over:
            break
    assert others.is_complete
    (found,) = others.found
    seconds = found.solution.partition.objective_seconds
    assert low * (1 - 1e-9) <= seconds <= high * (1 + 1e-9)


def test_a_kernel_that_a_pin_wants_is_in_every_partition(little: Model) -> None:
    """Without it there is no partition: that is no error, and no alternative."""
    nodes = [node.name for node in little.graph.nodes[:2]]
    pins = (Pin(fuse=True, nodes=(nodes[0], nodes[1])),)
    tuning = _session(little, 4, options=Options(pins=pins))
    run_to_end(tuning, NullRunner(made_up_seconds))
    assert tuning.winner
    for each in _known_rounds(tuning):
        choices = each.solution.partition.choices
        assert any(set(nodes) <= set(choice.region.nodes) for choice in choices)


def _known_rounds(tuning: TuningSession) -> list[Round]:
    others = tuning._run.others
    assert others.best is not None
    return [others.best, *others.found]


def test_partitions_are_distinct_and_none_is_cheaper_than_one_before(
    model: Model,
) -> None:
    """Each lacks a kernel of every other; the solver's costs never fall."""
    tuning = _session(model, 5)
    run_to_end(tuning, NullRunner(made_up_seconds))
    found = _known_rounds(tuning)
    assert len({each.regions for each in found}) == len(found) > 2
    names = [{state.name for state in each.states} for each in found]
    assert all(one != other for one in names for other in names if one is not other)
    costs = [each.solution.partition.objective_seconds for each in found[1:]]
    assert costs == sorted(costs)


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_no_more_partitions_are_run_whole_than_were_asked_for(
    model: Model, partitions: int
) -> None:
    """Beside the plans without tuning and without fusion; one asks for no solve."""
    tuning = _session(model, partitions)
    log = run_to_end(tuning, NullRunner(made_up_seconds))
    rows = tuning.partitions
    labels = [label for row in rows for label in row["labels"]]
    assert sum(label.startswith("plan") for label in labels) <= partitions
    assert len(labels) == len(set(labels))
    if partitions == 1:
        assert not any(_is_other(batch) for batch, _ in log)


def test_all_plans_stand_side_by_side(model: Model) -> None:
    """Each row has its price, its kernels' sum and its run; exactly one is kept."""
    tuning = _session(model, 3)
    log = run_to_end(tuning, NullRunner(made_up_seconds))
    rows = through_json(tuning.partitions)
    assert sum(row["kept"] for row in rows) == 1
    assert rows[0]["labels"][0] == "plan"
    assert rows[0]["differing"] == 0 == len(rows[0]["kernels_only_here"])
    ran = next(
        result["whole"]
        for batch, results in log
        for item, result in zip(batch["items"], results, strict=True)
        if item["kind"] == "whole"
    )
    for row in rows:
        assert row["predicted_seconds"] > 0
        assert row["whole"]["seconds"] in {found["seconds"] for found in ran.values()}
        assert row["differing"] >= len(row["kernels_only_here"])
    tried = [row for row in rows if row["labels"][0].startswith("plan-")]
    assert tried
    assert all(row["kernel_seconds"] > 0 and row["differing"] for row in tried)


class _SecondWins(NullRunner):
    """The sum of the parts is not the whole: the second best partition is faster."""

    def measure_whole(self, request: PlanRequest) -> PlanResult:
        found = super().measure_whole(request)
        fast = summarise([1e-9] * 15, contended=False)
        return PlanResult(
            measurements={**found.measurements, "plan-2": fast}, verified=True
        )


def test_the_partition_that_is_fastest_as_a_whole_is_kept(model: Model) -> None:
    """Not the one whose kernels take least by themselves."""
    tuning = _session(model, 3)
    run_to_end(tuning, _SecondWins(made_up_seconds))
    assert tuning.winner == "plan-2"
    kept = next(row for row in tuning.partitions if row["kept"])
    assert "plan-2" in kept["labels"]
    cut = {tuple(kernel["nodes"]) for kernel in body_of(tuning)["kernels"]}
    best = tuning._run.best().solution.partition
    assert cut != {choice.region.nodes for choice in best.choices}


def test_other_partitions_have_their_share_and_no_more(model: Model) -> None:
    """Solves that take long end the search; what was found till then counts."""
    budget = Budget(seconds=100.0, trials=200, trials_per_kernel=2)
    tuning = _session(model, 5, budget)
    runner, spent = NullRunner(made_up_seconds), 0.0
    while (batch := tuning.propose()) is not None:
        results = through_json(tuning.measure(batch, runner))
        for result in results:
            result["cost_seconds"] = 1.5 if _is_other(batch) else 0.0
            spent += result["cost_seconds"]
        tuning.observe(batch, results)
    assert 0 < spent <= VARY_SHARE * 100.0
    assert not tuning._run.others.is_complete
    assert not tuning.is_exhausted


def test_every_operator_is_told_by_itself(model: Model) -> None:
    """The run ends with the time of each operator in a kernel of its own."""
    tuning = session_of(model)
    log = run_to_end(tuning, NullRunner(made_up_seconds))
    batch, results = log[-1]
    assert [item["kind"] for item in batch["items"]] == ["operators"]
    rows = results[0]["operators"]
    told = sorted(node for row in rows for launch in row["launches"] for node in launch)
    assert told == sorted(n.name for n in model.graph.nodes if n.op != "reshape")
    assert all(row["measured"]["seconds"] > 0 for row in rows)
    assert all(row["predicted_seconds"] > 0 for row in rows)


def test_operators_are_not_measured_beyond_the_budget(model: Model) -> None:
    """Where the trials are spent, what was not measured is predicted."""
    tuning = session_of(model, budget=Budget(seconds=1e6, trials=4))
    log = run_to_end(tuning, NullRunner(made_up_seconds))
    rows = log[-1][1][0]["operators"]
    assert any(row["measured"] is None for row in rows)
    assert all(row["predicted_seconds"] > 0 for row in rows)
    assert tuning.progress()["trials"] <= 4
