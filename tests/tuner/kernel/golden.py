"""Golden kernel texts and prices, and the command that writes them.

``python -m tests.tuner.kernel.golden`` writes the files after a deliberate change of
the generator or of the cost model. It refuses while `CODEGEN_REVISION` is that of other
texts, or `PRICE_REVISION` that of other prices: plans and measurements are kept under
the revisions, so other texts or prices need another one.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cost_model.catalog import find
from cost_model.roofline import predict
from tests.tuner.kernel.builder import (
    Builder,
    add_layer_norm,
    bias_gelu,
    conv,
    gelu,
    group_norm_silu,
    softmax,
)
from tuner.ir.types import DType
from tuner.kernel.count import work
from tuner.kernel.lower import lower
from tuner.kernel.render import CUDA, OPENCL, render
from tuner.kernel.schedule import default
from tuner.kernel.split_space import split_default
from tuner.plan import (
    CODEGEN_REVISION,
    PRICE_REVISION,
    Family,
    Options,
    Schedule,
)
from tuner.pricing import price, price_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tuner.ir.graph import Graph

FOLDER: Final = Path(__file__).parents[2] / "golden" / "kernel"
HISTORY: Final = FOLDER / "revisions.json"
PRICES: Final = FOLDER / "prices.json"
TARGETS: Final = ("cpu", "a100-80")


def _rotary() -> Graph:
    b = Builder()
    x, c, s = b.input(4, 32, 64), b.input(32, 64), b.input(32, 64)
    sizes, steps = (4, 32, 32), (1, 1, 1)
    low = b.op("slice", x, starts=(0, 0, 0), steps=steps, sizes=sizes)
    high = b.op("slice", x, starts=(0, 0, 32), steps=steps, sizes=sizes)
    turned = b.op("concat", b.op("neg", high), low, axis=2)
    return b.graph(b.op("add", b.op("mul", x, c), b.op("mul", turned, s)))


def _transposed_sum() -> Graph:
    b = Builder()
    turned = b.op("transpose", b.input(1024, 1024), perm=(1, 0))
    return b.graph(b.op("add", turned, b.input(1024, 1024)))


def _heads() -> Graph:
    b = Builder()
    x = b.op("add", b.input(2, 16, 256), b.input(256))
    split = b.op("reshape", x, shape=(2, 16, 4, 64))
    return b.graph(b.op("transpose", split, perm=(0, 2, 1, 3)))


def _embedding() -> Graph:
    b = Builder()
    table, index = b.input(1000, 96), b.input(2, 24, dtype=DType.I64)
    return b.graph(b.op("add", b.op("gather", table, index, axis=0), b.input(24, 96)))


def _optimiser_step() -> Graph:
    b = Builder()
    outputs = []
    for shape in ((64, 32), (17,)):
        p, g, m = (b.input(*shape) for _ in range(3))
        fresh = b.op(
            "add", b.op("mul", m, b.constant(0.9)), b.op("mul", g, b.constant(0.1))
        )
        outputs += [fresh, b.op("sub", p, b.op("mul", fresh, b.constant(1e-3)))]
    return b.graph(*outputs)


def _padded_image() -> Graph:
    b = Builder()
    x = b.op("relu", b.input(2, 3, 9, 9, dtype=DType.BF16))
    around = (0, 0, 1, 1)
    return b.graph(b.op("pad", x, before=around, after=around, value=0.0))


def _quantise() -> Graph:
    b = Builder()
    x = b.op("rint", b.op("mul", b.input(64, 48), b.constant(12.5)))
    clipped = b.op("maximum", b.op("minimum", x, b.constant(127)), b.constant(-128))
    return b.graph(b.op("cast", clipped, to="i8"))


def _column_moments() -> Graph:
    b = Builder()
    x = b.input(200, 96)
    square = b.op("mul", x, x)
    return b.graph(
        b.op("reduce_sum", x, axes=(0,), keepdims=0),
        b.op("reduce_sum", square, axes=(0,), keepdims=0),
    )


def _mask() -> Graph:
    b = Builder()
    x, y = b.input(33, 65, dtype=DType.I32), b.input(65, dtype=DType.I32)
    return b.graph(b.op("where", b.op("less", x, y), x, b.op("floor_mod", x, y)))


def _gemm_gelu_residual() -> Graph:
    b = Builder()
    y = b.op("matmul", b.input(250, 128), b.input(128, 384))
    y = gelu(b, b.op("add", y, b.input(384)))
    return b.graph(b.op("add", y, b.input(250, 384)))


def _gemm_bias_bf16() -> Graph:
    b = Builder()
    x, w = b.input(100, 128, dtype=DType.BF16), b.input(128, 192, dtype=DType.BF16)
    y = b.op("add", b.op("matmul", x, w), b.input(192, dtype=DType.BF16))
    return b.graph(b.op("relu", y))


def _attention_scores() -> Graph:
    b = Builder()
    q, k = (b.input(2, 64, 4, 32, dtype=DType.F16) for _ in range(2))
    heads = b.op("transpose", q, perm=(0, 2, 1, 3))
    keys = b.op("transpose", k, perm=(0, 2, 3, 1))
    scores = b.op("matmul", heads, keys)
    return b.graph(b.op("mul", scores, b.constant(0.125, DType.F16)))


def _conv_two_readers() -> Graph:
    b = Builder()
    x = conv(b, b.input(2, 16, 28, 28), b.input(32, 16, 3, 3), strides=2, pads=1)
    y = b.op("add", b.op("mul", x, b.input(32, 1, 1)), b.input(32, 1, 1))
    return b.graph(x, b.op("relu", y))


def _depthwise() -> Graph:
    b = Builder()
    x, w = b.input(1, 32, 28, 28), b.input(32, 1, 3, 3)
    return b.graph(b.op("relu", conv(b, x, w, b.input(32), pads=1, group=32)))


def _vector_product() -> Graph:
    b = Builder()
    y = b.op(
        "matmul", b.input(500, dtype=DType.BF16), b.input(500, 96, dtype=DType.BF16)
    )
    return b.graph(b.op("sigmoid", y))


def norm(elements: int, dtype: DType = DType.F32) -> Graph:
    """Square root of the sum of squares of all elements."""
    b = Builder()
    x = b.input(elements, dtype=dtype)
    total = b.op("reduce_sum", b.op("mul", x, x), axes=(0,), keepdims=0)
    return b.graph(b.op("sqrt", total))


def _long_row() -> Graph:
    """The mean of a row whose length is a prime number."""
    b = Builder()
    x = b.input(1, 100_003, dtype=DType.BF16)
    total = b.op("reduce_sum", x, axes=(1,), keepdims=1)
    return b.graph(b.op("mul", total, b.constant(1 / 100_003, DType.BF16)))


def _long_columns() -> Graph:
    b = Builder()
    return b.graph(b.op("reduce_max", b.input(200_000, 24), axes=(0,), keepdims=0))


def _moments() -> Graph:
    """Two sums over a matrix whose rows are not as long as parts."""
    b = Builder()
    y = b.op("exp", b.input(3000, 257))
    square = b.op("mul", y, y)
    one, two = (b.op("reduce_sum", z, axes=(0, 1), keepdims=0) for z in (y, square))
    return b.graph(b.op("sub", two, b.op("mul", one, one)))


def _enlarged_backwards() -> Graph:
    """Rows that are repeated, from the last one on: a falling index is divided."""
    b = Builder()
    apart = b.op("reshape", b.input(5, 7), shape=(5, 1, 7))
    rows = b.op("reshape", b.op("expand", apart, shape=(5, 3, 7)), shape=(15, 7))
    back = {"starts": (14, 0), "steps": (-1, 1), "sizes": (15, 7)}
    return b.graph(b.op("exp", b.op("slice", rows, **back)))


SPLITS: Final[Mapping[str, Callable[[], Graph]]] = MappingProxyType(
    {
        "long_columns_split": _long_columns,
        "long_row_bf16_split": _long_row,
        "moments_split": _moments,
        "norm_split": lambda: norm(1_000_000),
    }
)
"""Kernels of two launches, under the first of their split schedules."""

GRAPHS: Final[Mapping[str, Callable[[], Graph]]] = MappingProxyType(
    {
        "add_layer_norm": lambda: add_layer_norm(64, 768),
        "add_layer_norm_f16": lambda: add_layer_norm(64, 768, DType.F16),
        "attention_scores_f16": _attention_scores,
        "bias_gelu": lambda: bias_gelu(64, 3072),
        "column_moments": _column_moments,
        "conv_two_readers": _conv_two_readers,
        "depthwise": _depthwise,
        "embedding": _embedding,
        "gemm_bias_bf16": _gemm_bias_bf16,
        "gemm_gelu_residual": _gemm_gelu_residual,
        "group_norm_silu": lambda: group_norm_silu(2, 32, 16, 8),
        "heads": _heads,
        "mask_i32": _mask,
        "optimiser_step": _optimiser_step,
        "padded_image_bf16": _padded_image,
        "quantise": _quantise,
        "rotary": _rotary,
        "softmax_columns": lambda: softmax(256, 100, axis=0),
        "softmax_long_rows_f64": lambda: softmax(3, 50_000, dtype=DType.F64),
        "softmax_rows": lambda: softmax(100, 130),
        "transposed_sum": _transposed_sum,
        "vector_product_bf16": _vector_product,
    }
)

UNPRICED: Final[Mapping[str, Callable[[], Graph]]] = MappingProxyType(
    {"enlarged_backwards": _enlarged_backwards}
)
"""Kernels whose text alone is held."""

WIDE: Final = Schedule.of(threads=1024, items=1, repeat=1, vector=1)
"""More lanes than a row of `embedding` has points; no default has so many."""


def texts() -> dict[str, str]:
    """File name -> generated text."""
    found: dict[str, str] = {}
    for name, make in (*GRAPHS.items(), *UNPRICED.items()):
        nest = lower(make())
        cpu, gpu = default(nest, find("cpu")), default(nest, find("a100-80"))
        found[f"{name}.cl"] = render(nest, cpu, OPENCL).text
        found[f"{name}.cu"] = render(nest, gpu, CUDA).text
    for name, make in SPLITS.items():
        nest = lower(make())
        cpu, gpu = (split_default(nest, find(target))[0] for target in TARGETS)
        found[f"{name}.cl"] = render(nest, cpu, OPENCL).text
        found[f"{name}.cu"] = render(nest, gpu, CUDA).text
    return found


def digest(files: Mapping[str, str]) -> str:
    """SHA-256 over names and texts."""
    parts = "".join(f"{name}\0{files[name]}\0" for name in sorted(files))
    return hashlib.sha256(parts.encode()).hexdigest()


def prices() -> dict[str, str]:
    """Predicted seconds of kernels, mostly under their defaults, six digits."""
    found: dict[str, str] = {}
    for name, make in GRAPHS.items():
        nest = lower(make())
        for target in TARGETS:
            device = find(target)
            counted = work(nest, default(nest, device), device)
            found[f"{name} {target}"] = f"{predict(counted, device).seconds:.6g}"
    for target in TARGETS:
        counted = work(lower(_embedding()), WIDE, find(target))
        seconds = predict(counted, find(target)).seconds
        found[f"embedding wide {target}"] = f"{seconds:.6g}"
    for name, make in SPLITS.items():
        for target in TARGETS:
            priced = price(make(), Family.REDUCTION, find(target), Options())
            assert priced is not None
            found[f"{name} {target}"] = f"{priced.estimate.seconds:.6g}"
    for target in TARGETS:
        for alone in (False, True):
            call = price_call(_turned_product(), find(target), Options(), alone=alone)
            found[f"call {target} {alone}"] = f"{call.estimate.seconds:.6g}"
    return found


def _turned_product() -> Graph:
    """A transpose, and a product in which its rows are added up."""
    b = Builder()
    turned = b.op("transpose", b.input(96, 64, 48), perm=(2, 1, 0))
    flat = b.op("reshape", turned, shape=(48, 64 * 96))
    return b.graph(b.op("matmul", flat, b.input(64 * 96, 128)))


def history(path: Path = HISTORY) -> dict[str, str]:
    """Digest of the golden texts, or prices, by revision."""
    if not path.exists():
        return {}
    known: dict[str, str] = json.loads(path.read_text())
    return known


def main() -> int:
    """Write the files; 1 if a revision must be raised first."""
    files, known = texts(), history()
    mine = digest(files)
    if known.get(str(CODEGEN_REVISION), mine) != mine:
        sys.stderr.write("texts changed: raise tuner.plan.CODEGEN_REVISION first\n")
        return 1
    priced, cost = history(PRICES), digest(prices())
    if priced.get(str(PRICE_REVISION), cost) != cost:
        sys.stderr.write("prices changed: raise tuner.plan.PRICE_REVISION first\n")
        return 1
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in (*FOLDER.glob("*.cl"), *FOLDER.glob("*.cu")):
        old.unlink()
    for name, text in files.items():
        (FOLDER / name).write_text(text)
    known[str(CODEGEN_REVISION)] = mine
    HISTORY.write_text(json.dumps(known, indent=2) + "\n")
    priced[str(PRICE_REVISION)] = cost
    PRICES.write_text(json.dumps(priced, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
