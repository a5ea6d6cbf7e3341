"""Packed lanes that all stand in one part of a row read what belongs to it once."""

from __future__ import annotations

import pytest

from cost_model.catalog import find
from tests.tuner.kernel.builder import Builder
from tests.tuner.kernel.running import complaint, random_feeds, run
from tuner.ir.graph import Graph
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.runtime.opencl import OpenCLBackend

CPU = find("cpu")


def _by_channel(channels: int, pixels: int) -> Graph:
    """Sums of images, each channel with a factor of its own."""
    b = Builder()
    x = b.input(40, channels, pixels)
    x = b.op("mul", x, b.input(channels, 1))
    return b.graph(b.op("reduce_sum", x, axes=(1, 2), keepdims=0))


@pytest.mark.parametrize(
    ("channels", "pixels", "is_one"), [(3, 64, True), (4, 36, False), (5, 7, False)]
)
def test_a_channel_of_whole_vectors_is_one_for_all_lanes(
    opencl: OpenCLBackend, channels: int, pixels: int, is_one: bool
) -> None:
    """Its number comes from the first lane, unless lanes stand in several channels."""
    graph = _by_channel(channels, pixels)
    nest = lower(graph)
    text = render(nest, default(nest, CPU), OPENCL).text
    assert ("(p - lane) / " in text) == is_one
    assert "p / " in text or is_one
    assert "(p - lane)" not in render(nest, default(nest, find("sm_90")), CUDA).text
    feeds = random_feeds(graph, pixels)
    found = run(opencl, graph, default(nest, CPU), feeds)
    assert not complaint(graph, feeds, found)
