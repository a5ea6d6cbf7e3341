"""A graph as the fusion planner sees it: computing nodes, home tensors, bit masks.

Bit `i` of a node mask is `View.nodes[i]`; bit `j` of a tensor mask is
`View.tensors[j]`. Reshapes are not nodes here: a reshaped tensor is another name for
its source, its *home*.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import compress
from typing import Final

import numpy as np

from tuner.ir.graph import Graph, Node, Region
from tuner.ir.ops import OPS, Pattern

ALIAS: Final = "reshape"
"""The one operator whose result is its operand under another shape."""
NARROWING: Final = frozenset({"slice", "gather", "pad"})
"""Operators that may need less than the whole of an operand."""
FREE_ELEMENTS: Final = 64
"""Constants and weights of at most this many elements cost nothing to read.

Source: the metric of the fusion patterns, which `tuner.fusion.traffic` counts.
"""


KNOWN_BITS: Final = 256
"""Positions in masks up to so many bits are remembered: a word each, as the numbers
themselves are shared."""
KNOWN_FAR_BITS: Final = 2048
"""The same of longer masks in which few are set."""
KNOWN_FEW: Final = 64
"""So many of a longer mask are few. What is remembered stays below 64 MiB so."""
SHORT_MASK: Final = 64
"""Masks up to so many bits are taken apart where they are; longer ones are cut first,
since each step costs the whole length of a mask, and most are short but far up."""
FEW_BITS: Final = 12
"""Up to so many bits are picked from a mask one by one."""
FEW_FAR_BITS: Final = 32
"""The same of a mask that is wide for what is set in it."""
MOST_TEXT: Final = 1024
"""Masks up to so many bits are written out as text where many are set."""
DENSE: Final = 16
"""Many are set where there is one in so many."""
_FLAGS: Final = bytes(code == ord("1") for code in range(256))
"""A binary text as bytes that are 0 or 1."""


def bits(mask: int) -> Iterator[int]:
    """Positions of the bits that are set, lowest first."""
    length = mask.bit_length()
    if length <= KNOWN_BITS or (
        length <= KNOWN_FAR_BITS and mask.bit_count() <= KNOWN_FEW
    ):
        return iter(_known_bits(mask))
    return _bits(mask)


@lru_cache(maxsize=1 << 14)
def _known_bits(mask: int) -> tuple[int, ...]:
    """The same masks are taken apart again and again: of 17 times 16 on the zoo."""
    return tuple(_bits(mask))


def _bits(mask: int) -> Iterator[int]:
    base = 0
    if mask.bit_length() > SHORT_MASK:
        base = (mask & -mask).bit_length() - 1
        mask >>= base
    count = mask.bit_count()
    if count > FEW_BITS:
        length = mask.bit_length()
        if length <= min(MOST_TEXT, DENSE * count):
            flags = bin(mask)[:1:-1].encode().translate(_FLAGS)
            return compress(range(base, base + length), flags)
        if count > FEW_FAR_BITS:
            data = mask.to_bytes((length + 7) // 8, "little")
            flags_of = np.frombuffer(data, dtype=np.uint8)
            found_at = np.flatnonzero(np.unpackbits(flags_of, bitorder="little"))
            return iter((found_at + base).tolist())
    found = []
    while mask:
        low = mask & -mask
        found.append(base + low.bit_length() - 1)
        mask ^= low
    return iter(found)


def joined(masks: Sequence[int], picked: int) -> int:
    """All bits of the masks at the positions that are set."""
    found = 0
    if picked.bit_length() > SHORT_MASK:  # the loop below costs their whole length
        for i in bits(picked):
            found |= masks[i]
        return found
    while picked:
        low = picked & -picked
        found |= masks[low.bit_length() - 1]
        picked ^= low
    return found


def homes(graph: Graph) -> Mapping[str, str]:
    """The home of every tensor: itself, or what it is a reshape of."""
    found = {name: name for name in graph.types}
    for node in graph.nodes:
        if node.op == ALIAS:
            found[node.outputs[0]] = found[node.inputs[0]]
    return found


class View:
    """Index of one graph. Nothing in it changes after it is made.

    Attributes:
        graph: the graph.
        nodes: nodes that compute, in graph order: all but reshapes and dead nodes.
        tensors: home tensors that these nodes make, in graph order.
        home: every tensor's home.
        maker: node index of every tensor in `tensors`, by position.
        made: tensor mask of what each node makes.
        reads: tensor mask of what each node reads of other nodes.
        given: graph inputs, weights and constants that each node reads, by home.
        readers: node mask of who reads each tensor.
        before, after: node mask of direct predecessors and successors.
        near: node mask of both.
        above, below: node mask of all predecessors and successors.
        delivered: tensor mask of the graph outputs.
        widest: most tensors that one node reads.
        patterns: behaviour of each node under fusion.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.home = homes(graph)
        live = _live(graph)
        self.nodes = tuple(n for n in graph.nodes if n.op != ALIAS and n.name in live)
        self.patterns = tuple(OPS[node.op].pattern for node in self.nodes)
        self.index = {node.name: i for i, node in enumerate(self.nodes)}
        self.tensors = tuple(out for node in self.nodes for out in node.outputs)
        self.place = {name: j for j, name in enumerate(self.tensors)}
        self.maker = tuple(i for i, node in enumerate(self.nodes) for _ in node.outputs)
        self.made = tuple(self.tensor_mask(node.outputs) for node in self.nodes)
        self._link()
        self.delivered = self.tensor_mask(self.home[name] for name in graph.outputs)
        self.bytes = tuple(graph.types[name].bytes for name in self.tensors)
        self._positions = {node.name: k for k, node in enumerate(graph.nodes)}
        self.widest = max(
            (
                reads.bit_count() + len(given)
                for reads, given in zip(self.reads, self.given, strict=True)
            ),
            default=0,
        )
        self._aliases = tuple(self._aliases_of(node) for node in self.nodes)
        self._free = self._free_tensors()
        self.given_bytes = self._given_bytes()
        self.narrowing = self._narrowing()
        self._signatures: dict[object, int] = {}
        self._kinds = tuple(self._signature(node) for node in self.nodes)

    def _link(self) -> None:
        reads, given = [], []
        for node in self.nodes:
            sources = dict.fromkeys(self.home[name] for name in node.inputs)
            reads.append(self.tensor_mask(s for s in sources if s in self.place))
            given.append(tuple(s for s in sources if s not in self.place))
        self.reads = tuple(reads)
        self.given = tuple(given)
        readers = [0] * len(self.tensors)
        before, above = [0] * len(self.nodes), [0] * len(self.nodes)
        after, below = [0] * len(self.nodes), [0] * len(self.nodes)
        for i, mask in enumerate(reads):
            for j in bits(mask):
                readers[j] |= 1 << i
                before[i] |= 1 << self.maker[j]
            for p in bits(before[i]):
                above[i] |= above[p] | 1 << p
                after[p] |= 1 << i
        for i in reversed(range(len(self.nodes))):
            for s in bits(after[i]):
                below[i] |= below[s] | 1 << s
        self.readers = tuple(readers)
        self.before, self.after = tuple(before), tuple(after)
        self.near = tuple(b | a for b, a in zip(before, after, strict=True))
        self.above, self.below = tuple(above), tuple(below)

    def _aliases_of(self, node: Node) -> tuple[str, ...]:
        """Reshapes between the home tensors that a node reads and the node."""
        found: dict[str, None] = {}
        for name in node.inputs:
            maker = self.graph.producer(name)
            while maker is not None and maker.op == ALIAS:
                found[maker.name] = None
                maker = self.graph.producer(maker.inputs[0])
        return tuple(found)

    def _free_tensors(self) -> frozenset[str]:
        fixed = (*self.graph.weights, *self.graph.constants)
        types = self.graph.types
        return frozenset(n for n in fixed if types[n].elements <= FREE_ELEMENTS)

    def _given_bytes(self) -> Mapping[str, int]:
        """Cost of reading each given tensor in full."""
        names = {name for given in self.given for name in given}
        types = self.graph.types
        return {n: 0 if n in self._free else types[n].bytes for n in sorted(names)}

    def _narrowing(self) -> int:
        """Nodes that may need less than the whole of an operand."""
        return sum(1 << i for i, n in enumerate(self.nodes) if n.op in NARROWING)

    def _signature(self, node: Node) -> int:
        """A number that two nodes share when they do the same to the same types."""
        graph = self.graph
        types = [graph.types[name] for name in (*node.inputs, *node.outputs)]
        key = (
            node.op,
            tuple(sorted(node.attributes.items())),
            tuple((t.dtype, t.shape) for t in types),
            tuple(self._tag(name) for name in node.inputs),
        )
        return self._signatures.setdefault(key, len(self._signatures))

    def _tag(self, name: str) -> object:
        """What a kernel may know of a given operand: its value, or what it costs."""
        constant = self.graph.constants.get(self.home[name])
        if constant is not None:
            return (constant.shape, constant.tobytes())
        return self.home[name] in self._free

    def structure(self, mask: int, outputs: int) -> tuple[object, ...]:
        """A key that two kernels share when they are the same but for names.

        Nodes are taken in graph order, tensors are numbered by first use.
        """
        numbers: dict[str, int] = {}
        parts: list[object] = []
        for i in bits(mask):
            node = self.nodes[i]
            home = [self.home[name] for name in node.inputs]
            reads = tuple([numbers.setdefault(n, len(numbers)) for n in home])
            parts.append((self._kinds[i], reads))
            for name in node.outputs:
                numbers[name] = len(numbers)
        written = tuple([numbers[self.tensors[j]] for j in bits(outputs)])
        return (tuple(parts), written)

    def read_bytes(self, mask: int) -> int | None:
        """Bytes that the nodes read; None where that takes a closer look."""
        if mask & self.narrowing:
            return None
        given = {name for i in bits(mask) for name in self.given[i]}
        total = sum(self.given_bytes[name] for name in given)
        return total + sum(self.bytes[j] for j in bits(self.needs(mask)))

    def is_free(self, tensor: str) -> bool:
        """Whether reading this tensor from memory costs nothing."""
        return tensor in self._free

    @cached_property
    def everything(self) -> int:
        """Mask of all nodes."""
        return (1 << len(self.nodes)) - 1

    @cached_property
    def masks(self) -> Mapping[Pattern, int]:
        """Mask of the nodes of each behaviour."""
        found = dict.fromkeys(Pattern, 0)
        for i, pattern in enumerate(self.patterns):
            found[pattern] |= 1 << i
        return found

    @cached_property
    def composites(self) -> Mapping[str, int]:
        """Node mask of every user's node that was taken apart, by its name."""
        found: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            if node.composite:
                found[node.composite] = found.get(node.composite, 0) | 1 << i
        return found

    def tensor_mask(self, names: Iterable[str]) -> int:
        """Mask of home tensors; names that no node makes are left out."""
        mask = 0
        for name in names:
            place = self.place.get(name)
            if place is not None:
                mask |= 1 << place
        return mask

    def node_mask(self, names: Iterable[str]) -> int:
        """Mask of nodes; reshapes and dead nodes are left out."""
        mask = 0
        for name in names:
            place = self.index.get(name)
            if place is not None:
                mask |= 1 << place
        return mask

    def has(self, mask: int, pattern: Pattern) -> bool:
        """Whether a node of the mask behaves so."""
        return bool(mask & self.masks[pattern])

    def makes(self, mask: int) -> int:
        """Tensors that the nodes make."""
        return joined(self.made, mask)

    def is_convex(self, mask: int) -> bool:
        """Whether no path between two of these nodes leads through another."""
        above = below = 0
        for i in bits(mask):
            above |= self.above[i]
            below |= self.below[i]
        return not above & below & ~mask

    def needs(self, mask: int) -> int:
        """Tensors that the nodes read and do not make."""
        return joined(self.reads, mask) & ~self.makes(mask)

    def wanted(self, mask: int) -> int:
        """Tensors that the nodes make and that others read or the graph delivers."""
        made = self.makes(mask)
        found = made & self.delivered
        for j in bits(made & ~found):
            if self.readers[j] & ~mask:
                found |= 1 << j
        return found

    def trimmed(self, mask: int, outputs: int) -> int:
        """The nodes of the mask that the outputs depend on, within the mask."""
        kept = 0
        wanted = outputs
        for i in reversed(list(bits(mask))):
            if self.made[i] & wanted:
                kept |= 1 << i
                wanted |= self.reads[i]
        return kept

    def region(self, mask: int, outputs: int) -> Region:
        """The region of these nodes with the reshapes that they read through."""
        names: dict[str, None] = {}
        for i in bits(mask):
            for alias in self._aliases[i]:
                names[alias] = None
            names[self.nodes[i].name] = None
        ordered = sorted(names, key=self._positions.__getitem__)
        return Region(
            nodes=tuple(ordered),
            outputs=tuple(self.tensors[j] for j in bits(outputs)),
        )


def _live(graph: Graph) -> frozenset[str]:
    wanted = set(graph.outputs)
    live = set()
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            wanted.update(node.inputs)
            live.add(node.name)
    return frozenset(live)
