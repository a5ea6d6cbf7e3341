"""The bound: below every prediction and every published time, and tight."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_model.catalog import DEVICES, find
from cost_model.device import LaunchMode
from cost_model.roofline import lower_bound, predict
from cost_model.work import Access, LibraryOperator, Pipe, Reuse, Work
from tests.cost_model.builders import H100_TABLE, copy, gpu

MIB = 1 << 20


_REUSES = st.builds(
    Reuse,
    distance_bytes=st.integers(0, 1 << 24),
    requested_bytes=st.integers(0, 1 << 33),
)


@st.composite
def accesses(draw: st.DrawFn) -> Access:
    """Any access whose counts are in order."""
    unique = draw(st.integers(0, 1 << 31))
    sector = unique + draw(st.integers(0, 1 << 31))
    requested = sector + draw(st.integers(0, 1 << 33))
    return Access(
        unique_bytes=unique,
        sector_bytes=sector,
        requested_bytes=requested,
        is_write=draw(st.booleans()),
        useful_bytes=draw(st.integers(0, requested)),
        reuse=tuple(draw(st.lists(_REUSES, max_size=3))),
    )


_OPERATORS = st.lists(
    st.builds(
        LibraryOperator,
        operations=st.dictionaries(
            st.sampled_from(list(Pipe)), st.floats(0, 1e15), max_size=3
        ),
        operand_bytes=st.integers(0, 1 << 30),
        internal_bytes=st.integers(0, 1 << 30),
    ),
    max_size=4,
)


@st.composite
def works(draw: st.DrawFn) -> Work:
    """Any counted work, plausible or not."""
    whole = st.integers(0, 1 << 12)
    counts = st.dictionaries(st.sampled_from(list(Pipe)), st.floats(0, 1e15))
    return Work(
        accesses=tuple(draw(st.lists(accesses(), max_size=6))),
        operations=draw(counts),
        blocks=draw(st.integers(1, 1 << 24)),
        block_threads=draw(st.integers(1, 1024)),
        registers_per_thread=draw(st.integers(1, 400)),
        shared_bytes_per_block=draw(st.integers(0, 300 << 10)),
        barriers_per_block=draw(whole),
        shuffles_per_thread=draw(whole),
        bytes_in_flight_per_thread=draw(st.integers(1, 256)),
        spill_bytes_per_thread=draw(whole),
        operators=tuple(draw(st.one_of(st.just([]), _OPERATORS))),
    )


@settings(max_examples=300, deadline=None)
@given(
    work=works(),
    name=st.sampled_from(sorted(DEVICES)),
    mode=st.sampled_from(["stream", "graph"]),
)
def test_the_bound_is_never_above_the_prediction(
    work: Work, name: str, mode: LaunchMode
) -> None:
    """Whatever a kernel counts, on every device, `lower_bound` <= `predict`."""
    device = DEVICES[name]
    seconds = predict(work, device, launch_mode=mode).seconds
    assert 0 <= lower_bound(work, device, launch_mode=mode) <= seconds * (1 + 1e-9)


@settings(max_examples=100, deadline=None)
@given(work=works(), name=st.sampled_from(sorted(DEVICES)), extra=accesses())
def test_more_operands_never_cost_less(work: Work, name: str, extra: Access) -> None:
    """Adding an operand never makes a kernel cheaper."""
    device = DEVICES[name]
    more = replace(work, accesses=(*work.accesses, extra))
    before, after = predict(work, device).seconds, predict(more, device).seconds
    assert after >= before * (1 - 1e-9)


@pytest.mark.parametrize(("nbytes", "published"), H100_TABLE)
def test_the_bound_is_below_published_times(nbytes: int, published: float) -> None:
    """No published copy of an H100 is faster than the bound."""
    seconds = nbytes / (published * 2**30)
    assert lower_bound(copy(nbytes), find("sm_90")) <= seconds


def test_a_copy_near_its_bound_is_seen_as_such() -> None:
    """The bound is tight where nothing but bandwidth matters."""
    work = copy(4 << 30)
    device = find("sm_90")
    assert lower_bound(work, device) > 0.93 * predict(work, device).seconds


def test_the_bound_does_not_hang_on_the_schedule() -> None:
    """Index arithmetic, blocks and re-reads leave the bound as it is."""
    work = copy(64 * MIB)
    other = replace(
        work,
        blocks=1,
        block_threads=32,
        registers_per_thread=255,
        operations={Pipe.INTEGER: 1e12, Pipe.CONVERT: 1e12},
        accesses=tuple(
            replace(a, requested_bytes=9 * a.requested_bytes) for a in work.accesses
        ),
    )
    assert lower_bound(other, gpu()) == lower_bound(work, gpu())
