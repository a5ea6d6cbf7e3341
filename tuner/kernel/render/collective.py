"""Threads that put their partial results together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.ir.expr import parse
from tuner.ir.ops import OPS
from tuner.kernel.render.scalar import expression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tuner.ir.types import DType
    from tuner.kernel.mapping import Mapping
    from tuner.kernel.render.dialect import Dialect


class Collectives:
    """The helper functions that a group's reductions need.

    Attributes:
        functions: text by name.
        shared: elements by the declaration of an on-chip array, ``*`` for its size.
        uses_subgroups: whether some function exchanges values within a sub-group.
    """

    def __init__(self, mapping: Mapping, dialect: Dialect, suffix: str = "") -> None:
        self._mapping = mapping
        self._dialect = dialect
        self._suffix = suffix
        self.functions: dict[str, str] = {}
        self.shared: dict[str, int] = {}
        self.uses_subgroups = False

    def across_lanes(self, op: str, dtype: DType, value: str) -> str:
        """Expression of the result over the lanes of a team."""
        mapping, dialect = self._mapping, self._dialect
        if mapping.lanes == 1:
            return value
        width = subgroup_width(mapping, dialect)
        name = f"lanes_{op}_{dtype.value}{self._suffix}"
        fallback = not width or bool(dialect.subgroup_guard)
        uses_shared = fallback or mapping.lanes > width
        head = self._head(name, dtype, uses_shared=uses_shared)
        tree = _tree(
            op, dtype, dialect, "lane", mapping.lanes, "team * LANES + lane", 1
        )
        tree = [line.replace("LANES", str(mapping.lanes)) for line in tree]
        body = tree
        if width:
            self.uses_subgroups = True
            body = _exchange(op, dtype, dialect, width, mapping.lanes)
            if fallback:
                guard = f"#if {dialect.subgroup_guard}"
                body = [guard, *body, "#else", *tree, "#endif"]
        self.functions[name] = "\n".join([f"{head} {{", *body, "}"])
        if not uses_shared:
            return f"{name}({value}, lane, team)"
        share = 1 if fallback else width
        self._need(dtype, mapping.lanes * mapping.teams // share)
        return f"{name}({value}, lane, team, shared_{dtype.value})"

    def across_teams(self, op: str, dtype: DType, value: str) -> str:
        """Expression of the result over the teams of a block, lane by lane."""
        mapping = self._mapping
        if mapping.teams == 1:
            return value
        name = f"teams_{op}_{dtype.value}{self._suffix}"
        head = self._head(name, dtype, uses_shared=True)
        place = f"team * {mapping.lanes} + lane"
        body = _tree(
            op, dtype, self._dialect, "team", mapping.teams, place, mapping.lanes
        )
        self.functions[name] = "\n".join([f"{head} {{", *body, "}"])
        self._need(dtype, mapping.lanes * mapping.teams)
        return f"{name}({value}, lane, team, shared_{dtype.value})"

    def _need(self, dtype: DType, elements: int) -> None:
        held = self._dialect.held[dtype]
        key = f"{held} shared_{dtype.value}[*]"
        self.shared[key] = max(elements, self.shared.get(key, 0))

    def _head(self, name: str, dtype: DType, *, uses_shared: bool) -> str:
        held = self._dialect.held[dtype]
        pointer = f"{self._dialect.shared_pointer} {held}* shared".strip()
        arguments = [f"{held} x", "int lane", "int team"]
        if uses_shared:
            arguments.append(pointer)
        return f"{self._dialect.helper} {held} {name}({', '.join(arguments)})"


def subgroup_width(mapping: Mapping, dialect: Dialect) -> int:
    """How many lanes exchange values directly; 0 if they cannot."""
    if mapping.lanes < dialect.subgroup_least:
        return 0
    return min(mapping.lanes, dialect.subgroup)


def joined(op: str, dtype: DType, parts: Sequence[str], dialect: Dialect) -> str:
    """Two partial results put together."""
    return expression(parse(OPS[op].expression), parts, dtype, dialect)


def _exchange(
    op: str, dtype: DType, dialect: Dialect, width: int, lanes: int
) -> list[str]:
    body = []
    held = dialect.held[dtype]
    distance = width // 2
    while distance:
        other = dialect.shuffle.format(x="x", d=distance)
        body.append(f"    {held} x{distance} = {other};")
        both = joined(op, dtype, ("x", f"x{distance}"), dialect)
        body.append(f"    x = {both};")
        distance //= 2
    parts = lanes // width
    if parts > 1:
        both = joined(op, dtype, ("x", f"shared[team * {parts} + i]"), dialect)
        body += [
            f"    if (lane % {width} == 0)",
            f"        shared[team * {parts} + lane / {width}] = x;",
            f"    {dialect.barrier}",
            f"    x = shared[team * {parts}];",
            f"    for (int i = 1; i < {parts}; i++) x = {both};",
            f"    {dialect.barrier}",
        ]
    return [*body, "    return x;"]


def _tree(
    op: str,
    dtype: DType,
    dialect: Dialect,
    axis: str,
    count: int,
    place: str,
    stride: int,
) -> list[str]:
    first = "shared[i]"
    second = f"shared[i + d * {stride}]" if stride > 1 else "shared[i + d]"
    both = joined(op, dtype, (first, second), dialect)
    base = "lane" if axis == "team" else f"team * {count}"
    return [
        f"    int i = {place};",
        "    shared[i] = x;",
        f"    {dialect.barrier}",
        f"    for (int d = {count // 2}; d > 0; d /= 2) {{",
        f"        if ({axis} < d) shared[i] = {both};",
        f"        {dialect.barrier}",
        "    }",
        f"    x = shared[{base}];",
        f"    {dialect.barrier}",
        "    return x;",
    ]
