"""May these nodes be one kernel? The answer is a family, or a reason in one line.

Two rule sets. `reference` is the legality of the fusion patterns, word for word: the
user's nodes whole, no prologue, one anchor a kernel. `full` is what our kernel
families and the libraries can do; in it a user's node may be split.

Legality speaks about one kernel. Whether kernels can be run in some order is the
partition's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cost_model.device import Device
from tuner.fusion.contraction import (
    contraction_fault,
    has_prologue,
    own_family,
    written_fault,
)
from tuner.fusion.library import is_kept, library_fault
from tuner.fusion.merged import merged_fault, merged_library_fault
from tuner.fusion.rows import ROW_LIMIT, RowFaults
from tuner.fusion.traffic import Known
from tuner.fusion.view import View, bits
from tuner.ir.graph import Graph, Node, Region
from tuner.ir.ops import Pattern
from tuner.plan import GENERATED, Family

Profile = Literal["reference", "full"]
LibraryKind = Literal["session", "epilogue"]

ANCHORS: Final = frozenset({Pattern.CONTRACTION, Pattern.WINDOW})
POINTER_BYTES: Final = 8


def most_pointers(device: Device) -> int:
    """Tensors that one launch on a device can take."""
    return device.max_argument_bytes // POINTER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource walls of a kernel: legality, not cost. None is no wall.

    Attributes:
        max_nodes: primitives in a generated kernel; what compiling it may take.
        max_chain_nodes: the same where each element-wise node reads one other node and
            is read by one: the code is long, but only one value lives at a time.
        max_arguments: tensors that a kernel reads or writes.
        max_launch_arguments: the same of a kernel that nobody can take apart: what the
            device can launch at all.
        max_reductions: reductions in a generated kernel.
        library: what one library call can be: `session` runs any small graph (ONNX
            Runtime on a CPU), `epilogue` a contraction with what cuBLAS and cuDNN fuse.
        max_library_anchors: contractions and windows in one library call.
        contractions: whether contractions may run in kernels of ours.
    """

    max_nodes: int | None = None
    max_chain_nodes: int | None = None
    max_arguments: int | None = None
    max_launch_arguments: int | None = None
    max_reductions: int | None = None
    library: LibraryKind = "epilogue"
    max_library_anchors: int = 1
    contractions: bool = True

    @classmethod
    def none(cls) -> Limits:
        """No walls: what the pattern goldens are stated for."""
        return cls()

    @classmethod
    def of_launches(cls, device: Device) -> Limits:
        """The one wall under the rules of the fusion patterns: what can be launched."""
        most = most_pointers(device)
        return cls(max_arguments=most, max_launch_arguments=most)

    @classmethod
    def of(cls, device: Device) -> Limits:
        """The walls of a device.

        96 tensors and 8 reductions are XLA's limits for one GPU fusion
        (`xla/service/gpu/gpu_fusible.cc`); 64 nodes are Inductor's greatest fusion
        (`torch/_inductor/config.py`, `max_fusion_size`).
        """
        on_cpu, most = device.kind == "cpu", most_pointers(device)
        return cls(
            max_nodes=64,
            max_chain_nodes=512,
            max_arguments=min(96, most),
            max_launch_arguments=most,
            max_reductions=8,
            library="session" if on_cpu else "epilogue",
            max_library_anchors=4 if on_cpu else 1,
        )

    def size_fault(self, mask: int, *, is_chain: bool) -> str:
        """Why a generated kernel cannot be as large as this, or ""."""
        count, most = mask.bit_count(), self.max_nodes
        if most is None or count <= most:
            return ""
        if is_chain and count <= (self.max_chain_nodes or 0):
            return ""
        return f"{count} nodes; a kernel may hold {most}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a region cannot be one kernel."""

    reason: str


def check(
    graph: Graph, region: Region, *, profile: Profile, limits: Limits | None = None
) -> Family | Refusal:
    """The family that can run a region, or the reason why none can.

    Args:
        graph: the whole graph.
        region: nodes and outputs; reshapes in it are free.
        profile: which rule set.
        limits: resource walls; none by default.
    """
    rules = Rules(View(graph), profile, limits or Limits.none())
    view = rules.view
    outputs = view.tensor_mask(view.home[name] for name in region.outputs)
    return rules.judge(view.node_mask(region.nodes), outputs)


