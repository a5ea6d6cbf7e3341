"""What a language must tell the renderer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tuner.ir.types import DType
    from tuner.plan import Language


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """How elements of one dtype lie in memory.

    Attributes:
        type: of an element behind a pointer.
        vectors: vector widths that can be loaded at once -> type.
        load: expression from the stored element `x` to the held value.
        store: expression from the held value `x` to the stored element.
        pointer_load, pointer_store: instead of plain access, forms in pointer `p`,
            position `i` and value `x`.
    """

    type: str
    vectors: Mapping[int, str]
    load: str = "{x}"
    store: str = "{x}"
    pointer_load: str = "{p}[{i}]"
    pointer_store: str = "{p}[{i}] = {x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One language of kernels.

    Attributes:
        prologue: text in front of every kernel.
        kernel: signature, in `name`, `arguments`, `threads`, `x`, `y`.
        input, output: pointer argument, in `type` and `name`.
        helper: qualifier of helper functions.
        shared: qualifier of on-chip arrays; shared_pointer: of pointers to them.
        wide_rows: qualifier of on-chip arrays whose rows begin at 16 bytes, so that
            neighbours can be read at once.
        thread_x, thread_y, block: indices.
        barrier: of all threads of a block.
        ask: statement that has the line of position `i` of pointer `p` fetched; empty
            where that does not pay.
        packs_lanes: whether neighbouring threads are packed in vectors by the compiler
            of a CPU, so that a loop should end for all of them at once.
        unroll: line in front of a loop, in `n`.
        held: type of a value by dtype.
        index: type of positions by width in bits.
        storage: by dtype.
        vector_load, vector_store: access to `n` neighbours of storage type `v`, `t`
            as a whole, in pointer `p`, position `i` and value `x`.
        subgroup: threads whose values can be exchanged directly; 0 if not known.
        subgroup_least: fewest lanes that may use it.
        subgroup_guard: preprocessor condition for it; empty if always there.
        subgroup_attribute: kernel attribute in `n` that asks for it.
        shuffle: value `x` of the thread whose number differs by the bits `d`.
        spelling: function of the kernel language -> dtype -> template.
        helpers: helper functions by name: text in the held types.
        infinity: positive infinity by dtype; not_a_number likewise.
        multiply: call that adds the product of two fragments `a` and `b` to the sums
            `c`, by dtype of the factors; empty where there are no tensor cores.
        pair: two neighbours of 16 bits in pointer `p` and position `i`, as one word.
        word: type of such a pair; wide_word: of eight neighbours.
    """

    language: Language
    prologue: str
    kernel: str
    input: str
    output: str
    helper: str
    shared: str
    shared_pointer: str
    wide_rows: str
    thread_x: str
    thread_y: str
    block: str
    barrier: str
    ask: str
    packs_lanes: bool
    unroll: str
    held: Mapping[DType, str]
    index: Mapping[int, str]
    storage: Mapping[DType, Storage]
    vector_load: str
    vector_store: str
    subgroup: int
    subgroup_least: int
    subgroup_guard: str
    subgroup_attribute: str
    shuffle: str
    spelling: Mapping[str, Mapping[DType, str]]
    helpers: Mapping[str, str]
    infinity: Mapping[DType, str]
    not_a_number: Mapping[DType, str]
    multiply: Mapping[DType, str]
    pair: str
    word: str
    wide_word: str
