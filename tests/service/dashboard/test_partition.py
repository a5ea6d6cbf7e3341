"""The partition as boxes and arrows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.dashboard.partition import MAX_BOXES, partition_view, tensor_bytes
from tests.service.dashboard import samples

BODIES = {layers: samples.plan_body(layers=layers) for layers in (1, 4, 30)}


def covered(view: dict) -> list[int]:
    """Every kernel of every box, in the order of the boxes."""
    found: list[int] = []
    for box in view["boxes"]:
        first, last = map(int, box["id"].split("-"))
        found += range(first, last + 1)
    return found


@given(
    layers=st.sampled_from([1, 4, 30]),
    limit=st.integers(3, 400),
    expand=st.sampled_from(["", "0-3", "5-20", "100-140", "9-2", "a-b", "0-99999"]),
)
def test_boxes_cover_every_kernel_once(layers: int, limit: int, expand: str) -> None:
    """Whatever is asked: all kernels, each once, in order, in few enough boxes."""
    body = BODIES[layers]
    view = partition_view(body, {}, limit=limit, expand=expand)
    assert covered(view) == list(range(len(body["kernels"])))
    assert len(view["boxes"]) <= min(limit, MAX_BOXES)


@given(layers=st.sampled_from([4, 30]), limit=st.integers(3, 100))
def test_arrows_only_go_forward(layers: int, limit: int) -> None:
    """Collapsed boxes never form a cycle."""
    view = partition_view(BODIES[layers], {}, limit=limit)
    position = {box["id"]: i for i, box in enumerate(view["boxes"])}
    for edge in view["edges"]:
        assert position[edge["source"]] < position[edge["target"]]
        assert edge["bytes"] > 0


def test_a_small_plan_is_drawn_kernel_by_kernel() -> None:
    """Below the limit no box hides another, and names are the user's."""
    body = BODIES[1]
    view = partition_view(body, samples.user_names(body))
    assert [box["label"] for box in view["boxes"]] == [f"k{i}" for i in range(12)]
    assert view["boxes"][0]["detail"].startswith("/encoder/layer.0/matmul_0")


def test_runs_are_cut_where_little_crosses() -> None:
    """Thirty layers in thirty boxes: no cut falls inside a residual branch."""
    view = partition_view(BODIES[30], {}, limit=30)
    assert len(view["edges"]) == len(view["boxes"]) - 1


def test_an_opened_run_shows_its_kernels() -> None:
    """The run that was chosen is drawn one by one, the rest coarser."""
    view = partition_view(BODIES[30], {}, limit=60, expand="24-35")
    ids = {box["id"] for box in view["boxes"]}
    assert {f"{i}-{i}" for i in range(24, 36)} <= ids
    assert len(ids) <= 60


def test_a_plan_without_kernels_has_no_boxes() -> None:
    """A model whose outputs are its inputs draws nothing."""
    body = {**BODIES[1], "kernels": []}
    assert partition_view(body, {})["boxes"] == []


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ({"dtype": "f32", "shape": [2, 3]}, 24),
        ({"dtype": "bf16", "shape": []}, 2),
        (None, 0),
    ],
)
def test_tensors_are_as_large_as_their_type(kind: dict | None, size: int) -> None:
    """Bytes on an arrow come from dtype and shape."""
    assert tensor_bytes(kind) == size
