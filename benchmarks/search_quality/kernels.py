"""The kernels whose schedule spaces are recorded, and all schedules of each."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Any, Final

from onnx import parser as onnx_parser

from tuner.assembly import kernel_sources
from tuner.ir.graph import Region
from tuner.kernel.lower import lower
from tuner.kernel.mapping import map_groups
from tuner.kernel.schedule import is_legal, space
from tuner.model import Model, load
from tuner.plan import GENERATED, Choice, Family, Schedule
from tuner.search.kernels import KernelState, new_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cost_model.device import Device
    from tuner.pipeline import Planner

KERNELS: Final = {
    "matmul-256x256x256": (
        "float[256,256] X, float[256,256] W",
        "Y = MatMul(X, W)",
        "[256,256]",
    ),
    "matmul-bias-relu-128x512x384": (
        "float[128,512] X, float[512,384] W, float[384] B",
        "A = MatMul(X, W)  C = Add(A, B)  Y = Relu(C)",
        "[128,384]",
    ),
    "batched-matmul-8x64x64x64": (
        "float[8,64,64] X, float[8,64,64] W",
        "Y = MatMul(X, W)",
        "[8,64,64]",
    ),
    "conv-relu-32x28x28": (
        "float[1,32,28,28] X, float[32,32,3,3] W",
        "A = Conv<pads=[1,1,1,1]>(X, W)  Y = Relu(A)",
        "[1,32,28,28]",
    ),
    "matmul-64x1024x1024": (
        "float[64,1024] X, float[1024,1024] W",
        "Y = MatMul(X, W)",
        "[64,1024]",
    ),
    "batched-matmul-12x128x64x128": (
        "float[12,128,64] X, float[12,64,128] W",
        "Y = MatMul(X, W)",
        "[12,128,128]",
    ),
    "conv-1x1-64x56x56": (
        "float[1,64,56,56] X, float[64,64,1,1] W",
        "Y = Conv(X, W)",
        "[1,64,56,56]",
    ),
    "conv-stride-64x56x56": (
        "float[1,64,56,56] X, float[128,64,3,3] W",
        "Y = Conv<pads=[1,1,1,1], strides=[2,2]>(X, W)",
        "[1,128,28,28]",
    ),
    "bias-gelu-1024x3072": (
        "float[1024,3072] X, float[3072] B",
        "A = Add(X, B)  Y = Gelu(A)",
        "[1024,3072]",
    ),
    "swiglu-1024x4096": (
        "float[1024,4096] X, float[1024,4096] G",
        "S = Sigmoid(G)  A = Mul(G, S)  Y = Mul(A, X)",
        "[1024,4096]",
    ),
    "transpose-2048x1024": (
        "float[2048,1024] X",
        "T = Transpose<perm=[1,0]>(X)  Y = Tanh(T)",
        "[1024,2048]",
    ),
    "scale-shift-relu-8x256x56x56": (
        "float[8,256,56,56] X, float[256,1,1] S, float[256,1,1] B",
        "A = Mul(X, S)  C = Add(A, B)  Y = Relu(C)",
        "[8,256,56,56]",
    ),
    "row-sums-2048x2048": (
        "float[2048,2048] X",
        "A = Mul(X, X)  Y = ReduceSum<keepdims=1>(A, rows)",
        "[2048,1]",
    ),
    "column-sums-2048x1024": (
        "float[2048,1024] X",
        "A = Abs(X)  Y = ReduceSum<keepdims=1>(A, columns)",
        "[1,1024]",
    ),
    "channel-means-8x256x28x28": (
        "float[8,256,28,28] X",
        "A = Relu(X)  Y = ReduceMean<keepdims=1>(A, planes)",
        "[8,256,1,1]",
    ),
    "column-softmax-512x1024": (
        "float[512,1024] X",
        "Y = Softmax<axis=0>(X)",
        "[512,1024]",
    ),
    "softmax-4096x128": ("float[4096,128] X", "Y = Softmax<axis=-1>(X)", "[4096,128]"),
    "softmax-256x2048": ("float[256,2048] X", "Y = Softmax<axis=-1>(X)", "[256,2048]"),
    "layer-norm-1024x768": (
        "float[1024,768] X, float[1024,768] R, float[768] S, float[768] B",
        "A = Add(X, R)  Y = LayerNormalization<axis=-1>(A, S, B)",
        "[1024,768]",
    ),
    "layer-norm-128x4096": (
        "float[128,4096] X, float[4096] S, float[4096] B",
        "Y = LayerNormalization<axis=-1>(X, S, B)",
        "[128,4096]",
    ),
    "rms-norm-1024x1024": (
        "float[1024,1024] X, float[1024] S",
        "Y = RMSNormalization<axis=-1>(X, S)",
        "[1024,1024]",
    ),
    "log-softmax-1024x1000": (
        "float[1024,1000] X",
        "Y = LogSoftmax<axis=-1>(X)",
        "[1024,1000]",
    ),
}
"""Kernels by name: inputs, operators, shape of the result. Those whose schedules differ
most come first, so that a recording that has to end early has the spaces that count."""
FLAGS: Final = ("persistent", "stream", "tensor")
"""Knobs that are no powers of two."""
FINER: Final[Mapping[str, tuple[int, ...]]] = {
    "unroll": (1, 2, 4, 8, 16),
    "rows": (2, 4, 8),
    "columns": (1, 2, 4),
    "depth": (8, 16, 32, 64),
}
"""Values beside those that a tuning run would try."""
VECTORS: Final = (1, 2, 4)
"""Likewise, for kernels that keep no row."""
TILE_LANES: Final = (8, 16, 32)
"""Likewise, for contractions."""
_AXES: Final = "<int64[1] rows = {1}, int64[1] columns = {0}, int64[2] planes = {2, 3}>"


def model_of(name: str) -> Model:
    """The kernel's model."""
    inputs, body, shape = KERNELS[name]
    text = (
        f'<ir_version: 10, opset_import: ["":23]>\n'
        f"g ({inputs}) => (float{shape} Y) {_AXES} {{ {body} }}"
    )
    return load(onnx_parser.parse_model(text).SerializeToString())


