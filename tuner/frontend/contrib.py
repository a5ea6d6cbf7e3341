"""Operators that libraries add to the standard: what they compute, or what they give.

Models that ONNX Runtime has optimised hold operators of its own. Some are taken apart
by a function in the standard's words, like the composite operators of the standard; of
others only the type of the result is told, and a library runs them. So it is with the
operators of classical machine learning, whose shapes the standard leaves open.

Source: "Contrib Operators" of ONNX Runtime, and "ai.onnx.ml Operators" of ONNX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from onnx import parser

from tuner.frontend.builder import Builder, Decline
from tuner.frontend.call import Call
from tuner.frontend.schemas import Body, body_of
from tuner.ir.types import Dim, DType, TensorType

DOMAIN: Final = "com.microsoft"
_OPSET: Final = 23
"""Version of the standard in which the functions are written."""

_SKIP: Final = """ <epsilon: float = 0.00001>{inputs} => (y, mean, inv, sum) {{
    {add}
    y, mean, inv = {norm} }}"""
_LAYER: Final = "LayerNormalization<epsilon: float = @epsilon>(sum, g, b)"
_RMS: Final = "RMSNormalization<epsilon: float = @epsilon>(sum, g)"
_ADD: Final = "sum = Add(x, s)"
_ADD_BIAS: Final = "part = Add(x, bias) sum = Add(part, s)"
_BODIES: Final[Mapping[tuple[str, int], str]] = MappingProxyType(
    {
        ("Gelu", 1): "(x) => (y) { y = Gelu(x) }",
        ("BiasGelu", 2): "(x, b) => (y) { s = Add(x, b) y = Gelu(s) }",
        ("FastGelu", 1): '(x) => (y) { y = Gelu<approximate="tanh">(x) }',
        ("FastGelu", 2): """(x, b) => (y) {
            s = Add(x, b) y = Gelu<approximate="tanh">(s) }""",
        ("QuickGelu", 1): """<alpha: float = 1.702>(x) => (y) {
            a = Constant<value_float: float = @alpha>()
            t = CastLike(a, x) s = Mul(x, t) g = Sigmoid(s) y = Mul(x, g) }""",
        ("SkipLayerNormalization", 4): _SKIP.format(
            inputs="(x, s, g, b)", add=_ADD, norm=_LAYER
        ),
        ("SkipLayerNormalization", 5): _SKIP.format(
            inputs="(x, s, g, b, bias)", add=_ADD_BIAS, norm=_LAYER
        ),
        ("SkipSimplifiedLayerNormalization", 3): _SKIP.format(
            inputs="(x, s, g)", add=_ADD, norm=_RMS
        ).replace("y, mean, inv =", "y ="),
        ("SkipSimplifiedLayerNormalization", 4): _SKIP.format(
            inputs="(x, s, g, bias)", add=_ADD_BIAS, norm=_RMS
        ).replace("y, mean, inv =", "y ="),
    }
)
"""By operator and position of the last input that is there."""
_SIMPLE: Final = """<axis: int = -1, epsilon: float = 0.00001>(x, g) => (y) {
    y = RMSNormalization<axis: int = @axis, epsilon: float = @epsilon>(x, g) }"""


_CONV: Final = """(x, w, b) => (y) {{
    c = Conv<auto_pad: string = @auto_pad, dilations: ints = @dilations,
        group: int = @group, kernel_shape: ints = @kernel_shape,
        pads: ints = @pads, strides: ints = @strides>(x, w, b)
    y = {activation}(c) }}"""
_GEMM: Final = """(x, w, b) => (y) {{
    c = Gemm<alpha: float = @alpha, beta: float = @beta,
        transA: int = @transA, transB: int = @transB>(x, w, b)
    y = {activation}(c) }}"""
_ACTIVATIONS: Final = ("Relu", "Sigmoid", "Tanh")
_PAIR: Final = 2


def body(b: Builder, call: Call) -> Body | None:
    """The function of an operator, where there is one."""
    text = _text(b, call)
    if not text:
        return None
    return body_of(_function(text), call.proto, (call.domain, call.opset))


def _text(b: Builder, call: Call) -> str:
    given = [k for k, ref in enumerate(call.inputs, 1) if ref is not None]
    last = max(given, default=0)
    if call.op == "SimplifiedLayerNormalization" and len(given) == _PAIR:
        return _SIMPLE  # ONNX Runtime counts it to the standard domain
    if call.domain != DOMAIN:
        return ""
    if call.op == "FusedMatMul" and len(given) == _PAIR:
        return _fused_matmul(b, call)
    if call.op in ("FusedConv", "FusedGemm"):
        activation = call.text("activation", "")
        text = _CONV if call.op == "FusedConv" else _GEMM
        fits = activation in _ACTIVATIONS and last <= _PAIR + 1
        return text.format(activation=activation) if fits else ""
    if call.op == "SkipLayerNormalization":
        last = max(last, _PAIR + 2)
    return _BODIES.get((call.op, last), "")


def _fused_matmul(b: Builder, call: Call) -> str:
    if call.whole("transBatchA", 0) or call.whole("transBatchB", 0):
        return ""
    lines = []
    names = []
    for name, position in (("A", 0), ("B", 1)):
        rank = b.rank(call[position])
        swap = call.whole(f"trans{name}", 0) and rank > 1
        names.append(f"t{name}" if swap else name)
        if swap:
            perm = ", ".join(map(str, (*range(rank - 2), rank - 1, rank - 2)))
            lines.append(f"t{name} = Transpose<perm = [{perm}]>({name})")
    return f"""<alpha: float = 1.0>(A, B) => (y) {{
        {" ".join(lines)}
        m = MatMul({names[0]}, {names[1]})
        f = Constant<value_float: float = @alpha>()
        s = CastLike(f, m)
        y = Mul(m, s) }}"""


@lru_cache(maxsize=64)
def _function(text: str) -> onnx.FunctionProto:
    head = f'<domain: "{DOMAIN}", opset_import: ["": {_OPSET}]>'
    return parser.parse_function(f"{head} F {text.strip()}")


def first_type(b: Builder, call: Call) -> TensorType | None:
    """Type of the first result of an operator whose type nobody else tells."""
    rule = _TYPES.get((call.domain, call.op))
    if rule is None or not call.inputs or call.inputs[0] is None:
        return None
    try:
        return rule(b, call)
    except (Decline, LookupError, TypeError, ValueError):  # something is not there
        return None


def _same(b: Builder, call: Call) -> TensorType:
    return b.types[call[0]]


def _real(b: Builder, call: Call) -> TensorType:
    return TensorType(dtype=DType.F32, shape=b.shape(call[0]))


def _last(b: Builder, call: Call, extent: Dim) -> TensorType:
    return TensorType(dtype=b.dtype(call[0]), shape=(*b.shape(call[0])[:-1], extent))


def _packed_attention(b: Builder, call: Call) -> TensorType:
    sizes = call.several("qkv_hidden_sizes")
    if sizes is not None:
        return _last(b, call, sizes[-1])
    (width,) = b.static(call[1])[1:]
    return _last(b, call, width // 3)


def _attention(b: Builder, call: Call) -> TensorType:
    values = call.inputs[2]
    if values is None or b.rank(values) != b.rank(call[0]):
        return _same(b, call)
    return _last(b, call, b.shape(values)[-1])


def _packed_weights(b: Builder, call: Call) -> TensorType:
    return _last(b, call, call.attributes["N"])


def _broadcast(b: Builder, call: Call) -> TensorType:
    shapes = (b.static(call[0]), b.static(call[3]))
    shape = np.broadcast_shapes(*shapes)
    return TensorType(dtype=b.dtype(call[0]), shape=shape)


def _joined(b: Builder, call: Call) -> TensorType:
    """Inputs: scale and zero point of the result, then triples of what is joined."""
    parts = call.inputs[2::3]
    shapes = [b.static(part) for part in parts if part is not None]
    axis = call.whole("axis", 0) % len(shapes[0])
    shape = list(shapes[0])
    shape[axis] = sum(each[axis] for each in shapes)
    return TensorType(dtype=b.dtype(call[1]), shape=tuple(shape))


def _picked(b: Builder, call: Call) -> TensorType:
    (count,) = b.static(call[1])[-1:]
    shape = b.shape(call[0])
    rows = shape[:-1] if len(shape) > 1 else (1,)
    return TensorType(dtype=b.dtype(call[0]), shape=(*rows, count))


def _real_product(b: Builder, call: Call) -> TensorType:
    _, columns = b.shape(call[1])
    return TensorType(dtype=DType.F32, shape=(*b.shape(call[0])[:-1], columns))


def _rows(attribute: str) -> Callable[[Builder, Call], TensorType]:
    def rule(b: Builder, call: Call) -> TensorType:
        shape = b.shape(call[0])
        rows: Dim = shape[0] if len(shape) > 1 else 1
        count = call.whole(attribute, 1)
        return TensorType(dtype=DType.F32, shape=(rows, count))

    return rule


_TYPES: Final[Mapping[tuple[str, str], Callable[[Builder, Call], TensorType]]] = {
    **dict.fromkeys(
        [
            (DOMAIN, name)
            for name in (
                "GroupQueryAttention",
                "QLinearLeakyRelu",
                "QLinearSigmoid",
                "QLinearSoftmax",
                "RotaryEmbedding",
            )
        ],
        _same,
    ),
    (DOMAIN, "DynamicQuantizeMatMul"): _real_product,
    (DOMAIN, "MatMulIntegerToFloat"): _real_product,
    (DOMAIN, "QLinearAdd"): _broadcast,
    (DOMAIN, "QLinearConcat"): _joined,
    (DOMAIN, "QLinearMul"): _broadcast,
    (DOMAIN, "Attention"): _packed_attention,
    (DOMAIN, "MultiHeadAttention"): _attention,
    (DOMAIN, "MatMulNBits"): _packed_weights,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): _picked,
    ("ai.onnx.ml", "Binarizer"): _same,
    ("ai.onnx.ml", "Imputer"): _same,
    ("ai.onnx.ml", "LinearRegressor"): _rows("targets"),
    ("ai.onnx.ml", "Normalizer"): _real,
    ("ai.onnx.ml", "SVMRegressor"): _rows("n_targets"),
    ("ai.onnx.ml", "Scaler"): _real,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): _rows("n_targets"),
}
