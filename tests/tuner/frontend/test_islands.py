"""Values that our graphs do not hold lie inside of one node each."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from tests.tuner.frontend.models import agree, model, node, ops, read, value
from tuner.errors import UnsupportedModel
from tuner.frontend.islands import enclose
from tuner.model import load

_HEAD = '<ir_version: 8, opset_import: ["": 18]>'
_MODELS = {
    "a sequence": """g (float[6,4] x) => (float[2,4] y)
        <int64 two = {2}, int64 one = {1}, int64 zero = {0}> {
        s = SplitToSequence<axis=0>(x, two)
        a = SequenceAt(s, zero)
        b = SequenceAt(s, one)
        c = Relu(a)
        y = Add(c, b) }""",
    "an optional": """g (float[6,4] x) => (float[6,4] y) {
        o = Optional(x)
        e = OptionalGetElement(o)
        y = Relu(e) }""",
    "a whole number of 32 bits without sign": """g (int64[3,4] x) => (float[3,4] y) {
        a = Cast<to=12>(x)
        c = Cast<to=1>(a)
        y = Sqrt(c) }""",
    "a number of elements that a run decides": """g (float[3,4] x) => (float y) {
        a = Relu(x)
        n = NonZero(a)
        t = Transpose(n)
        g = GatherND(x, t)
        s = ReduceSum<keepdims=0>(g)
        y = Neg(s) }""",
    "a sequence of an extent that the model states": """
        g (float[2,4] x, float[2,4] z) => (float[4,4] y) {
        s = SequenceConstruct(x, z)
        a = ConcatFromSequence<axis=0>(s)
        y = Exp(a) }""",
    "a choice that is known": """g (float[6,4] x) => (float[3,4] y)
        <bool c = {1}, int64 zero = {0}, int64 three = {3}> {
        a = If(c) <
          then_branch = t () => (float[3,4] o) {
            s = SplitToSequence<axis=0>(x, three)
            o = SequenceAt(s, zero) },
          else_branch = e () => (float[3,4] p) {
            q = SplitToSequence<axis=0>(x, three)
            p = SequenceAt(q, zero) }>
        y = Relu(a) }""",
}


@pytest.mark.parametrize("text", _MODELS.values(), ids=_MODELS)
def test_a_foreign_value_lies_inside_of_one_node(text: str) -> None:
    """The model is read, has one opaque node, and computes what ONNX Runtime does."""
    graph = agree(parser.parse_model(f"{_HEAD} {text}"))
    assert ops(graph).count("opaque") == 1
    assert not graph.symbols


def test_an_island_is_listed_with_all_its_nodes() -> None:
    """Whoever asks for one of the user's nodes finds the kernel that runs it."""
    text = _MODELS["a sequence"]
    found = load(parser.parse_model(f"{_HEAD} {text}").SerializeToString())
    (island,) = (n for n in found.graph.nodes if n.op == "opaque")
    names = ("SplitToSequence:s", "SequenceAt:a", "SequenceAt:b")
    assert found.names[island.name] == names
    assert all(found.node_id(name) == island.name for name in names)


def test_what_must_run_between_is_part_of_the_island() -> None:
    """A node of ours between two nodes on one sequence runs with them."""
    made = parser.parse_model(
        f"""{_HEAD} g (float[6,4] x) => (float[6,4] y) <int64 z = {{0}}> {{
        s = SequenceConstruct(x, x)
        a = SequenceAt(s, z)
        b = Relu(a)
        t = SequenceInsert(s, b)
        c = ConcatFromSequence<axis=0>(t)
        d = Shape(c)
        e = ReduceMax<keepdims=0>(d)
        f = Cast<to=1>(e)
        g = Div(x, f)
        y = Neg(g) }}"""
    )
    graph = agree(made)
    assert ops(graph).count("opaque") == 1
    assert "relu" not in ops(graph)


def test_two_islands_that_wait_for_each_other_are_one() -> None:
    """Each reads what the other makes, so that only together they have an order."""
    made = parser.parse_model(
        f"""{_HEAD} g (float[4] x) => (float[4] y, float[4] z) <int64 i = {{0}}> {{
        s = SequenceConstruct(x)
        u = SequenceConstruct(x)
        a = SequenceAt(s, i)
        v = SequenceInsert(u, a)
        b = SequenceAt(u, i)
        w = SequenceInsert(s, b)
        y = SequenceAt(v, i)
        z = SequenceAt(w, i) }}"""
    )
    assert ops(agree(made)).count("opaque") == 1


def test_packed_weights_are_unpacked_where_they_are_read() -> None:
    """Weights of four bits, and their zero points, come into the node as they are."""
    rng = np.random.default_rng(0)
    made = model(
        [node("DequantizeLinear", "w s", "f"), node("Mul", "x f", "y")],
        [value("x", [8, 4])],
        "y",
        {"s": np.array(0.5, np.float32)},
        opset=21,
    )
    packed = helper.make_tensor("w", TensorProto.INT4, [8, 4], rng.integers(-8, 8, 32))
    made.graph.initializer.append(packed)
    assert ops(agree(made)) == ["opaque", "mul"]


def test_an_ordinary_model_stays_as_it_is() -> None:
    """Without a foreign value there is nothing to enclose."""
    assert enclose(model([node("Relu", "x", "y")], [value("x", [2])], "y")) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            """g (float[6,4] x) => (seq(float[2,4]) s) <int64 two = {2}> {
            s = SplitToSequence<axis=0>(x, two) }""",
            "gives 's', which is no tensor but: sequence",
        ),
        (
            """g (seq(float[2]) s) => (float[2] y) <int64 i = {0}> {
            y = SequenceAt(s, i) }""",
            "s: is not a tensor but sequence_type",
        ),
        (
            "g (float[3] x) => (int64[1,n] y) { y = NonZero(x) }",
            "y: an extent of it is only known when the model runs",
        ),
    ],
)
def test_what_the_model_takes_or_delivers_is_a_tensor(text: str, message: str) -> None:
    """A plan hands over tensors; the refusal names the one that is none."""
    data = parser.parse_model(f"{_HEAD} {text}").SerializeToString()
    with pytest.raises(UnsupportedModel, match=message):
        load(data)


def test_names_that_inference_made_up_are_not_told() -> None:
    """An extent that is not known is called after its tensor."""
    made = parser.parse_model(
        f"{_HEAD} g (float[3] x) => (int64[1,n] y) {{ a = Relu(x) b = NonZero(a) "
        "y = Abs(b) }"
    )
    assert isinstance(made, onnx.ModelProto)
    symbols = read(made).symbols
    assert symbols
    assert not any(symbol.startswith("unk__") for symbol in symbols)
