"""Each rule fires where it should, and the result means the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.tuner.rewrite.graphs import Builder, feeds, outputs, run
from tuner.ir.fingerprint import canonicalize
from tuner.ir.graph import Graph
from tuner.ir.types import DType
from tuner.rewrite import RULES, Rewritten, simplify
from tuner.rewrite.driver import rewrite


def simplified(graph: Graph, *, training: bool = False) -> Rewritten:
    """The simplified graph; it computes what the graph computes."""
    result = simplify(graph, training=training)
    values = feeds(graph)
    for found, wanted in zip(run(result, values), outputs(graph, values), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    assert result.graph.outputs == graph.outputs
    return result


def ops(rewritten: Rewritten) -> list[str]:
    """Operators of the main graph, in order."""
    return [node.op for node in rewritten.graph.nodes]


def same_constants(b: Builder) -> tuple[str, ...]:
    """A constant expression."""
    total = b.add("add", b.constant([1.0, 2.0]), b.constant([3.0, 4.0]))
    return (b.add("mul", b.given(3, 2), total),)


def twice_the_same(b: Builder) -> tuple[str, ...]:
    """Equal work on one tensor."""
    x = b.given(3)
    return (b.add("add", b.add("exp", x), b.add("exp", x)),)


def times_one(b: Builder) -> tuple[str, ...]:
    """A product with one."""
    return (b.add("exp", b.add("mul", b.given(3), b.constant([[1.0]]))),)


def known_choice(b: Builder) -> tuple[str, ...]:
    """A selection with a known condition."""
    x, y = b.given(2, 3), b.given(3)
    return (b.add("where", b.constant(False, DType.BOOL), b.add("exp", x), y),)


def square(b: Builder) -> tuple[str, ...]:
    """A power of two."""
    return (b.add("pow", b.given(3), b.constant(2.0)),)


def cast_there_and_back(b: Builder) -> tuple[str, ...]:
    """A widening cast and its inverse."""
    wide = b.add("cast", b.add("exp", b.given(3)), to="f64")
    return (b.add("exp", b.add("cast", wide, to="f32")),)


def minus_minus(b: Builder) -> tuple[str, ...]:
    """A double negation."""
    return (b.add("exp", b.add("neg", b.add("neg", b.given(3)))),)


def relu_relu(b: Builder) -> tuple[str, ...]:
    """An operator that changes nothing the second time."""
    return (b.add("relu", b.add("relu", b.given(3))),)


def reshape_reshape(b: Builder) -> tuple[str, ...]:
    """A reshape and its inverse."""
    flat = b.add("reshape", b.add("exp", b.given(2, 3)), shape=(6,))
    return (b.add("exp", b.add("reshape", flat, shape=(2, 3))),)


def transpose_transpose(b: Builder) -> tuple[str, ...]:
    """A transpose and its inverse."""
    turned = b.add("transpose", b.add("exp", b.given(2, 3, 4)), perm=(1, 2, 0))
    return (b.add("exp", b.add("transpose", turned, perm=(2, 0, 1))),)


def transpose_units_transpose(b: Builder) -> tuple[str, ...]:
    """A transpose and its inverse with a new unit axis between them."""
    turned = b.add("transpose", b.add("exp", b.given(2, 3)), perm=(1, 0))
    spread = b.add("reshape", turned, shape=(3, 1, 2))
    return (b.add("exp", b.add("transpose", spread, perm=(2, 1, 0))),)


def transpose_work_transpose(b: Builder) -> tuple[str, ...]:
    """Element-wise work between a transpose and its inverse."""
    turned = b.add("transpose", b.add("exp", b.given(2, 3, 4)), perm=(0, 2, 1))
    shifted = b.add("add", b.add("tanh", turned), b.weight(3))
    scaled = b.add("mul", shifted, b.constant(0.5))
    return (b.add("exp", b.add("transpose", scaled, perm=(0, 2, 1))),)


def reshape_work_reshape(b: Builder) -> tuple[str, ...]:
    """Element-wise work between a reshape and its inverse."""
    spread = b.add("reshape", b.add("exp", b.given(6, 4)), shape=(2, 3, 4))
    shifted = b.add("mul", b.add("add", spread, b.weight(4)), b.constant([[[0.5]]]))
    return (b.add("exp", b.add("reshape", shifted, shape=(6, 4))),)


def reduced_transpose(b: Builder) -> tuple[str, ...]:
    """A reduction behind a transpose."""
    turned = b.add("transpose", b.given(2, 3, 4), perm=(0, 2, 1))
    return (b.add("reduce_max", turned, axes=(2,), keepdims=1),)


def expand_expand(b: Builder) -> tuple[str, ...]:
    """An expand of an expand, delivered as it is."""
    once = b.add("expand", b.add("exp", b.given(3, 1)), shape=(3, 4))
    return (b.add("expand", once, shape=(2, 3, 4)),)


def expanded_operand(b: Builder) -> tuple[str, ...]:
    """An operand that is expanded to the shape of the other."""
    x = b.given(2, 3)
    return (b.add("add", x, b.add("expand", b.add("exp", b.given(3)), shape=(2, 3))),)


def expanded_batch(b: Builder) -> tuple[str, ...]:
    """A matrix that is expanded to the other's batch."""
    weights = b.add("expand", b.add("exp", b.given(1, 4, 5)), shape=(2, 4, 5))
    return (b.add("matmul", b.given(2, 3, 4), weights),)


