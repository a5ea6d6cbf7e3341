"""From a loop nest and a schedule to the text of a kernel."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tuner.ir.types import TensorType
from tuner.kernel.mapping import blocks_of, map_groups
from tuner.kernel.nest import Kind
from tuner.kernel.render.group import GroupText
from tuner.kernel.render.lines import Lines
from tuner.kernel.render.scalar import helpers_in
from tuner.kernel.render.scope import Scope
from tuner.kernel.render.tensor import TensorText
from tuner.kernel.render.tile import TileText
from tuner.kernel.split import is_scratch, launches
from tuner.plan import Argument, Schedule, Source

if TYPE_CHECKING:
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.nest import LoopNest, Tensor
    from tuner.kernel.render.block import BlockText
    from tuner.kernel.render.dialect import Dialect

ENTRY = "fused"
_GOLDEN_SECTION: Final = 0.6180339887498949
_LARGEST_PRODUCT: Final = 1 << 31
"""Products of two positions below this are right in 32 bits."""


def render(nest: LoopNest, schedule: Schedule, dialect: Dialect) -> Source:
    """The source of a kernel in one language.

    The text depends on the nest's structure alone: no name of the graph is in it. The
    launches of a split kernel are functions of one text.

    Raises:
        CannotLower: the schedule is split, and the kernel cannot be.
    """
    *ahead, (last, its) = launches(nest, schedule)
    before = [
        _function(one, knobs, dialect, f"{ENTRY}_{number}", f"_{number}")
        for number, (one, knobs) in enumerate(ahead)
    ]
    final = _function(last, its, dialect, ENTRY)
    functions = [*before, final]
    collectives = [text for each in functions for text in each.collectives]
    bodies = [each.text for each in functions]
    helpers = helpers_in("\n".join([*collectives, *bodies]), dialect)
    parts = [dialect.prologue, *helpers, *collectives, *bodies]
    text = "\n".join(part for part in parts if part) + "\n"
    sources = tuple(replace(each.source, text=text) for each in before)
    return replace(final.source, text=text, before=sources)


class _Function(NamedTuple):
    """One kernel function, and how it is launched.

    Attributes:
        collectives: texts of the functions in which its threads meet.
        text: of the function itself.
        source: everything but the text.
    """

    collectives: tuple[str, ...]
    text: str
    source: Source


def _function(
    nest: LoopNest, schedule: Schedule, dialect: Dialect, entry: str, suffix: str = ""
) -> _Function:
    mappings = map_groups(nest, schedule)
    names = argument_names(nest)
    lines = Lines(1)
    index = dialect.index[nest.index_bits]
    lines.add(f"const int lane = {dialect.thread_x};")
    lines.add(f"const int team = {dialect.thread_y};")
    lines.add(f"const {index} block = {_block(mappings, index, dialect)};")
    shared: dict[str, int] = {}
    collectives: dict[str, str] = {}
    attribute = False
    for number, (group, mapping) in enumerate(zip(nest.groups, mappings, strict=True)):
        scope = Scope(
            nest=nest,
            group=group,
            mapping=mapping,
            dialect=dialect,
            names=names,
            lines=lines,
            suffix=suffix,
        )
        text = _writer(scope)
        if len(nest.groups) > 1:
            last = number == len(nest.groups) - 1
            end = mapping.first_block + mapping.blocks
            lines.open(_branch(number, end, is_last=last))
        text.write()
        if len(nest.groups) > 1:
            lines.close()
        for name, size in text.collectives.shared.items():
            shared[name] = max(size, shared.get(name, 0))
        collectives |= text.collectives.functions
        attribute = attribute or text.collectives.uses_subgroups
    lanes = mappings[0].lanes if mappings else 1
    teams = mappings[0].teams if mappings else 1
    body = "\n".join([*_shared_lines(shared, dialect), *lines.lines])
    head = _signature(nest, dialect, names, (entry, lanes, teams), attribute)
    source = Source(
        language=dialect.language,
        text="",
        entry=entry,
        arguments=tuple(map(_argument, nest.tensors)),
        grid=(blocks_of(mappings), 1, 1),
        block=(lanes, teams, 1),
    )
    return _Function(tuple(collectives.values()), f"{head} {{\n{body}\n}}", source)


def _argument(tensor: Tensor) -> Argument:
    scratch = None
    if is_scratch(tensor.name):
        scratch = TensorType(dtype=tensor.dtype, shape=(tensor.elements,))
    return Argument(tensor=tensor.name, is_output=tensor.is_output, scratch=scratch)


def _block(mappings: tuple[Mapping, ...], index: str, dialect: Dialect) -> str:
    """The block of the loops that a block of the grid takes.

    A CPU gives each of its threads a range of the grid. Groups side by side are dealt
    out, so that every range has its share of each: successive multiples of a number
    near the golden section of the grid fall evenly everywhere (D. Knuth, "The Art of
    Computer Programming", vol. 3, 6.4).
    """
    plain = f"({index}){dialect.block}"
    blocks = blocks_of(mappings)
    stride = round(blocks * _GOLDEN_SECTION)
    is_small = blocks * blocks < _LARGEST_PRODUCT
    if len(mappings) < 2 or not dialect.packs_lanes or stride < 2 or not is_small:  # noqa: PLR2004
        return plain
    while math.gcd(stride, blocks) > 1:
        stride += 1
    return f"({plain} * {stride}) % {blocks}"


def _writer(scope: Scope) -> BlockText:
    if scope.group.kind is not Kind.TILE:
        return GroupText(scope)
    is_tensor = scope.mapping.is_tensor and scope.dialect.multiply
    return TensorText(scope) if is_tensor else TileText(scope)


def argument_names(nest: LoopNest) -> tuple[str, ...]:
    """Our names of the pointer arguments."""
    names = []
    counts = {False: 0, True: 0}
    for tensor in nest.tensors:
        stem = "out" if tensor.is_output else "in"
        names.append(f"{stem}{counts[tensor.is_output]}")
        counts[tensor.is_output] += 1
    return tuple(names)


def _branch(number: int, end: int, *, is_last: bool) -> str:
    if is_last:
        return "else" if number else ""
    keyword = "else if" if number else "if"
    return f"{keyword} (block < {end})"


def _shared_lines(shared: dict[str, int], dialect: Dialect) -> list[str]:
    return [
        f"    {dialect.shared} {name.replace('*', str(size))};"
        for name, size in sorted(shared.items())
    ]


def _signature(
    nest: LoopNest,
    dialect: Dialect,
    names: tuple[str, ...],
    launch: tuple[str, int, int],
    attribute: bool,
) -> str:
    entry, lanes, teams = launch
    arguments = [
        (dialect.output if tensor.is_output else dialect.input).format(
            type=dialect.storage[tensor.dtype].type, name=name
        )
        for tensor, name in zip(nest.tensors, names, strict=True)
    ]
    text = ""
    if attribute and dialect.subgroup_attribute:
        line = dialect.subgroup_attribute.format(n=dialect.subgroup)
        text = f"#if {dialect.subgroup_guard}\n{line}\n#endif\n"
    return dialect.kernel.format(
        attribute=text,
        name=entry,
        arguments=", ".join(arguments),
        threads=lanes * teams,
        x=lanes,
        y=teams,
    )