class Rules:
    """One rule set over one graph, with its answers remembered."""

    def __init__(self, view: View, profile: Profile, limits: Limits) -> None:
        self.view = view
        self.profile = profile
        self.limits = limits
        self.known = Known()
        """What whole results need of operands, for all who count bytes."""
        self._families: dict[int, Family | Refusal] = {}
        self._anchoring = 0
        for pattern in ANCHORS:
            self._anchoring |= view.masks[pattern]
        longest = ROW_LIMIT if profile == "reference" else None
        self._rows = RowFaults(view, longest)

    @property
    def judged(self) -> int:
        """Sets of nodes whose structure has been looked at."""
        return len(self._families)

    def judge(self, mask: int, outputs: int) -> Family | Refusal:
        """Structure and resources of a kernel that writes these outputs."""
        if self.profile == "reference":
            broken = self._split_composite(mask)
            if broken is not None:
                return broken
        found = self.family(mask)
        if isinstance(found, Refusal):
            return found
        if found in (Family.CONTRACTION, Family.WINDOW):
            fault = written_fault(self.view, mask, outputs)
            if fault:
                return Refusal(reason=fault)
        if found not in GENERATED and self._takes_any_number(mask):
            return found
        return self._argument_wall(mask, outputs) or found

    def family(self, mask: int) -> Family | Refusal:
        """Structure alone: which family can run these nodes, whatever is written."""
        found = self._families.get(mask)
        if found is None:
            found = self._families[mask] = self._family(mask)
        return found

    def _family(self, mask: int) -> Family | Refusal:
        masks = self.view.masks
        if not mask:
            return Refusal(reason="there is nothing to compute")
        if mask & masks[Pattern.OPAQUE]:
            return self._opaque(mask)
        anchors = self._anchors(mask)
        if anchors:
            return self._anchored(mask, anchors)
        return self._generated(mask, (mask & masks[Pattern.REDUCTION]).bit_count())

    def _opaque(self, mask: int) -> Family | Refusal:
        if self._is_unit(mask):
            return Family.OPAQUE
        if self._is_one_session(mask):
            return Family.LIBRARY
        names = [n.name for n in self.nodes(mask) if n.op == "opaque"]
        return Refusal(reason=f"{names[0]}: an opaque node must be alone")

    def _is_one_session(self, mask: int) -> bool:
        """Whether the library runs the whole graph, nodes that we do not know too."""
        is_whole = self.profile == "full" and mask == self.view.everything
        return (
            is_whole
            and self.limits.library == "session"
            and all(is_kept(n) for n in self.nodes(mask) if n.op == "opaque")
        )

    def _anchored(self, mask: int, anchors: int) -> Family | Refusal:
        """A library if one can run it, else a kernel of ours."""
        found = self._library(mask, anchors)
        if found is Family.LIBRARY or not self.prepares:
            return found
        wall = self._size_wall(mask, 0)
        if wall is not None:
            return wall
        fault = self._contraction_fault(mask, anchors)
        return Refusal(reason=fault) if fault else own_family(self.view, mask)

    def _contraction_fault(self, mask: int, anchors: int) -> str:
        """Why no kernel of ours can run a region as a contraction, or ""."""
        if not anchors:
            return "nothing in it is contracted"
        fault = merged_fault if anchors > 1 else contraction_fault
        return fault(self.view, mask)

    def _anchors(self, mask: int) -> int:
        """How many contractions and windows a region holds."""
        return (mask & self._anchoring).bit_count()

    @property
    def prepares(self) -> bool:
        """Whether kernels of ours run contractions and what stands in front of them."""
        return self.profile == "full" and self.limits.contractions

    def own_family(self, mask: int, outputs: int) -> Family | None:
        """The family in which a kernel of ours can run what a library can, if any."""
        if (
            not self.prepares
            or self._size_wall(mask, 0) is not None
            or self._contraction_fault(mask, self._anchors(mask))
            or written_fault(self.view, mask, outputs)
            or self._argument_wall(mask, outputs) is not None
        ):
            return None
        return own_family(self.view, mask)

    def has_prologue(self, mask: int) -> bool:
        """Whether a legal region computes something in front of a contraction."""
        return self.family(mask) is Family.CONTRACTION and has_prologue(self.view, mask)

    def _library(self, mask: int, anchors: int) -> Family | Refusal:
        if self._is_unit(mask):
            return Family.LIBRARY
        reference, session = (
            self.profile == "reference",
            self.limits.library == "session",
        )
        if anchors > 1 and not reference and not session:
            fault = merged_library_fault(self.view, mask)
            return Refusal(reason=fault) if fault else Family.LIBRARY
        fault = library_fault(
            self.view,
            mask,
            reference=reference,
            session=session,
            max_anchors=self.limits.max_library_anchors,
            anchors=anchors,
        )
        return Refusal(reason=fault) if fault else Family.LIBRARY

    def _generated(self, mask: int, reductions: int) -> Family | Refusal:
        wall = self._size_wall(mask, reductions)
        if wall is not None:
            return wall
        if not reductions:
            return Family.POINTWISE
        if not self._is_unit(mask):
            fault = self._rows.fault(mask)
            if fault:
                return Refusal(reason=fault)
        return Family.REDUCTION

    def _is_unit(self, mask: int) -> bool:
        """A single node, or a user's node whole under the reference rules."""
        if mask & (mask - 1) == 0:
            return True
        if self.profile != "reference":
            return False
        return mask in self.view.composites.values()

    def _split_composite(self, mask: int) -> Refusal | None:
        for name in dict.fromkeys(self.view.nodes[i].composite for i in bits(mask)):
            if name and self.view.composites[name] & ~mask:
                return Refusal(reason=f"holds only a part of {name}")
        return None

    def _size_wall(self, mask: int, reductions: int) -> Refusal | None:
        most_reductions = self.limits.max_reductions
        fault = self.limits.size_fault(mask, is_chain=False)
        if fault and self.limits.size_fault(mask, is_chain=self._is_chain(mask)):
            return Refusal(reason=fault)
        if most_reductions is not None and reductions > most_reductions:
            return Refusal(
                reason=f"{reductions} reductions; a kernel may hold {most_reductions}"
            )
        return None

    def _is_chain(self, mask: int) -> bool:
        """Whether element-wise nodes form one line and nothing leaves its middle.

        All compute equally many elements: a broadcast at the end of a long line would
        repeat the line for each of its copies.
        """
        view, most = self.view, self.limits.max_chain_nodes or 0
        if mask.bit_count() > most or mask & ~view.masks[Pattern.ELEMENTWISE]:
            return False
        *inner, last = bits(mask)
        types = view.graph.types
        sizes = {types[view.nodes[i].outputs[0]].elements for i in (*inner, last)}
        return (
            len(sizes) == 1
            and not view.before[inner[0]] & mask
            and all(
                view.after[i] == 1 << k and view.before[k] & mask == 1 << i
                for i, k in zip(inner, [*inner[1:], last], strict=True)
            )
        )

    def _takes_any_number(self, mask: int) -> bool:
        """Whether a library takes them: a session does, and a call of one operator."""
        return self.limits.library == "session" or self._is_unit(mask)

    def _argument_wall(self, mask: int, outputs: int) -> Refusal | None:
        limits, written = self.limits, outputs.bit_count()
        most = limits.max_arguments
        if self._is_unit(mask):  # someone has to run it, if it can be run at all
            most = limits.max_launch_arguments
        if most is None or written + self.view.widest * mask.bit_count() <= most:
            return None
        given = {n for i in bits(mask) for n in self.view.given[i]}
        count = written + self.view.needs(mask).bit_count()
        count += sum(not _is_literal(self.view.graph, name) for name in given)
        if count > most:
            return Refusal(reason=f"{count} tensors; a kernel may take {most}")
        return None

    def nodes(self, mask: int) -> Sequence[Node]:
        """The nodes of a mask with the reshapes between them, in graph order."""
        names = self.view.region(mask, 0).nodes
        return [self.view.graph.by_name[name] for name in names]


def _is_literal(graph: Graph, name: str) -> bool:
    return name in graph.constants and graph.constants[name].size == 1