def leading_units(b: Builder) -> tuple[str, ...]:
    """A vector with unit axes in front."""
    row = b.add("reshape", b.weight(3), shape=(1, 3))
    return (b.add("add", b.given(2, 3), row),)


def slice_slice(b: Builder) -> tuple[str, ...]:
    """A slice of a slice, the second backwards."""
    once = b.add("slice", b.given(8, 3), starts=(1, 0), steps=(2, 1), sizes=(3, 3))
    return (b.add("slice", once, starts=(2, 0), steps=(-1, 1), sizes=(2, 3)),)


def slice_concat(b: Builder) -> tuple[str, ...]:
    """A slice that undoes a concat."""
    both = b.add("concat", b.given(2, 3), b.add("exp", b.given(4, 3)), axis=0)
    return (
        b.add("neg", b.add("slice", both, starts=(2, 0), steps=(1, 1), sizes=(4, 3))),
    )


def slice_transpose(b: Builder) -> tuple[str, ...]:
    """Two slices of a transposed tensor."""
    x = b.add("transpose", b.given(4, 2, 3), perm=(2, 0, 1))
    cut = [
        b.add("slice", x, starts=(k, 0, 0), steps=(1, 1, 1), sizes=(1, 4, 2))
        for k in range(2)
    ]
    return tuple(b.add("neg", part) for part in cut)


def slice_squeeze(b: Builder) -> tuple[str, ...]:
    """A slice of a tensor without one of its unit axes."""
    x = b.add("transpose", b.given(4, 1, 3), perm=(2, 1, 0))
    flat = b.add("reshape", x, shape=(3, 4, 1))
    cut = b.add("slice", flat, starts=(1, 3, 0), steps=(1, -1, 1), sizes=(1, 2, 1))
    return (b.add("neg", cut),)


def heads_of_batches(b: Builder) -> tuple[str, ...]:
    """Transposes before and after two axes are merged."""
    x = b.add("transpose", b.given(2, 3, 4, 5), perm=(0, 2, 1, 3))
    flat = b.add("reshape", x, shape=(8, 3, 5))
    return (b.add("neg", b.add("transpose", flat, perm=(0, 2, 1))),)


def batches_and_back(b: Builder) -> tuple[str, ...]:
    """Axes merged and split again, with a transpose of the others between."""
    flat = b.add("reshape", b.add("exp", b.given(2, 4, 3, 5)), shape=(8, 3, 5))
    turned = b.add("transpose", flat, perm=(0, 2, 1))
    return (b.add("neg", b.add("reshape", turned, shape=(2, 4, 5, 3))),)


def clamp(b: Builder) -> tuple[str, ...]:
    """Selections that bound a tensor from below and from above."""
    x, low, high = b.given(2, 3), b.constant(0.0), b.constant(0.75)
    above = b.add("where", b.add("less", x, low), low, x)
    return (b.add("where", b.add("less", high, above), high, above),)


def positive(b: Builder) -> tuple[str, ...]:
    """The larger of zero and a tensor."""
    return (b.add("maximum", b.constant(0.0), b.given(3)),)


def concat_slices(b: Builder) -> tuple[str, ...]:
    """A concat that undoes a split."""
    x = b.add("exp", b.given(6, 3))
    one = b.add("slice", x, starts=(0, 0), steps=(1, 1), sizes=(2, 3))
    two = b.add("slice", x, starts=(2, 0), steps=(1, 1), sizes=(4, 3))
    return (b.add("neg", b.add("concat", one, two, axis=0)),)


def wide_concat(b: Builder) -> tuple[str, ...]:
    """A concat of more parts than a kernel may read."""
    return (b.add("concat", *(b.given(1 + k % 2) for k in range(130)), axis=0),)


def idle_pad(b: Builder) -> tuple[str, ...]:
    """A pad by nothing."""
    padded = b.add("pad", b.given(3), before=(0,), after=(0,), value=1.0)
    return (b.add("exp", padded),)


