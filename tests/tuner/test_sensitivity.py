"""Which numbers a partition hangs on."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from cost_model.catalog import cpu, find
from tuner.pipeline import load
from tuner.plan import Options
from tuner.sensitivity import LARGEST, Sensitivity, sensitivity


def chain(rows: int = 512, columns: int = 512, *, maps: int = 6) -> bytes:
    """Two sums over different axes of one costly map: compute it twice, or store it."""
    value = {"name": "x", "dtype": "f32", "shape": [rows, columns]}
    nodes: list[dict[str, Any]] = []
    last = "x"
    for index in range(maps):
        nodes.append(_node(f"tanh{index}", "Tanh", [last], f"t{index}"))
        last = f"t{index}"
    axes = [{"name": f"a{axis}", "dtype": "i64", "shape": [1]} for axis in (0, 1)]
    constants = [{**each, "data": [axis]} for axis, each in enumerate(axes)]
    nodes += [
        _node(f"sum{axis}", "ReduceSum", [last, f"a{axis}"], f"s{axis}")
        for axis in (0, 1)
    ]
    model = {
        "schema": "fuseplan.graph/1",
        "opset": {"": 18},
        "inputs": [value],
        "weights": [],
        "constants": constants,
        "nodes": nodes,
        "outputs": ["s0", "s1"],
    }
    return json.dumps(model).encode()


def _node(name: str, op: str, inputs: list[str], output: str) -> dict[str, Any]:
    return {
        "name": name,
        "op": op,
        "domain": "",
        "inputs": inputs,
        "outputs": [output],
        "attributes": {},
    }


def still() -> float:
    """A clock that stands."""
    return 0.0


NUMBERS = ("operations_per_second.special", "dram_bytes", "launch_seconds")


@pytest.fixture(scope="module")
def found() -> tuple[Sensitivity, ...]:
    """The answer for a model whose partition weighs arithmetic against traffic."""
    model = load(chain(2048, 2048, maps=2), "json")
    device = find("h100-sxm")
    return sensitivity(model, device, Options(), still, numbers=NUMBERS)


def test_a_number_that_decides_is_named(found: tuple[Sensitivity, ...]) -> None:
    """Recomputation or a store: some rate tips it, within the largest factor."""
    first = found[0]
    assert first.factor is not None
    assert 1 / LARGEST <= first.factor <= LARGEST
    assert first.new_kernels > 0


def test_a_number_that_decides_nothing_says_so(found: tuple[Sensitivity, ...]) -> None:
    """The capacity of main memory is in no term."""
    (last,) = [one for one in found if one.number == "dram_bytes"]
    assert last.factor is None
    assert last.kernels_after == last.kernels_before


def test_what_had_no_time_is_not_called_robust() -> None:
    """Numbers beyond the time limit are listed as not examined."""
    ticks = count(step=100)
    model = load(chain(64, 64), "json")
    found = sensitivity(
        model,
        cpu(),
        Options(),
        lambda: float(next(ticks)),
        numbers=NUMBERS,
        time_limit_seconds=50.0,
    )
    assert not any(one.examined for one in found)


def test_zeros_are_left_out() -> None:
    """Starts of blocks cost nothing on a GPU; twice nothing is nothing."""
    device = replace(find("sm_90"), block_launch_seconds=0.0)
    model = load(chain(64, 64), "json")
    asked = ("block_launch_seconds",)
    assert sensitivity(model, device, Options(), still, numbers=asked) == ()
