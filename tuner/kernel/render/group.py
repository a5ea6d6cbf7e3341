"""Text of one group: the loops, and the values inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tuner.ir.types import DType
from tuner.kernel.held import identity
from tuner.kernel.index import AtomKind, Guards, Index, bounds, runs
from tuner.kernel.nest import (
    Apply,
    Constant,
    Group,
    Kind,
    Load,
    LoopNest,
    Pass,
    Reduced,
    Select,
    Store,
)
from tuner.kernel.render.collective import Collectives, joined, subgroup_width
from tuner.kernel.render.scalar import atomic, converted, expression, number
from tuner.kernel.streams import streams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tuner.kernel.mapping import Mapping
    from tuner.kernel.render.dialect import Dialect
    from tuner.kernel.render.lines import Lines

_COMPONENTS: Final = "xyzw"
_UNROLLED_STEPS: Final = 64
"""Loops of up to so many steps may be unrolled."""
_PACKED_UNROLL: Final = 4
"""Steps of packed lanes at once: enough to hide their latencies, and little text."""
_LEVEL_STEPS: Final = 128
"""Terms of a long floating-point sum that are added up by themselves first."""


class GroupText:
    """Writes one group of a kernel.

    The names in the text: ``block`` of the grid, ``lane`` and ``team`` of the thread,
    ``q``, ``i``, ``p``, ``r`` for positions in the outer loops, the rows, the inner and
    the serial loops, ``v3`` for value 3, ``a0`` for the partial result of reduction 0,
    ``k3`` for kept values.
    """

    def __init__(
        self,
        nest: LoopNest,
        group: Group,
        mapping: Mapping,
        dialect: Dialect,
        names: Sequence[str],
        lines: Lines,
    ) -> None:
        self.nest = nest
        self.group = group
        self.mapping = mapping
        self.dialect = dialect
        self.names = names
        self.lines = lines
        self.collectives = Collectives(mapping, dialect)
        self.index_type = dialect.index[nest.index_bits]
        self._sums = "a"

    # Loops

    def write(self) -> None:
        """Write the whole group."""
        start = self.mapping.first_block
        self._declare("part", f"block - {start}" if start else "block")
        if self.group.kind is Kind.COLUMN:
            self._column()
        else:
            self._rows()

    def _declare(self, name: str, text: str) -> None:
        self.lines.add(f"const {self.index_type} {name} = {text};")

    def _rows(self) -> None:
        """POINTWISE and ROW: a team takes outer points one after the other."""
        group, mapping = self.group, self.mapping
        block = "part" if mapping.chunks == 1 else f"part / {mapping.chunks}"
        first = f"{scaled(block, mapping.teams * mapping.repeat)} + team"
        if mapping.repeat > 1:
            self.lines.open(f"for (int turn = 0; turn < {mapping.repeat}; turn++)")
            first += f" + turn * {mapping.teams}"
        tail = group.outer_points % (mapping.teams * mapping.repeat) != 0
        is_collective = group.kind is Kind.ROW and mapping.lanes > 1
        last = group.outer_points - 1
        if tail and is_collective:
            self._declare("wanted", first)
            self.lines.add(f"const bool active = wanted <= {last};")
            self._declare("q", f"active ? wanted : {last}")
        else:
            self._declare("q", first)
        guarded = tail and not is_collective
        if guarded:
            self.lines.open(f"if (q <= {last})")
        condition = "active" if tail and is_collective else ""
        if group.kind is Kind.ROW:
            self._row(condition)
        else:
            self._points()
        if guarded:
            self.lines.close()
        if mapping.repeat > 1:
            self.lines.close()

    def _points(self) -> None:
        """POINTWISE: the inner points of one outer point."""
        mapping = self.mapping
        self._level_values(0)
        step = mapping.lanes * mapping.vector
        first = f"lane * {mapping.vector}" if mapping.vector > 1 else "lane"
        start = (
            f"part % {mapping.chunks} * {mapping.tile}" if mapping.chunks > 1 else ""
        )
        if self._may_step_back and self._has_tail:
            self._packed_points(start)
            return
        place = f"{start} + {first}" if start else first
        if mapping.items == 1:
            self._point(place)
            return
        packs = self.dialect.packs_lanes
        self._unrolled(min(mapping.items, _PACKED_UNROLL) if packs else mapping.items)
        self.lines.open(f"for (int item = 0; item < {mapping.items}; item++)")
        self._point(f"{place} + item * {step}", guarded=self._has_tail)
        self.lines.close()

    @property
    def _has_tail(self) -> bool:
        """Whether the last block of the inner loops goes beyond their end."""
        return self.group.inner_points % self.mapping.tile != 0

    @property
    def _may_step_back(self) -> bool:
        """Whether a last step may end where the inner loops end, and not beyond.

        It then begins at points that the step before has taken: all lanes have work,
        and packed lanes need no masks. What is stored twice is the same both times;
        reductions leave out what they have seen. Not where lanes meet at a barrier:
        Intel's compiler (2026.22) carries an element that is read on both sides of it
        over from one lane to all.
        """
        mapping = self.mapping
        if not self.dialect.packs_lanes or mapping.vector > 1:
            return False
        is_row = self.group.kind is Kind.ROW
        meet = is_row and mapping.lanes != subgroup_width(mapping, self.dialect)
        return not meet and self.group.inner_points >= mapping.lanes

    def _packed_points(self, start: str) -> None:
        """POINTWISE: steps of packed lanes, the last of which steps back."""
        inner, lanes = self.group.inner_points, self.mapping.lanes
        items = self.mapping.items
        if items == 1:
            self._point(f"{self._stepped_back(start)} + lane", guarded=False)
            return
        full = str(inner // lanes)
        place = f"lane + item * {lanes}"
        if start:
            self._declare("begin", start)
            self._declare("rest", f"({inner} - begin) / {lanes}")
            self._declare("full", f"rest < {items} ? rest : {items}")
            full, place = "full", f"begin + {place}"
        self._unrolled(_PACKED_UNROLL if start else min(inner // lanes, _PACKED_UNROLL))
        self.lines.open(f"for (int item = 0; item < {full}; item++)")
        self._point(place, guarded=False)
        self.lines.close()
        if inner % lanes:
            self.lines.open(f"if (full < {items})" if start else "")
            self._point(f"lane + {inner - lanes}", guarded=False)
            self.lines.close()

    def _stepped_back(self, start: str) -> str:
        """Where a block of one step begins: all its points lie inside."""
        last = self.group.inner_points - self.mapping.lanes
        self._declare("begin", start)
        return f"(begin < {last} ? begin : {last})"

    def _point(self, place: str, *, guarded: bool = True) -> None:
        """POINTWISE: what a thread does in one step."""
        group = self.group
        self._declare("p", place)
        guarded = guarded and self._has_tail
        if guarded:
            self.lines.open(f"if (p < {group.inner_points})")
        for each in group.plan:
            self._values(each.values)
            self._stores(each.stores, "")
        if guarded:
            self.lines.close()

    def _row(self, condition: str) -> None:
        """ROW: a team walks along the inner points of one row."""
        one = f"lane == 0 && {condition}" if condition else "lane == 0"
        if self.mapping.is_persistent:
            self._keep_arrays()
        done = -1
        for each in self.group.plan:
            self._levels(done + 1, each.stage, one)
            done = each.stage
            self._start(each)
            self._row_pass(each, condition)
            for reduction in each.reductions:
                op = self.group.reductions[reduction]
                name = f"a{reduction}"
                text = self.collectives.across_lanes(op.op, op.dtype, name)
                if text != name:
                    self.lines.add(f"{name} = {text};")
        self._levels(done + 1, self._stages(), one)

    def _row_pass(self, each: Pass, condition: str) -> None:
        group, mapping = self.group, self.mapping
        step = mapping.lanes * mapping.vector
        first = f"lane * {mapping.vector}" if mapping.vector > 1 else "lane"
        end = group.inner_points
        if group.serial:
            kind = self.index_type
            self.lines.open(f"for ({kind} r = 0; r < {group.serial_points}; r++)")
            self._values(self._along_serial(each.values))
        self._row_run(each, (first, end, step), condition)
        if group.serial:
            self.lines.close()

    def _along_serial(self, values: Iterable[int]) -> list[int]:
        """ROW: those of some walked values that are one along the inner loops."""
        rows, mask = self.group.values, self.group.inner_mask
        return [value for value in values if not rows[value].loops & mask]

    def _along_inner(self, values: Iterable[int]) -> list[int]:
        """Those of some walked values that the innermost loop computes."""
        rows, mask = self.group.values, self.group.inner_mask
        if self.group.kind is Kind.COLUMN:
            return list(values)
        return [value for value in values if rows[value].loops & mask]

    def _row_run(self, each: Pass, span: tuple[str, int, int], condition: str) -> None:
        """Steps along a row that all lanes take, then one that only some do.

        Loops that all lanes leave together need no masks where lanes are packed.
        """
        first, end, step = span
        if not self.dialect.packs_lanes:
            self._masked_run(each, span, condition)
            return
        full, tail = divmod(end, step)
        if full:
            self._full_steps(each, first, step, condition)
        if not tail:
            return
        self.lines.open("")
        self._declare("item", str(full))
        if self._may_step_back:
            self._declare("p", f"lane + {end - step}")
            self._step(each, condition, taken=f"lane >= {step - tail}")
        else:
            self._declare("p", f"{first} + item * {step}")
            self.lines.open(f"if (p < {end})")
            self._step(each, condition)
            self.lines.close()
        self.lines.close()

    def _masked_run(
        self, each: Pass, span: tuple[str, int, int], condition: str
    ) -> None:
        """Steps along a row, each lane as far as it has points."""
        first, end, step = span
        if not self.mapping.is_persistent:
            self._walk(each, "p", span, condition)
            return
        self._unrolled(self.mapping.items)
        self.lines.open(f"for (int item = 0; item < {self.mapping.items}; item++)")
        self._declare("p", f"{first} + item * {step}")
        guarded = end % step != 0
        if guarded:
            self.lines.open(f"if (p < {end})")
        self._kept_pass(each, condition)
        if guarded:
            self.lines.close()
        self.lines.close()

    def _full_steps(self, each: Pass, first: str, step: int, condition: str) -> None:
        """The steps that lie in the row with all lanes; long sums in two levels."""
        full = self.group.inner_points // step
        is_long = not self.mapping.is_persistent and self._is_long(each, full)
        start, stop = "0", str(full)
        if is_long:
            self._open_level(each, full, _LEVEL_STEPS)
            start, stop = "base", "stop"
        self._unrolled(full if self.mapping.is_persistent else self.mapping.unroll)
        kind = self.index_type
        self.lines.open(f"for ({kind} item = {start}; item < {stop}; item++)")
        self._declare("p", f"{first} + item * {step}")
        self._step(each, condition)
        self.lines.close()
        if is_long:
            self._close_level(each)

    def _step(self, each: Pass, condition: str, taken: str = "") -> None:
        """What a team does at its points of one step; reductions take some of them."""
        if self.mapping.is_persistent:
            self._kept_pass(each, condition, taken)
            return
        self._values(self._along_inner(each.values))
        self._accumulate(each, taken)
        self._stores(each.stores, condition)

    def _walk(
        self, each: Pass, name: str, span: tuple[str, int, int], condition: str
    ) -> None:
        """A loop over walked points, ``for (name = first; name < end; += step)``.

        Long floating-point sums are added up in two levels, so that their rounding
        error grows with the root of the length of either (N. Higham, "The accuracy
        of floating point summation", SIAM J. Sci. Comput. 14, 1993).
        """
        first, end, step = span
        if not self._is_long(each, end // step):
            self._loop(each, name, (first, str(end), step), condition)
            return
        self._open_level(each, end, _LEVEL_STEPS * step)
        self._loop(each, name, (f"base + {first}", "stop", step), condition)
        self._close_level(each)

    def _open_level(self, each: Pass, end: int, stride: int) -> None:
        """Begin to add up a part of a long sum by itself."""
        kind = self.index_type
        self.lines.open(f"for ({kind} base = 0; base < {end}; base += {stride})")
        self._declare("stop", f"base + {stride} < {end} ? base + {stride} : {end}")
        self._sums = "s"
        self._start(each)

    def _close_level(self, each: Pass) -> None:
        """Add the part to the whole."""
        self._sums = "a"
        for reduction in each.reductions:
            op = self.group.reductions[reduction]
            for copy in range(self._accumulators()):
                total = self._partial(reduction, copy)
                parts = (total, total.replace("a", "s", 1))
                text = joined(op.op, op.dtype, parts, self.dialect)
                self.lines.add(f"{total} = {text};")
        self.lines.close()

    def _unrolled(self, steps: int) -> None:
        """Ask for a loop to be unrolled, unless that would be a lot of text."""
        if 1 < steps <= _UNROLLED_STEPS:
            self.lines.add(self.dialect.unroll.format(n=steps))

    def _is_long(self, each: Pass, steps: int) -> bool:
        sums = (self.group.reductions[number] for number in each.reductions)
        return steps > 2 * _LEVEL_STEPS and any(
            each.op == "reduce_sum" and each.dtype.is_float for each in sums
        )

    def _loop(
        self, each: Pass, name: str, span: tuple[str, str, int], condition: str
    ) -> None:
        first, end, step = span
        self._unrolled(self.mapping.unroll)
        step_text = f"{name}++" if step == 1 else f"{name} += {step}"
        start = f"{self.index_type} {name} = {first}"
        self.lines.open(f"for ({start}; {name} < {end}; {step_text})")
        self._values(self._along_inner(each.values))
        self._accumulate(each)
        self._stores(each.stores, condition)
        self.lines.close()

    def _kept_pass(self, each: Pass, condition: str, taken: str = "") -> None:
        for value in each.kept:
            for copy in self._copies(value):
                name = self._name(value, copy)
                held = self.dialect.held[self.group.values[value].dtype]
                self.lines.add(f"const {held} {name} = {self._kept(value, copy)};")
        self._values(self._along_inner(each.fresh))
        self._accumulate(each, taken)
        later = {
            v
            for other in self.group.plan
            for v in other.kept
            if other.stage > each.stage
        }
        for value in each.fresh:
            if value in later:
                for copy in self._copies(value):
                    name = self._name(value, copy)
                    self.lines.add(f"{self._kept(value, copy)} = {name};")
        self._stores(each.stores, condition)

    def _kept(self, value: int, copy: int) -> str:
        mapping = self.mapping
        place = "item"
        if self.group.serial:
            place = f"r * {mapping.items} + item"
        if mapping.vector == 1:
            return f"k{value}[{place}]"
        return f"k{value}[{scaled(place, mapping.vector)} + {copy}]"

    def _keep_arrays(self) -> None:
        kept = sorted({v for each in self.group.plan for v in each.kept})
        for value in kept:
            held = self.dialect.held[self.group.values[value].dtype]
            size = self.mapping.items * self.mapping.vector * self.group.serial_points
            self.lines.add(f"{held} k{value}[{size}];")

    def _column(self) -> None:
        """COLUMN: a thread owns an inner point and walks over the serial points."""
        group, mapping = self.group, self.mapping
        chunks = mapping.chunks
        self._declare("q", "part" if chunks == 1 else f"part / {chunks}")
        first = f"lane * {mapping.vector}" if mapping.vector > 1 else "lane"
        if chunks > 1:
            first = f"part % {chunks} * {mapping.tile} + {first}"
        tail = group.inner_points % mapping.tile != 0
        condition = ""
        if tail and mapping.teams > 1:
            last = group.inner_points - mapping.vector
            self._declare("wanted", first)
            self.lines.add(f"const bool active = wanted <= {last};")
            self._declare("p", f"active ? wanted : {last}")
            condition = "active"
        elif tail and self._may_step_back:
            start = f"part % {chunks} * {mapping.tile}"
            self._declare("p", f"{self._stepped_back(start)} + lane")
        else:
            self._declare("p", first)
        guarded = tail and mapping.teams == 1 and not self._may_step_back
        if guarded:
            self.lines.open(f"if (p < {group.inner_points})")
        self._column_passes(condition)
        if guarded:
            self.lines.close()

    def _column_passes(self, condition: str) -> None:
        mapping = self.mapping
        one = "team == 0" if mapping.teams > 1 else ""
        if condition:
            one = f"{one} && {condition}"
        done = -1
        for each in self.group.plan:
            self._levels(done + 1, each.stage, one)
            done = each.stage
            self._start(each)
            first = "team" if mapping.teams > 1 else "0"
            span = (first, self.group.serial_points, mapping.teams)
            self._walk(each, "r", span, condition)
            for reduction in each.reductions:
                self._join_teams(reduction)
        self._levels(done + 1, self._stages(), one)

    def _join_teams(self, reduction: int) -> None:
        op = self.group.reductions[reduction]
        for copy in range(self._accumulators()):
            name = self._partial(reduction, copy)
            text = self.collectives.across_teams(op.op, op.dtype, name)
            if text != name:
                self.lines.add(f"{name} = {text};")

    # Reductions

    def _accumulators(self) -> int:
        return self.mapping.vector if self.group.kind is Kind.COLUMN else 1

    def _partial(self, reduction: int, copy: int) -> str:
        if self._accumulators() == 1:
            return f"{self._sums}{reduction}"
        return f"{self._sums}{reduction}_{copy}"

    def _start(self, each: Pass) -> None:
        for reduction in each.reductions:
            op = self.group.reductions[reduction]
            held = self.dialect.held[op.dtype]
            start = number(identity(op.op, op.dtype), op.dtype, self.dialect)
            for copy in range(self._accumulators()):
                name = self._partial(reduction, copy)
                self.lines.add(f"{held} {name} = {start};")

    def _accumulate(self, each: Pass, taken: str = "") -> None:
        for reduction in each.reductions:
            op = self.group.reductions[reduction]
            start = number(identity(op.op, op.dtype), op.dtype, self.dialect)
            for copy in range(self.mapping.vector):
                place = copy if self._accumulators() > 1 else 0
                name = self._partial(reduction, place)
                source = self._operand(op.source, copy)
                if taken:
                    source = f"({taken} ? {source} : {start})"
                parts = (source, name)
                text = joined(op.op, op.dtype, parts, self.dialect)
                self.lines.add(f"{name} = {text};")

    # Values

    def _stages(self) -> int:
        values = (value.stage for value in self.group.values)
        return max(values, default=0)

    def _levels(self, first: int, last: int, condition: str) -> None:
        """What is known once per row, of some stages, and its stores."""
        for stage in range(first, last + 1):
            self._level_values(stage)
            stores = [s for s in self.group.stores if s.per_row and s.stage == stage]
            self._stores(stores, condition)

    def _level_values(self, stage: int) -> None:
        walked = self.group.walked_mask
        self._values(
            number
            for number, value in enumerate(self.group.values)
            if value.stage == stage and not value.loops & walked
        )

    def _copies(self, value: int) -> range:
        is_many = self.group.values[value].loops & self.group.inner_mask
        return range(self.mapping.vector if is_many else 1)

    def _name(self, value: int, copy: int) -> str:
        if self.mapping.vector == 1 or len(self._copies(value)) == 1:
            return f"v{value}"
        return f"v{value}_{copy}"

    def _operand(self, value: int, copy: int) -> str:
        what = self.group.values[value].what
        if isinstance(what, Constant):
            dtype = self.group.values[value].dtype
            return atomic(number(what.value, dtype, self.dialect))
        return self._name(value, copy)

    def _values(self, numbers: Iterable[int]) -> None:
        for value in numbers:
            what = self.group.values[value].what
            if isinstance(what, Constant):
                continue
            if isinstance(what, Load) and self._is_wide(
                what.tensor, what.index, what.guards
            ):
                self._wide_load(value, what)
                continue
            held = self.dialect.held[self.group.values[value].dtype]
            for copy in self._copies(value):
                text = self._text(value, copy)
                self.lines.add(f"const {held} {self._name(value, copy)} = {text};")

    def _text(self, value: int, copy: int) -> str:
        row = self.group.values[value]
        what = row.what
        if isinstance(what, Load):
            return self._load(what, copy)
        if isinstance(what, Reduced):
            return self._partial(what.reduction, copy)
        if isinstance(what, Select):
            test = self._test(what.guards, copy)
            chosen = self._operand(what.chosen, copy)
            return f"{test} ? {chosen} : {self._operand(what.other, copy)}"
        assert isinstance(what, Apply)
        return self._apply(what, row.dtype, copy)

    def _apply(self, what: Apply, dtype: DType, copy: int) -> str:
        parts = []
        for arg in what.args:
            text, source = self._operand(arg, copy), self.group.values[arg].dtype
            if source not in (what.operand, DType.BOOL):
                text = atomic(converted(text, source, what.operand, self.dialect))
            parts.append(text)
        text = expression(what.expression, parts, what.operand, self.dialect)
        if len(what.args) == 1 and dtype is not what.operand and text == parts[0]:
            return converted(text, what.operand, dtype, self.dialect)
        return text

    def _load(self, what: Load, copy: int) -> str:
        tensor = self.nest.tensors[what.tensor]
        storage = self.dialect.storage[tensor.dtype]
        place = self._index(what.index, copy)
        element = storage.pointer_load.format(p=self.names[what.tensor], i=place)
        text = storage.load.format(x=element)
        if not what.guards:
            return text
        return f"{self._test(what.guards, copy)} ? ({text}) : 0"

    # Memory

    def _is_wide(self, tensor: int, index: Index, guards: Guards) -> bool:
        """Whether the neighbours that a thread takes can be moved at once."""
        width = self.mapping.vector
        group = self.group
        storage = self.dialect.storage[self.nest.tensors[tensor].dtype]
        if width == 1 or guards or width not in storage.vectors:
            return False
        along = runs(group.atoms, index, group.inner)
        if len(along) != 1 or along[0].coefficient != 1:
            return False
        if along[0].below != 1 or along[0].extent % width:
            return False
        inner = set(group.inner)
        rest = [c for atom, c in index.terms if atom not in inner]
        return all(c % width == 0 for c in (*rest, index.constant))

    def _wide_load(self, value: int, what: Load) -> None:
        width = self.mapping.vector
        storage = self.dialect.storage[self.nest.tensors[what.tensor].dtype]
        text = self.dialect.vector_load.format(
            n=width,
            v=storage.vectors[width],
            p=self.names[what.tensor],
            i=self._index(what.index, 0),
        )
        self.lines.add(f"const {storage.vectors[width]} w{value} = {text};")
        held = self.dialect.held[self.group.values[value].dtype]
        for copy in range(width):
            element = storage.load.format(x=f"w{value}.{_COMPONENTS[copy]}")
            self.lines.add(f"const {held} {self._name(value, copy)} = {element};")

    def _stores(self, stores: Sequence[Store], condition: str) -> None:
        if not stores:
            return
        if condition:
            self.lines.open(f"if ({condition})")
        for store in stores:
            self._store(store)
        if condition:
            self.lines.close()

    def _store(self, store: Store) -> None:
        tensor = self.nest.tensors[store.tensor]
        storage = self.dialect.storage[tensor.dtype]
        name = self.names[store.tensor]
        copies = self._store_copies(store)
        values = [self._stored(store, copy) for copy in copies]
        if len(values) > 1 and self._is_wide(store.tensor, store.index, store.guards):
            text = self.dialect.vector_store.format(
                n=len(values),
                v=storage.vectors[len(values)],
                p=name,
                i=self._index(store.index, 0),
                x=", ".join(values),
            )
            self.lines.add(f"{text};")
            return
        for copy, value in zip(copies, values, strict=True):
            place = self._index(store.index, copy)
            text = storage.pointer_store.format(p=name, i=place, x=value)
            stream = f"stream_{tensor.dtype.value}"
            if stream in self.dialect.helpers and self._streams(store):
                text = f"{stream}({name} + {place}, {value})"
            test = f"if ({self._test(store.guards, copy)}) " if store.guards else ""
            self.lines.add(f"{test}{text};")

    def _streams(self, store: Store) -> bool:
        return streams(self.nest, self.group, self.mapping, store)

    def _store_copies(self, store: Store) -> range:
        inner = set(self.group.inner)
        is_many = any(atom in inner for atom, _ in store.index.terms)
        return range(self.mapping.vector if is_many else 1)

    def _stored(self, store: Store, copy: int) -> str:
        storage = self.dialect.storage[self.nest.tensors[store.tensor].dtype]
        return storage.store.format(x=self._operand(store.value, copy))

    # Positions

    def _index(self, index: Index, copy: int) -> str:
        """Text of an index for one of the points that a thread takes at once."""
        group = self.group
        parts: list[str] = []
        inner = f"(p + {copy})" if copy else "p"
        for loops, name in (
            (group.outer, "q"),
            (group.rows, "i"),
            (group.serial, "r"),
            (group.inner, inner),
        ):
            for run in runs(group.atoms, index, loops):
                text = name if run.below == 1 else f"{name} / {run.below}"
                if not run.is_first:
                    text = f"{text} % {run.extent}"
                parts.append(scaled(text, run.coefficient))
        for atom, coefficient in index.terms:
            if group.atoms[atom].kind is not AtomKind.LOOP:
                parts.append(scaled(self._derived(atom, copy), coefficient))
        if index.constant or not parts:
            parts.append(str(index.constant))
        return " + ".join(parts)

    def _derived(self, number: int, copy: int) -> str:
        atom = self.group.atoms[number]
        if atom.kind is AtomKind.VALUE:
            return f"({self.index_type}){self._operand(atom.value, copy)}"
        operator = "/" if atom.kind is AtomKind.QUOTIENT else "%"
        return f"({self._index(atom.operand, copy)}) {operator} {atom.divisor}"

    def _test(self, guards: Guards, copy: int) -> str:
        parts: list[str] = []
        for guard in guards:
            low, high = bounds(self.group.atoms, guard.subject)
            text = self._index(guard.subject, copy)
            if low < guard.low:
                parts.append(f"{text} >= {guard.low}")
            if high >= guard.high:
                parts.append(f"{text} < {guard.high}")
        return " && ".join(parts) if parts else "true"


def scaled(text: str, coefficient: int) -> str:
    """A position multiplied by a number."""
    if coefficient == 1:
        return text
    return f"{atomic(text)} * {coefficient}"