def known_gather(b: Builder) -> tuple[str, ...]:
    """A gather at one known index, counted from the end."""
    return (b.add("gather", b.given(4, 3), b.constant(-1, DType.I64), axis=0),)


def unit_reduction(b: Builder) -> tuple[str, ...]:
    """A reduction over a unit axis."""
    total = b.add("reduce_sum", b.given(3, 1), axes=(1,), keepdims=0)
    return (b.add("exp", total),)


def conv(b: Builder, *operands: str) -> str:
    """A plain convolution."""
    return b.add(
        "conv", *operands, strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), group=1
    )


def conv_scale(b: Builder) -> tuple[str, ...]:
    """A convolution with bias, and a factor per channel."""
    y = conv(b, b.given(1, 4, 5, 5), b.weight(8, 4, 3, 3), b.weight(8))
    return (b.add("mul", y, b.add("exp", b.weight(8, 1, 1))),)


def conv_shift(b: Builder) -> tuple[str, ...]:
    """A convolution without bias, minus a value per channel."""
    y = conv(b, b.given(1, 4, 5, 5), b.weight(8, 4, 3, 3))
    return (b.add("sub", y, b.add("exp", b.weight(1, 8, 1, 1))),)


def matmul_scale(b: Builder) -> tuple[str, ...]:
    """A matrix product and a factor per column."""
    return (b.add("mul", b.weight(5), b.add("matmul", b.given(3, 4), b.weight(4, 5))),)


def matmul_bias_scale(b: Builder) -> tuple[str, ...]:
    """A linear layer and a factor per column."""
    y = b.add("add", b.add("matmul", b.given(3, 4), b.weight(4, 5)), b.weight(5))
    return (b.add("div", y, b.add("exp", b.weight(5))),)


def matmul_bias_bias(b: Builder) -> tuple[str, ...]:
    """A linear layer and a second shift."""
    y = b.add("add", b.add("matmul", b.given(3, 4), b.weight(4, 5)), b.weight(5))
    return (b.add("add", b.weight(5), y),)


def heads_scale(b: Builder) -> tuple[str, ...]:
    """A linear layer, cut into heads, and one factor."""
    y = b.add("add", b.add("matmul", b.given(3, 4), b.weight(4, 6)), b.weight(6))
    heads = b.add("transpose", b.add("reshape", y, shape=(3, 2, 3)), perm=(1, 0, 2))
    return (b.add("mul", heads, b.constant(0.125)),)


CASES: dict[str, tuple[Callable[[Builder], tuple[str, ...]], list[str]]] = {
    "fold-constants": (same_constants, ["mul"]),
    "common-subexpression": (twice_the_same, ["exp", "add"]),
    "idle-operand": (times_one, ["reshape", "exp"]),
    "decided-selection": (known_choice, ["expand"]),
    "selection-is-clamp": (clamp, ["relu", "minimum"]),
    "maximum-is-relu": (positive, ["relu"]),
    "small-power": (square, ["mul"]),
    "cast-chain": (cast_there_and_back, ["exp", "exp"]),
    "undone-twice": (minus_minus, ["exp"]),
    "idempotent": (relu_relu, ["relu"]),
    "reshape-chain": (reshape_reshape, ["exp", "exp"]),
    "transpose-chain": (transpose_transpose, ["exp", "exp"]),
    "transpose-across-units": (
        transpose_units_transpose,
        ["exp", "reshape", "exp"],
    ),
    "transpose-across-merge": (
        heads_of_batches,
        ["transpose", "reshape", "neg"],
    ),
    "split-behind-transpose": (batches_and_back, ["exp", "transpose", "neg"]),
    "transpose-around-work": (
        transpose_work_transpose,
        ["exp", "tanh", "reshape", "add", "mul", "exp"],
    ),
    "reshape-around-work": (reshape_work_reshape, ["exp", "add", "mul", "exp"]),
    "reduced-transpose": (reduced_transpose, ["reduce_max", "reshape"]),
    "expand-chain": (expand_expand, ["exp", "expand"]),
    "expanded-operand": (expanded_operand, ["exp", "add"]),
    "expanded-batch": (expanded_batch, ["exp", "matmul"]),
    "leading-units": (leading_units, ["add"]),
    "slice-chain": (slice_slice, ["slice"]),
    "slice-of-concat": (slice_concat, ["exp", "neg"]),
    "slice-before-transpose": (
        slice_transpose,
        ["slice", "reshape", "neg", "slice", "reshape", "neg"],
    ),
    "slice-before-reshape": (slice_squeeze, ["slice", "reshape", "neg"]),
    "concat-chain": (concat_slices, ["exp", "neg"]),
    "wide-concat": (wide_concat, ["concat"] * 4),
    "idle-pad": (idle_pad, ["exp"]),
    "gather-is-slice": (known_gather, ["slice", "reshape"]),
    "idle-reduction": (unit_reduction, ["reshape", "exp"]),
    "scale-into-conv": (conv_scale, ["conv"]),
    "shift-into-conv": (conv_shift, ["conv"]),
    "scale-into-matmul": (matmul_scale, ["matmul"]),
    "scale-below-bias": (matmul_bias_scale, ["matmul", "add"]),
    "bias-after-bias": (matmul_bias_bias, ["matmul", "add"]),
    "scale-below-layout": (
        heads_scale,
        ["matmul", "add", "reshape", "transpose"],
    ),
}