def kernel_of(planner: Planner) -> KernelState:
    """The generated kernel that computes most of the model."""

    def size(choice: Choice) -> int:
        return len(choice.region.nodes) if choice.family in GENERATED else 0

    choice = max(planner.solve(_generated(planner)).partition.choices, key=size)
    return _state(planner, choice)


def kernel_named(planner: Planner, name: str) -> KernelState | None:
    """The kernel of this fingerprint, though no plan may use it any more."""
    family = Family(name.partition(":")[0])
    nodes = planner.model.graph.nodes
    for size in range(len(nodes), 0, -1):
        for first in range(len(nodes) - size + 1):
            run = nodes[first : first + size]
            made = [output for node in run for output in node.outputs]
            for outputs in itertools.chain(
                itertools.combinations(made, 1), itertools.combinations(made, 2)
            ):
                region = Region(nodes=tuple(n.name for n in run), outputs=outputs)
                choice = Choice(region=region, family=family, seconds=0.0)
                if planner.assembler.form(choice).fingerprint == name:
                    return _state(planner, choice)
    return None


def text_of(state: KernelState, schedule: Schedule, device: Device) -> str:
    """A name of the program that is generated for a device under a schedule."""
    language = "cuda" if device.kind == "gpu" else "opencl"
    sources = kernel_sources(state.form, schedule)
    (source,) = (each for each in sources if each.language == language)
    launched = [(each.text, each.grid, each.block) for each in (*source.before, source)]
    return hashlib.sha256(repr(launched).encode()).hexdigest()[:12]


def _state(planner: Planner, choice: Choice) -> KernelState:
    form = planner.assembler.form(choice)
    return new_state(form, choice, planner.device, planner.options, seed=0)


def fine_space(state: KernelState, device: Device) -> tuple[Schedule, ...]:
    """Every legal schedule whose knobs are powers of two; the default comes first.

    Schedules that lead to the same mapping are listed once.
    """
    nest = lower(state.form.graph)
    found: dict[object, Schedule] = {}
    for schedule in (*space(nest, device), *_grid(space(nest, device))):
        if is_legal(nest, schedule, device):
            found.setdefault(map_groups(nest, schedule), schedule)
    return tuple(found.values())


def _grid(tried: tuple[Schedule, ...]) -> Iterator[Schedule]:
    """All combinations of the powers of two between the least and the greatest."""
    knobs = {name: {s[name] for s in tried} for name, _ in tried[0].knobs}
    values = {
        name: sorted(seen if name in FLAGS else seen | _between(name, seen))
        for name, seen in knobs.items()
    }
    if "persistent" not in values and "depth" not in values:
        values["vector"] = sorted({*values["vector"], *VECTORS})
    if "depth" in values:
        values["lanes"] = sorted({*values["lanes"], *TILE_LANES})
    for chosen in itertools.product(*values.values()):
        schedule = dict(zip(values, chosen, strict=True))
        whole_teams = schedule["threads"] % schedule.get("lanes", 1) == 0
        keeps_unrolled = schedule.get("persistent") and schedule.get("unroll", 1) > 1
        if whole_teams and not keeps_unrolled:
            yield Schedule.of(**schedule)


def _between(name: str, seen: set[int]) -> set[int]:
    low, high = min(seen), max(seen)
    powers = {2**n for n in range(high.bit_length()) if low <= 2**n <= high}
    return powers | set(FINER.get(name, ()))


def _generated(planner: Planner) -> Any:
    """A price under which whole generated kernels win."""

    def price(region: Any, family: Any) -> float:
        seconds = planner.price(region, family)
        return seconds if family in GENERATED else 1.0 + seconds

    return price
