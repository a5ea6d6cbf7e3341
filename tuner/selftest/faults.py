"""Kernels that do what no kernel should, to see that only their process dies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tuner.plan import Language, Source
from tuner.runtime.requests import MeasureRequest
from tuner.runtime.runner import Runner
from tuner.selftest.subjects import Subject, by_hand, subject

HANG_SECONDS: Final = 1.0
_HEADS: Final[Mapping[Language, str]] = MappingProxyType(
    {
        "opencl": "kernel void canary(global const float* x, global float* y)",
        "cuda": 'extern "C" __global__ void canary(const float* x, float* y)',
    }
)
_SPACES: Final[Mapping[Language, str]] = MappingProxyType(
    {"opencl": "volatile global", "cuda": "volatile"}
)
_BODIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "out of bounds": "y[1L << 42] = x[0];",
        "endless loop": "for ({space} float* p = y; p[0] != 1e30f;) p[1] = x[0];",
    }
)
_EXPECTED: Final[Mapping[str, str]] = MappingProxyType(
    {"out of bounds": "runtime", "endless loop": "timeout"}
)
NAMES: Final = tuple(_BODIES)


def faulty(name: str, language: Language) -> Subject:
    """The hand-written kernel with a body that is at fault."""
    good = by_hand(language)
    body = _BODIES[name].format(space=_SPACES[language])
    text = f"{_HEADS[language]} {{ {body} }}\n"
    source = Source(
        language=language,
        text=text,
        entry=good.source.entry,
        arguments=good.source.arguments,
        grid=good.source.grid,
        block=good.source.block,
    )
    return subject(name, good.graph, source, good.launched)


def provoked(
    name: str, language: Language, runner: Runner, seconds: float
) -> Mapping[str, Any]:
    """Run a faulty kernel, then a good one: the device must have recovered.

    Args:
        name: of the fault.
        language: of the device.
        runner: of the device.
        seconds: for both.
    """
    bad, good = faulty(name, language), by_hand(language)
    deaths, hangs = runner.deaths, _EXPECTED[name] == "timeout"
    first = runner.measure(
        MeasureRequest(
            graph=bad.graph,
            source=bad.source,
            deadline_seconds=HANG_SECONDS if hangs else max(seconds, 1.0),
        )
    )
    again = MeasureRequest(
        graph=good.graph, source=good.source, deadline_seconds=max(seconds, 1.0)
    )
    second = runner.measure(again)
    found = {
        "noticed_as": first.failure,
        "said": first.message,
        "children_lost": runner.deaths - deaths,
        "works_afterwards": not second.failure,
    }
    if second.failure:
        return {**found, "failure": "sticky", "message": second.message}
    if first.failure != _EXPECTED[name]:
        told = first.failure or "nothing"
        return {**found, "failure": "unnoticed", "message": f"seen as {told}"}
    return found