def test_every_rule_has_a_case() -> None:
    """No rule is without a graph on which it fires."""
    assert set(CASES) == {rule.name for rule in RULES}


@pytest.mark.parametrize("name", CASES)
def test_a_rule_fires_and_keeps_the_meaning(name: str) -> None:
    """On its case a rule fires alone, and with all others leaves what is expected."""
    make, wanted = CASES[name]
    builder = Builder()
    graph = builder.graph(*make(builder))
    alone, _ = rewrite(graph, [rule for rule in RULES if rule.name == name])
    assert canonicalize(alone).fingerprint != canonicalize(graph).fingerprint
    assert ops(simplified(graph)) == wanted


INEXACT = [rule.name for rule in RULES if not rule.exact]


@pytest.mark.parametrize("name", INEXACT)
def test_no_inexact_rule_fires_in_training(name: str) -> None:
    """Training graphs keep rounding as it is."""
    builder = Builder()
    graph = builder.graph(*CASES[name][0](builder))
    kept = [n.op for n in simplified(graph, training=True).graph.nodes]
    assert sorted(kept) == sorted(node.op for node in graph.nodes)


def test_adding_plus_zero_stays() -> None:
    """-0.0 + 0.0 is 0.0, so only adding -0.0 and subtracting 0.0 do nothing."""
    builder = Builder()
    x = builder.add("exp", builder.given(3))
    zero, minus_zero = builder.constant(0.0), builder.constant(-0.0)
    kept = builder.add("add", x, zero)
    gone = builder.add("sub", builder.add("add", x, minus_zero), zero)
    result = simplified(builder.graph(kept, builder.add("neg", gone)))
    assert sorted(ops(result)) == ["add", "exp", "neg"]


def test_a_narrowing_cast_stays() -> None:
    """A cast that loses bits is not undone by the next."""
    builder = Builder()
    narrow = builder.add("cast", builder.given(3), to="f16")
    result = simplify(
        builder.graph(builder.add("cast", narrow, to="f32")), training=False
    )
    assert ops(result) == ["cast", "cast"]


def test_a_large_expand_of_a_constant_stays() -> None:
    """Folding never makes a constant larger by repeating it."""
    builder = Builder()
    wide = builder.add("expand", builder.constant(2.0), shape=(64, 64))
    result = simplified(builder.graph(builder.add("reshape", wide, shape=(4096,))))
    assert ops(result) == ["expand", "reshape"]
    assert [v.size for v in result.graph.constants.values()] == [1]


def test_a_large_constant_result_is_computed_in_prepare() -> None:
    """What is too large to fold is computed once at load time."""
    builder = Builder()
    column = builder.constant(np.arange(300.0).reshape(300, 1))
    row = builder.constant(np.arange(300.0))
    table = builder.add("mul", column, row)
    result = simplified(
        builder.graph(builder.add("add", builder.given(300, 300), table))
    )
    assert ops(result) == ["add"]
    assert [node.op for node in result.prepare.nodes] == ["mul"]


def test_a_contraction_with_a_second_reader_keeps_its_weights() -> None:
    """A scale is not folded when somebody needs the unscaled result."""
    builder = Builder()
    y = conv(builder, builder.given(1, 4, 5, 5), builder.weight(8, 4, 3, 3))
    scaled = builder.add("mul", y, builder.weight(8, 1, 1))
    result = simplified(builder.graph(scaled, builder.add("relu", y)))
    assert sorted(ops(result)) == ["conv", "mul", "relu"]


def test_a_scale_per_pixel_is_not_folded() -> None:
    """Only what varies along output channels goes into weights."""
    builder = Builder()
    y = conv(builder, builder.given(1, 4, 5, 5), builder.weight(8, 4, 3, 3))
    result = simplified(builder.graph(builder.add("mul", y, builder.weight(5, 5))))
    assert ops(result) == ["conv", "mul"]
