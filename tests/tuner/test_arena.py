"""The arena of real plans: what lies where, what it saves, and what it could save."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx import parser

from benchmarks.arena import Held, held, main, table
from benchmarks.compile import planned
from tests.conformance.random_models import RandomModel
from tuner.execution import program
from tuner.model import Model, load
from tuner.pipeline import Planner, resolve_target
from tuner.plan import Argument, Language, Options, Plan, Source
from tuner.runtime.requests import Program

EXAMPLE = Path(__file__).parents[2] / "examples" / "encoder.onnx"
APART = re.compile(r"\*\s*(?:restrict|__restrict__) \w+$")
"""A parameter whose bytes are reached through no other one."""
SEEDS = 12
NODES = 14


def _declared(source: Source) -> Iterator[tuple[Argument, str]]:
    """Arguments of a launch, each with its declaration in the text."""
    head = re.search(rf"\b{source.entry}\(([^)]*)\) {{", source.text)
    assert head is not None
    yield from zip(source.arguments, head.group(1).split(","), strict=True)


def _place(made: Program, tensor: str) -> tuple[str, range]:
    """The memory of a tensor, and its bytes there."""
    while tensor in made.memory.aliases:
        tensor = made.memory.aliases[tensor]
    for buffer in made.memory.buffers:
        if buffer.tensor == tensor:
            return "arena", range(buffer.offset, buffer.offset + buffer.bytes)
    return tensor, range(made.types[tensor].bytes)


def check(model: Model, plan: Plan, language: Language) -> int:
    """No launch is given memory that its text takes for another's.

    Returns:
        pairs of arguments in the arena.
    """
    made, pairs = program(model, plan, language), 0
    for step in made.steps:
        for launch in step.source.launches if step.source else ():
            places = []
            for argument, text in _declared(launch):
                assert APART.search(text), text
                assert ("const" in text) != argument.is_output, text
                tensor = step.tensor(argument.tensor)
                places.append((*_place(made, tensor), argument.is_output))
            for k, (memory, bytes_, written) in enumerate(places):
                for other, others, too in places[:k]:
                    if memory == other and (written or too):
                        assert not set(bytes_) & set(others), step.name
                        pairs += memory == "arena"
    return pairs


def test_no_kernel_writes_over_what_it_reads() -> None:
    """Texts say that their pointers reach different bytes, and the arena keeps to it.

    Views of one tensor are one memory, and what launches of a kernel hand on has a
    place of its own.
    """
    model = load(EXAMPLE.read_bytes())
    assert check(model, planned(model, "sm_90"), "cuda") > 0


@pytest.mark.parametrize(("target", "language"), [("cpu", "opencl"), ("sm_90", "cuda")])
def test_no_kernel_of_a_random_model_writes_over_what_it_reads(
    target: str, language: Language
) -> None:
    """The same with a kernel for each operator, views and awkward shapes."""
    pairs = 0
    for seed in range(SEEDS):
        model = load(RandomModel(seed, NODES).proto().SerializeToString())
        device = resolve_target(target)
        planner = Planner(model=model, device=device, options=Options())
        pairs += check(model, planner.plan(planner.unfused()), language)
    assert pairs > 0


_CHAIN = """
<ir_version: 8, opset_import: ["" : 17]>
chain (float[64, 32] x, float[32, 32] w) => (float[64, 32] y) {
    a = MatMul(x, w)
    b = Tanh(a)
    c = MatMul(b, w)
    d = Tanh(c)
    y = MatMul(d, w)
}
"""


def _chain() -> bytes:
    made: bytes = parser.parse_model(_CHAIN).SerializeToString()
    return made


def test_what_an_arena_holds() -> None:
    """Apart is the sum, alive the most at once; writing over operands takes less.

    Resident are the input, the weight and the output.
    """
    found = held(planned(load(_chain()), "ideal"))
    tensor = 64 * 32 * 4
    assert found.apart % tensor == 0
    assert found.over <= found.alive <= found.arena <= found.apart
    assert found.resident == 2 * tensor + 32 * 32 * 4


def test_the_table_says_what_could_be_spared() -> None:
    """Of all device memory; a plan without tensors between kernels has nothing."""
    one = Held(apart=8000, arena=4000, alive=4000, over=3000, resident=6000)
    none = Held(apart=0, arena=0, alive=0, over=0, resident=6000)
    *_, first, second, empty, last = table(
        iter((("m", "cpu", one), ("n", "cpu", none)))
    )
    assert first == "| m | cpu | 8 | 4 | 4 | 3 | 10 | 10.0% |"
    assert second == "| n | cpu | 0 | 0 | 0 | 0 | 6 | 0.0% |"
    assert not empty
    assert last.startswith("2 plans; the arena takes 0.50 of the bytes apart")
    assert last.endswith("in 1")


def test_the_command_prints_a_row_for_each_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of every model of a folder; a model that cannot be planned is named."""
    (tmp_path / "chain.onnx").write_bytes(_chain())
    (tmp_path / "broken.onnx").write_bytes(b"{}")
    assert main([str(tmp_path), "--target", "cpu", "ideal"]) == 0
    said = capsys.readouterr()
    rows = [line for line in said.out.splitlines() if line.startswith("| chain")]
    assert len(rows) == 2
    assert said.err.startswith("broken: ")
    with pytest.raises(SystemExit):
        main([str(tmp_path), "--only", "large"])
    assert "no model large" in capsys.readouterr().err
