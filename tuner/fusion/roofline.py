"""The time of a kernel as XLA's priority fusion estimates it, from a few numbers.

    seconds = launch + compute + memory - 0.95 min(compute, memory)

Source: openxla/xla, `xla/service/gpu/model/gpu_performance_model.cc`,
`gpu_performance_model_base.cc` and `gpu_hlo_cost_analysis.cc`; cycles an element from
its operation profile of an H100.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tuner.fusion.view import View, bits
from tuner.ir.inference import ints, whole
from tuner.ir.ops import Pattern

LAUNCH_SECONDS: Final = 1e-6
"""`GpuPerformanceModelBase::kKernelLaunchOverhead`: the same for every kernel."""
OVERLAP: Final = 0.95
"""`kMemoryComputeParallelism`."""
SECTOR_BYTES: Final = 64
"""An uncoalesced read of one element moves so many bytes."""
BLOCK_BYTES_PER_CYCLE: Final = 32
"""Most that one block draws from memory in a cycle."""
BLOCK_ELEMENTS: Final = 512
"""Results of one block: 128 threads, 4 elements each."""
SPLIT_CONCAT_CYCLES: Final = 400
"""Of a concatenation whose seam lies inside a warp: both branches run."""
_WARP: Final = 32
_LANES: Final = 128
_CYCLES: Final = MappingProxyType(
    {
        "div": 19,
        "floor_div": 19,
        "mod": 19,
        "fmod": 19,
        "floor_mod": 19,
        "reciprocal": 19,
        "exp": 79,
        "sigmoid": 98,
        "log": 166,
        "tanh": 467,
        "erf": 467,
        "pow": 510,
        "concat": 6,
    }
)
_CYCLES_OF_OTHERS: Final = 7
_CYCLES_OF_COPIES: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What XLA asks of a device; by default an H100 SXM5."""

    multiprocessors: int = 132
    clock_hz: float = 1.98e9
    dram_bytes_per_second: float = 3.35e12


A6000: Final = Roofline(
    multiprocessors=84, clock_hz=1.41e9, dram_bytes_per_second=768e9
)
"""RTX A6000: the device of XLA's own performance tests."""


class KernelTimes:
    """Estimates kernels of one graph; what a node costs is counted once."""

    def __init__(self, view: View, device: Roofline) -> None:
        self.view = view
        self.device = device
        types = view.graph.types
        self.elements = [types[n.outputs[0]].elements for n in view.nodes]
        self.walked = [self._walked(i) for i in range(len(view.nodes))]
        self.cycles = [self._cycles(i) for i in range(len(view.nodes))]
        self._times: dict[tuple[int, int], float] = {}
        self._turning = self._transposes()
        self._repeating = self._broadcasts()

    def seconds(self, mask: int, outputs: int) -> float:
        """Time of one kernel, with its launch."""
        key = (mask, outputs)
        if key not in self._times:
            self._times[key] = self._seconds(mask, outputs)
        return self._times[key]

    def _seconds(self, mask: int, outputs: int) -> float:
        view, device = self.view, self.device
        computed = self._computed(mask)
        cores = device.multiprocessors * _LANES * device.clock_hz
        compute = sum(computed[i] * self.cycles[i] for i in computed) / cores
        written = sum(view.bytes[j] for j in bits(outputs))
        widest = max(computed.values())
        blocks = max(1, -(-widest // BLOCK_ELEMENTS))
        rate = min(
            device.dram_bytes_per_second,
            blocks * device.clock_hz * BLOCK_BYTES_PER_CYCLE,
        )
        memory = (self._read_bytes(mask) + written) / rate
        return LAUNCH_SECONDS + compute + memory - OVERLAP * min(compute, memory)

    def _computed(self, mask: int) -> dict[int, int]:
        """Elements that each node computes: once for each of a broadcast's copies.

        What comes behind a reduction is computed once a row.
        """
        view, inside = self.view, list(bits(mask))
        if len(inside) == 1 or not mask & self._repeating:
            return {i: self.walked[i] for i in inside}
        rows = mask & view.masks[Pattern.REDUCTION]
        for i in inside if rows else ():
            if view.before[i] & rows:
                rows |= 1 << i
        found: dict[int, int] = {}
        for i in reversed(inside):
            repeating = view.after[i] & mask & view.masks[Pattern.ELEMENTWISE]
            counts = [found[k] for k in bits(repeating)] if not rows >> i & 1 else []
            found[i] = max(self.walked[i], *counts, 0)
        return found

    def _read_bytes(self, mask: int) -> float:
        """Bytes that are read, with what coalescing wastes."""
        view = self.view
        turned = 0
        if mask & view.masks[Pattern.REDUCTION]:
            for i in bits(mask & self._turning):
                turned |= view.above[i] | 1 << i
        given: dict[str, float] = {}
        total = 0.0
        for i in bits(mask):
            for name in view.given[i]:
                factor = self._waste(name) if turned >> i & 1 else 1.0
                given[name] = max(given.get(name, 0.0), factor * self._needed(i, name))
        for j in bits(view.needs(mask)):
            wasted = bool(view.readers[j] & mask & turned)
            factor = self._waste(view.tensors[j]) if wasted else 1.0
            total += factor * view.bytes[j]
        return total + sum(given.values())

    def _needed(self, i: int, name: str) -> int:
        """Of a tensor that a node narrows only what it delivers."""
        size = self.view.given_bytes[name]
        if not self.view.narrowing >> i & 1:
            return size
        node, types = self.view.nodes[i], self.view.graph.types
        return min(size, types[node.outputs[0]].bytes)

    def _waste(self, name: str) -> float:
        return SECTOR_BYTES / self.view.graph.types[name].dtype.bytes

    def _broadcasts(self) -> int:
        """Element-wise nodes that compute more elements than some operand has."""
        view, types, found = self.view, self.view.graph.types, 0
        for i in bits(view.masks[Pattern.ELEMENTWISE]):
            if any(types[n].elements < self.elements[i] for n in view.nodes[i].inputs):
                found |= 1 << i
        return found

    def _transposes(self) -> int:
        """Transposes that move the innermost axis: behind them reads are scattered."""
        found = 0
        for i, node in enumerate(self.view.nodes):
            if node.op == "transpose":
                perm = ints(node.attributes, "perm")
                if perm and perm[-1] != len(perm) - 1:
                    found |= 1 << i
        return found

    def _walked(self, i: int) -> int:
        """Elements that a node goes through: of a reduction, its operand's."""
        view = self.view
        if view.patterns[i] is not Pattern.REDUCTION:
            return self.elements[i]
        return view.graph.types[view.nodes[i].inputs[0]].elements

    def _cycles(self, i: int) -> int:
        view, node = self.view, self.view.nodes[i]
        if node.op == "concat":
            axis = whole(node.attributes, "axis")
            seam = view.graph.types[node.inputs[0]].static_shape[axis]
            return (
                SPLIT_CONCAT_CYCLES if axis > 0 and seam % _WARP else _CYCLES["concat"]
            )
        if view.patterns[i] is Pattern.INJECTIVE:
            return _CYCLES_OF_COPIES
        return _CYCLES.get(node.op, _CYCLES_OF_OTHERS)
