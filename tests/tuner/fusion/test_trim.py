"""Kernels write what is read, and nothing else."""

from __future__ import annotations

from tests.tuner.fusion.random_graphs import COLUMNS, ROWS, Builder
from tuner.fusion.candidates import Candidate
from tuner.fusion.columns import Columns
from tuner.fusion.legality import Limits, Rules
from tuner.fusion.pieces import Priced
from tuner.fusion.pins import Pins
from tuner.fusion.trim import without_unread
from tuner.fusion.view import View
from tuner.ir.graph import Region
from tuner.plan import Family, Pin


def _rules() -> tuple[Rules, tuple[str, str]]:
    builder = Builder()
    builder.given("x", (ROWS, COLUMNS))
    first = builder.node("exp", "x")
    second = builder.node("neg", first)
    graph = builder.build([builder.node("tanh", second)])
    names = (graph.nodes[0].name, graph.nodes[1].name)
    return Rules(View(graph), "full", Limits.none()), names


def _kernel(columns: Columns, rules: Rules, mask: int, outputs: int) -> Priced:
    needs = rules.view.needs(mask)
    return columns.price(
        Candidate(mask=mask, outputs=outputs, needs=needs, family=Family.POINTWISE)
    )


def _by_outputs(region: Region, _family: Family) -> float:
    return 1e-6 * len(region.outputs)


def _by_fewness(region: Region, _family: Family) -> float:
    return 1e-6 / len(region.outputs)


def test_what_nobody_reads_is_not_written() -> None:
    """An output without a reader goes, and the kernel costs less."""
    rules, _ = _rules()
    columns = Columns(rules, _by_outputs)
    chosen = [
        _kernel(columns, rules, 0b011, 0b011),
        _kernel(columns, rules, 0b100, 0b100),
    ]
    found = without_unread(rules, columns.price, chosen, pins=Pins(rules, ()))
    assert [kernel.candidate.outputs for kernel in found] == [0b010, 0b100]


def test_a_tensor_has_one_writer_and_idle_kernels_go() -> None:
    """A kernel whose only output an earlier one writes too is not run."""
    rules, _ = _rules()
    columns = Columns(rules, _by_outputs)
    chosen = [
        _kernel(columns, rules, 0b001, 0b001),
        _kernel(columns, rules, 0b010, 0b010),
        _kernel(columns, rules, 0b011, 0b010),
        _kernel(columns, rules, 0b100, 0b100),
    ]
    found = without_unread(rules, columns.price, chosen, pins=Pins(rules, ()))
    written = [kernel.candidate.outputs for kernel in found]
    assert sorted(written) == sorted(set(written))
    assert len(found) < len(chosen)


def test_a_dearer_kernel_is_not_taken() -> None:
    """If writing less costs more, the kernel stays as it is."""
    rules, _ = _rules()
    columns = Columns(rules, _by_fewness)
    chosen = [
        _kernel(columns, rules, 0b011, 0b011),
        _kernel(columns, rules, 0b100, 0b100),
    ]
    found = without_unread(rules, columns.price, chosen, pins=Pins(rules, ()))
    assert found == chosen


def test_pinned_kernels_stay() -> None:
    """A kernel that a pin speaks about keeps its nodes."""
    rules, names = _rules()
    columns = Columns(rules, _by_outputs)
    chosen = [
        _kernel(columns, rules, 0b011, 0b011),
        _kernel(columns, rules, 0b100, 0b100),
    ]
    pins = Pins(rules, (Pin(fuse=True, nodes=names),))
    assert without_unread(rules, columns.price, chosen, pins=pins) == chosen
