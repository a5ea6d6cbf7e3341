"""Bad input: a clear error that says where, what and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.tuner.frontend.models import F32, model, node, value
from tuner.errors import (
    InvalidModel,
    InvalidOption,
    ModelTooLarge,
    TunerError,
    UnsupportedModel,
)
from tuner.frontend.model import Limits
from tuner.frontend.onnx import read_onnx


def _cyclic() -> onnx.ModelProto:
    nodes = [
        node("Add", "x b", "a", name="first"),
        node("Exp", "a", "b", name="second"),
        node("Neg", "b", "y", name="third"),
    ]
    return model(nodes, [value("x", [2])], "y")


def _undefined() -> onnx.ModelProto:
    return model([node("Add", "x ghost", "y", name="a")], [value("x", [2])], "y")


def _made_twice() -> onnx.ModelProto:
    nodes = [node("Exp", "x", "y", name="a"), node("Neg", "x", "y", name="b")]
    return model(nodes, [value("x", [2])], "y")


def _no_shape() -> onnx.ModelProto:
    made = model([node("Exp", "x", "y")], [value("x", [2])], "y")
    made.graph.input[0].type.tensor_type.ClearField("shape")
    return made


def _unknown_dtype() -> onnx.ModelProto:
    made = model([node("Exp", "x", "y")], [value("x", [2])], "y")
    made.graph.input[0].type.tensor_type.elem_type = 99
    return made


def _text() -> onnx.ModelProto:
    return model(
        [node("Identity", "x", "y")], [value("x", [2], TensorProto.STRING)], "y"
    )


def _external() -> onnx.ModelProto:
    made = model([node("Add", "x w", "y")], [value("x", [9, 9])], "y")
    tensor = made.graph.initializer.add(name="w", data_type=F32, dims=[9])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    return made


def _short_data() -> onnx.ModelProto:
    made = model([node("Add", "x w", "y")], [value("x", [9, 9])], "y")
    made.graph.initializer.add(name="w", data_type=F32, dims=[9, 9], raw_data=b"1234")
    return made


def _bad_broadcast() -> onnx.ModelProto:
    return model(
        [node("Add", "x z", "y", name="a")], [value("x", [2]), value("z", [3])], "y"
    )


def _mixed_dtypes() -> onnx.ModelProto:
    return model(
        [node("Add", "x z", "y", name="a")],
        [value("x", [2]), value("z", [2], TensorProto.INT64)],
        "y",
    )


def _missing_input() -> onnx.ModelProto:
    return model([node("Add", "x", "y", name="a")], [value("x", [2])], "y")


def _missing_attribute() -> onnx.ModelProto:
    return model([node("Concat", "x x", "y", name="a")], [value("x", [2])], "y")


def _wrong_attribute() -> onnx.ModelProto:
    return model(
        [node("Softmax", "x", "y", name="a", axis=1.5)], [value("x", [2, 2])], "y"
    )


def _bad_axis() -> onnx.ModelProto:
    return model([node("Concat", "x x", "y", name="a", axis=7)], [value("x", [2])], "y")


def _bad_reshape() -> onnx.ModelProto:
    return model(
        [node("Reshape", "x s", "y", name="a")],
        [value("x", [2, 3])],
        "y",
        {"s": np.array([4, 2], np.int64)},
    )


def _bad_index() -> onnx.ModelProto:
    return model(
        [node("Gather", "x s", "y", name="a")],
        [value("x", [2, 3])],
        "y",
        {"s": np.array([4, 2], np.int64)},
    )


def _untyped_custom() -> onnx.ModelProto:
    made = model([], [value("x", [2])], "y")
    made.opset_import.append(helper.make_opsetid("mine", 1))
    made.graph.node.append(helper.make_node("Odd", ["x"], ["y"], "a", domain="mine"))
    return made


def _sequence() -> onnx.ModelProto:
    nodes = [node("SequenceConstruct", "x", "s", name="a")]
    return model(nodes, [value("x", [2])], "s")


def _bad_metadata() -> onnx.ModelProto:
    made = model([node("Exp", "x", "y")], [value("x", [2])], "y")
    made.metadata_props.add(key="weights", value="{not json")
    return made


def _missing_output() -> onnx.ModelProto:
    return model([node("Exp", "x", "y")], [value("x", [2])], "z")


def _no_outputs() -> onnx.ModelProto:
    return model([node("Exp", "x", "y")], [value("x", [2])], [])


def _twice_among_outputs() -> onnx.ModelProto:
    return model([node("Exp", "x", "y")], [value("x", [2])], "y y")


def _few_pads() -> onnx.ModelProto:
    pads = {"p": np.array([1, 1, 1], np.int64)}
    return model([node("Pad", "x p", "y", name="a")], [value("x", [2, 3])], "y", pads)


def _few_old_pads() -> onnx.ModelProto:
    nodes = [node("Pad", "x", "y", name="a", pads=[1])]
    return model(nodes, [value("x", [2, 3])], "y", opset=9)


def _unknown_mode() -> onnx.ModelProto:
    pads = {"p": np.array([1, 1], np.int64)}
    nodes = [node("Pad", "x p", "y", name="a", mode="mirror")]
    return model(nodes, [value("x", [2])], "y", pads)


def _negative() -> onnx.ModelProto:
    return model([node("Exp", "x", "y")], [value("x", [-4, 8])], "y")


BAD: tuple[tuple[Callable[[], onnx.ModelProto], type[TunerError], str], ...] = (
    (_cyclic, InvalidModel, "first"),
    (_undefined, InvalidModel, "'ghost'"),
    (_made_twice, InvalidModel, "b: makes 'y'"),
    (_no_shape, UnsupportedModel, "x: has no shape"),
    (_unknown_dtype, InvalidModel, "x: element type 99"),
    (_text, UnsupportedModel, "STRING"),
    (_external, UnsupportedModel, "w: its data lies in another file"),
    (_short_data, InvalidModel, "w: 4 bytes"),
    (_bad_broadcast, InvalidModel, "a: shapes"),
    (_mixed_dtypes, InvalidModel, "a: operands must have one element type"),
    (_missing_input, InvalidModel, "a: Add takes 2"),
    (_missing_attribute, InvalidModel, "a: Concat lacks its attribute 'axis'"),
    (_wrong_attribute, InvalidModel, "a: its attribute 'axis'"),
    (_bad_axis, InvalidModel, "a: axis 7"),
    (_bad_reshape, InvalidModel, "a: a shape of 6"),
    (_bad_index, InvalidModel, "a: gathers index 4"),
    (_untyped_custom, UnsupportedModel, "a: the element type"),
    (_sequence, UnsupportedModel, "which is no tensor but: sequence"),
    (_bad_metadata, InvalidModel, "metadata weights"),
    (_few_pads, InvalidModel, "a: has 3 pads for 2 axes"),
    (_few_old_pads, InvalidModel, "a: has 1 pads for 2 axes"),
    (_unknown_mode, InvalidModel, "a: an attribute has the unknown value 'mirror'"),
    (_negative, InvalidModel, "x: has the extent -4 on axis 0"),
    (_no_outputs, InvalidModel, "g: has no outputs"),
    (_twice_among_outputs, InvalidModel, "y: is listed twice"),
    (_missing_output, InvalidModel, "z: is a graph output"),
)


@pytest.mark.parametrize(
    ("make", "kind", "text"), BAD, ids=[b[0].__name__ for b in BAD]
)
def test_a_bad_model_is_refused_with_its_reason(
    make: Callable[[], onnx.ModelProto], kind: type[TunerError], text: str
) -> None:
    """The message names the node or tensor and the fault."""
    with pytest.raises(kind) as error:
        read_onnx(make().SerializeToString())
    assert text in str(error.value)
    assert error.value.hint
    for word in ("index out of range", "Traceback"):
        assert word not in str(error.value)


def test_a_cycle_is_named_node_by_node() -> None:
    """All nodes of the ring, and none beside it."""
    with pytest.raises(InvalidModel, match=r"first -> second -> first|second -> first"):
        read_onnx(_cyclic().SerializeToString())


def test_json_in_the_place_of_onnx_is_told() -> None:
    """It is no model that was cut off."""
    with pytest.raises(InvalidModel, match="JSON, not an ONNX model"):
        read_onnx(b'\n {"schema": 1}')


@pytest.mark.parametrize("data", [b"", b"\x00\x01\x02", b"not a model", b"\x08\x07"])
def test_bytes_that_are_no_model(data: bytes) -> None:
    """Empty, foreign or headless bytes."""
    with pytest.raises(InvalidModel):
        read_onnx(data)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_damaged_file_is_refused_or_read(data: st.DataObject) -> None:
    """Cut or changed anywhere, a model ends in one of our errors or in a graph."""
    whole = model(
        [
            node("Conv", "x w", "a", name="c", pads=[1, 1, 1, 1]),
            node("Softmax", "a", "b", axis=1),
            node("Reshape", "b s", "y"),
        ],
        [value("x", [1, 3, 4, 4]), value("w", [2, 3, 3, 3])],
        "y",
        {"s": np.array([2, -1], np.int64)},
    ).SerializeToString()
    cut = data.draw(st.integers(0, len(whole)))
    damaged = bytearray(whole[:cut])
    if damaged:
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(TunerError):
        read_onnx(bytes(damaged))


def test_limits_are_kept() -> None:
    """Bytes, nodes and nesting."""
    data = model(
        [node("Exp", "x", "a"), node("Exp", "a", "y")], [value("x", [2])], "y"
    ).SerializeToString()
    for limits in (Limits(model_bytes=10), Limits(nodes=1), Limits(tensors=1)):
        with pytest.raises(ModelTooLarge):
            read_onnx(data, limits=limits)


@pytest.mark.parametrize("extents", [[1 << 20] * 4, [1 << 62, 4], [(1 << 42) + 1]])
def test_a_tensor_larger_than_any_machine_is_named(extents: list[int]) -> None:
    """An input as well as a result; sizes at the limit are read."""
    data = model(
        [node("Exp", "x", "y")], [value("x", extents)], "y"
    ).SerializeToString()
    with pytest.raises(ModelTooLarge, match=r"x: .* limit for one tensor") as error:
        read_onnx(data)
    assert error.value.hint
    grown = model(
        [node("Add", "x z", "y", name="a")],
        [value("x", [1 << 30, 1]), value("z", [1, "n"])],
        "y",
    ).SerializeToString()
    read_onnx(grown)
    read_onnx(grown, dims={"n": 1 << 12})
    with pytest.raises(ModelTooLarge, match=r"y: .* limit for one tensor"):
        read_onnx(grown, dims={"n": 1 << 13})
    with pytest.raises(ModelTooLarge, match="limit for one tensor is 8"):
        read_onnx(grown, limits=Limits(tensor_bytes=8), dims={"n": 1})


def test_a_dimension_that_is_not_there_is_an_error() -> None:
    """The message lists those that are."""
    data = model(
        [node("Exp", "x", "y")], [value("x", ["batch"])], "y"
    ).SerializeToString()
    with pytest.raises(InvalidOption, match="batch"):
        read_onnx(data, dims={"bach": 2})
    with pytest.raises(InvalidOption, match="positive"):
        read_onnx(data, dims={"batch": 0})
    with pytest.raises(InvalidOption, match="64 bits"):
        read_onnx(data, dims={"batch": 10**30})


@pytest.mark.parametrize("opset", [6, 99])
def test_an_opset_outside_the_range_is_refused(opset: int) -> None:
    """The message says the range."""
    made = model([node("Exp", "x", "y")], [value("x", [2])], "y", opset=opset)
    with pytest.raises(UnsupportedModel, match="not between 7 and"):
        read_onnx(made.SerializeToString())


def test_a_type_at_the_border_is_told_that_it_may_lie_inside() -> None:
    """Text cannot be cast: the hint says what may be taken, and it is true."""
    with pytest.raises(UnsupportedModel, match="between nodes"):
        read_onnx(_text().SerializeToString())
    inside = [
        node("Cast", "x", "u", to=TensorProto.UINT32),
        node("Cast", "u", "t", to=TensorProto.STRING),
        node("Cast", "t", "y", to=F32),
    ]
    made = model(inside, [value("x", [2])], [value("y", [2])])
    assert read_onnx(made.SerializeToString()).graph.types["y"].static_shape == (2,)
